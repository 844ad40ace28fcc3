"""Memory that keeper and recorder share: what passed through, and how far. It survives the death of either.

Anonymous, so that only our own forks see it: the worker gets the beats' page (`spool.Page`) and nothing of this.
"""

from __future__ import annotations

import mmap
import struct
import time
import zlib
from typing import Final

RING_BYTES: Final = 1 << 20
"""Per stream; also the most that can be read and not yet passed on."""
CHUNKS: Final = 16_384
"""Entries of the index of chunks, in order of arrival."""
SNAPSHOT_BYTES: Final = 256 * 1024
"""Room for one snapshot of the recorder's knowledge; there are two, written in turn."""

_ENTRY: Final = struct.Struct("<QIIQ")  # arrival ns, stream, length, offset in the stream
_HEADER_BYTES: Final = 4096
_INDEX_HEAD: Final = 0
FLUSH_DEADLINE: Final = 8  # monotonic ns by which the recorder has to be done; 0: the worker still runs
KEEPER_BEAT: Final = 16
RUN_BEGAN: Final = 24
"""Unix ns of the first `job.run` where handler output may not leave; 0: none began, or it may."""
FLUSH_WISH: Final = 32
"""ns that the exit may wait for the collector, for a recorder whose keeper has died."""
END_ORPHANS: Final = 40
"""1: what the worker leaves behind is ended, by the recorder where the keeper has died."""
_STREAM_BASE, _STREAM_BYTES = 128, 64
_SNAPSHOT: Final = struct.Struct("<QII")  # sequence, length, crc32


class StreamField:
    """Words kept per stream."""

    HEAD: Final = 0  # bytes copied into the ring
    PASSED: Final = 8  # bytes handed to the original stream
    LOST: Final = 16  # bytes that the original stream refused (disk full)
    BROKEN: Final = 24  # 1: the reader of the original stream has left
    ENDED: Final = 32  # 1: all writers are gone


class Shared:
    """Offsets only grow; each word has one writer at a time."""

    def __init__(self) -> None:
        self._index_at = _HEADER_BYTES
        self._rings_at = self._index_at + CHUNKS * _ENTRY.size
        self._snapshots_at = self._rings_at + 2 * RING_BYTES
        self._memory = mmap.mmap(-1, self._snapshots_at + 2 * SNAPSHOT_BYTES)
        view = memoryview(self._memory)
        self.rings = [view[self._rings_at + i * RING_BYTES :][:RING_BYTES] for i in (0, 1)]

    def get(self, offset: int) -> int:
        value: int = struct.unpack_from("<Q", self._memory, offset)[0]
        return value

    def set(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self._memory, offset, value)

    def field(self, stream: int, field: int) -> int:
        return self.get(_STREAM_BASE + stream * _STREAM_BYTES + field)

    def set_field(self, stream: int, field: int, value: int) -> None:
        self.set(_STREAM_BASE + stream * _STREAM_BYTES + field, value)

    # ------------------------------------------------------------------------------------------------- the output

    @property
    def chunks(self) -> int:
        """Chunks that came so far; the last `CHUNKS` of them are still listed."""
        return self.get(_INDEX_HEAD)

    def push(self, stream: int, length: int, offset: int) -> None:
        """Lists a chunk that lies in the ring already."""
        head = self.chunks
        _ENTRY.pack_into(
            self._memory, self._index_at + head % CHUNKS * _ENTRY.size, time.time_ns(), stream, length, offset
        )
        self.set(_INDEX_HEAD, head + 1)

    def chunk(self, number: int) -> tuple[int, int, int, int]:
        """(arrival ns, stream, length, offset in the stream) of chunk `number`."""
        entry: tuple[int, int, int, int] = _ENTRY.unpack_from(
            self._memory, self._index_at + number % CHUNKS * _ENTRY.size
        )
        return entry

    def bytes_of(self, stream: int, offset: int, length: int) -> bytes | None:
        """A copy of a piece of a stream, None where newer output has taken its room."""
        if stream > 1 or length > RING_BYTES:
            return None
        position = offset % RING_BYTES
        part = bytes(self.rings[stream][position : position + length])
        part += bytes(self.rings[stream][: length - len(part)])
        # Looked at after the copy. The keeper writes up to a chunk beyond the head before it moves it.
        room = RING_BYTES - 256 * 1024
        return part if self.field(stream, StreamField.HEAD) - offset <= room else None

    # ---------------------------------------------------------------------------------------------- the snapshot

    def save(self, data: bytes) -> bool:
        """Keeps `data` for a recorder that follows a killed one. A kill in here leaves the one before."""
        if len(data) > SNAPSHOT_BYTES - _SNAPSHOT.size:
            return False
        sequence = max((number for number, _ in self._snapshots()), default=0) + 1
        at = self._snapshots_at + sequence % 2 * SNAPSHOT_BYTES
        self._memory[at + _SNAPSHOT.size : at + _SNAPSHOT.size + len(data)] = data
        _SNAPSHOT.pack_into(self._memory, at, sequence, len(data), zlib.crc32(data))
        return True

    def load(self) -> bytes | None:
        """The newest whole snapshot."""
        return max(self._snapshots(), default=(0, None))[1]

    def _snapshots(self) -> list[tuple[int, bytes]]:
        found = []
        for i in (0, 1):
            at = self._snapshots_at + i * SNAPSHOT_BYTES
            sequence, length, checksum = _SNAPSHOT.unpack_from(self._memory, at)
            if sequence and length <= SNAPSHOT_BYTES - _SNAPSHOT.size:
                data = self._memory[at + _SNAPSHOT.size : at + _SNAPSHOT.size + length]
                if zlib.crc32(data) == checksum:
                    found.append((sequence, data))
        return found
