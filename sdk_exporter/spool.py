"""The hand-over from worker to recorder: one `write()` per event into an append-only file that outlives the worker.

The file is the queue. The worker appends frames; the recorder reads from the offset that it last acknowledged and
acknowledges only after handing on, so a killed recorder repeats and never loses. Records carry ids made in the worker,
which is what makes a repeat harmless.

Frame: magic u16, flags u16, length u32, crc32(payload) u32, payload (JSON, UTF-8). A writer that dies inside `write()`
can leave a torn frame even in a file; the reader skips to the next magic and counts.

Records (JSON objects; times are Unix nanoseconds, ids lower-case hex):

    {"k": "start", "n": name, "id": span id, "tr": trace id, "pa": parent id?, "t": ns, "j": job id?, "a": {...}}
    {"k": "end",   the same, and "t0": ns of the start, "s": "ok"|"error"|"unset"?,
                   "x": {"type", "message", "stacktrace"}?}
    {"k": "point", "n", "id", "tr", "pa"?, "t", "j"?, "a", "s"?, "x"?}      an instant
    {"k": "hand",  "j": job id, "t"}        the worker holds this job now
    {"k": "release", "j": job id, "t", "o"} and now it does not; o: delivered|refused|undeliverable|stopped|cancelled|
                                            prestart_failed|claim_lost|failed
    {"k": "resource", "a": {...}}           facts about the worker, merged into the OTLP resource
    {"k": "loss",  "r": reason, "c": count}
    {"k": "out",   "st": "stdout"|"stderr", "j": job id?, "t", "b": text}   a piece of Python's own streams, raw: the
                                            reader redacts what it keeps of them as one text
    {"k": "out",   "st", "j"?, "t", "w": bytes}   so many bytes were written after a `job.run` began, and withheld
    {"k": "child", "child": pid, "exit": code?, "signal": name?, "command"?, "oom"?, "t"}      a child process ended
    {"k": "death", "worker": pid, "exit", "signal", "oom", ..., "t"}        the worker ended      (keeper's)

`start`, `end` and `point` may have "li": [trace id, span id], a link: the first span of an attempt at a job points so
to its worker's boot. Every record has "t" and "pid". `end` and `start` of one thing share "id".
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

try:
    from fcntl import fcntl as _control
except ImportError:  # no seals on Windows, and no recorder
    _control = None  # type: ignore[assignment]

FRAME: Final = struct.Struct("<HHII")
MAGIC: Final = 0x5C0E
_MAGIC_BYTES: Final = MAGIC.to_bytes(2, "little")

ENVIRONMENT_KEY: Final = "STALLSCOPE_HANDOVER"
"""event fd, -1, page fd, event file's st_dev, st_ino, keeper's pid: what the recorder side gives to the worker. A
grandchild may hold another file under the same number, hence the identity."""

PAGE_BYTES: Final = 4096
DEFAULT_CAP_BYTES: Final = 64 << 20
"""Unacknowledged bytes of events after which the worker drops and counts."""
OUTPUT_SHARE: Final = 4
"""One part in so many of the cap is where output ends: a chatty worker must not take the room of its own evidence."""
_LOOK_BYTES: Final = 64 * 1024
RECORD_BYTES: Final = 256 * 1024
"""Largest payload of one record; a longer one is dropped and counted (`too_large`)."""

_ADD_SEALS: Final = 1033
_GET_SEALS: Final = 1034
SEALS: Final = 0x1 | 0x2  # F_SEAL_SEAL, F_SEAL_SHRINK
"""What the event file is sealed with: never shorter, and no seal more. Also how it is told from a file of the user's
under the same number, at a third of what `fstat` costs."""

# What every record costs, bound once.
_HEAD: Final = FRAME.pack
_checksum: Final = zlib.crc32
_append: Final = os.write

# `json.dumps` with options of its own makes an encoder per call: half of what a record costs the job.
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), default=str)
_DECODER: Final = json.JSONDecoder()
quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii
"""A string as JSON, in ASCII."""


def _text_maker() -> Callable[[Mapping[str, Any]], str]:
    """`JSONEncoder.encode` without its preparations for each call, a fifth of the time; where Python has changed them,
    the encoder as it is."""
    try:
        # No check for circles: they end in a RecursionError, and the record is dropped.
        chunks = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
            None, str, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
        )

        def text(record: Mapping[str, Any]) -> str:
            return "".join(chunks(record, 0))

        probe = {"a": [1, 2.5, None, True, "\u00e9"], "b": {"c": -1}}
        if text(probe) == _ENCODER.encode(probe):
            return text
    except (AttributeError, TypeError):
        pass
    return _ENCODER.encode


text_of: Final = _text_maker()
"""A mapping as JSON, in ASCII. Values that JSON does not know are told by their `str()`."""


def encode(record: Mapping[str, Any]) -> bytes:
    """One frame."""
    payload = text_of(record).encode("ascii")
    return FRAME.pack(MAGIC, 0, len(payload), zlib.crc32(payload)) + payload


def decode(data: bytes, *, at_end: bool) -> tuple[list[dict[str, Any]], int, int]:
    """Frames in `data` as (records, bytes consumed, damaged places).

    Unless `at_end`, an incomplete last frame is left for the next read. A damaged frame is skipped to the next magic.
    """
    placed, consumed, damaged = decode_placed(data, at_end=at_end)
    return [record for _, record in placed], consumed, damaged


def decode_placed(
    data: bytes, *, at_end: bool, most: int = sys.maxsize
) -> tuple[list[tuple[int, dict[str, Any]]], int, int]:
    """The same for the first `most` records, each with the place in `data` where its frame begins."""
    records: list[tuple[int, dict[str, Any]]] = []
    position, damaged, size = 0, 0, len(data)
    while position + FRAME.size <= size and len(records) < most:
        magic, _, length, checksum = FRAME.unpack_from(data, position)
        end = position + FRAME.size + length
        if magic == MAGIC and end <= size:
            payload = data[position + FRAME.size : end]
            if zlib.crc32(payload) == checksum:
                record = _parse(payload)
                if record is None:
                    damaged += 1
                else:
                    records.append((position, record))
                position = end
                continue
        # Still being written, unless another frame follows: JSON holds no control character, so the magic cannot occur
        # inside a payload (it can inside a header, hence the search behind it).
        incomplete = magic == MAGIC and length <= RECORD_BYTES and end > size and not at_end
        if incomplete and data.find(_MAGIC_BYTES, position + FRAME.size) < 0:
            break
        following = data.find(_MAGIC_BYTES, position + 2)
        damaged += 1
        position = following if following >= 0 else size
    return records, position, damaged


def _parse(payload: bytes) -> dict[str, Any] | None:
    try:
        # Bytes would be searched for their encoding first.
        record = _DECODER.decode(payload.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


class Page:
    """The shared page between worker and recorder: offsets of unsigned 64-bit words, no lock, one writer each.

    Beats are `time.monotonic_ns()` of the same machine, so the recorder works out the ages itself.
    """

    ACKNOWLEDGED: Final = 16  # bytes of the event file that the recorder has handed on   (recorder)
    RECORDER_BEAT: Final = 24  # (recorder)
    KEEPER_PID: Final = 32  # (keeper, or the recorder itself in the one-line form)
    WORKER_PID: Final = 40  # (keeper, or the worker itself in the one-line form)
    FINISHED: Final = 48  # 1: nothing more will come                                     (keeper)
    RUN_BEGAN: Final = 56  # Unix ns at which the first handler began; 0: none            (worker)
    PROCESS_BEAT: Final = 64  # a daemon thread of the worker                             (worker)
    LOOP_BEAT: Final = 72  # the event loop; 0: no loop runs yet                          (worker)
    PROGRESS_BEAT: Final = 80  # handler activity                                         (worker)
    DROPPED: Final = 96  # records that the worker could not write, so far                (worker)

    def __init__(self, descriptor: int, *, writable: bool = True) -> None:
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        # As words of this machine: both ends are on it, and `struct` takes three times as long.
        self._words = memoryview(mmap.mmap(descriptor, PAGE_BYTES, mmap.MAP_SHARED, access)).cast("Q")

    def get(self, offset: int) -> int:
        return self._words[offset >> 3]

    def set(self, offset: int, value: int) -> None:
        self._words[offset >> 3] = value


def seal(descriptor: int) -> None:
    """Marks a memory file that was made with MFD_ALLOW_SEALING as ours; any other file stays as it is."""
    try:
        _control(descriptor, _ADD_SEALS, SEALS)
    except (OSError, TypeError):
        pass


class Writer:
    """The worker's end. `write` never raises and never waits: what cannot be written is counted.

    O_APPEND makes each `write()` atomic among threads and forked children. Nobody is woken: the recorder looks ten
    times a second anyway, and gathers for as long.
    """

    def __init__(self, descriptor: int, page: Page, *, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._descriptor, self._page, self._cap_bytes = descriptor, page, cap_bytes
        status = os.fstat(descriptor)
        self._device, self._inode = status.st_dev, status.st_ino
        self._sealed = _is_sealed(descriptor)
        self._output_cap_bytes = cap_bytes // OUTPUT_SHARE
        self._waiting = self._unlooked = 0
        self._look_bytes = min(_LOOK_BYTES, cap_bytes // 256)
        """Bytes that are written before the size of the file is looked at again."""
        self.dropped = 0

    def write(self, record: Mapping[str, Any]) -> bool:
        """True when the record is in the file, where the worker's death cannot take it back."""
        try:
            text = text_of(record)
        except Exception:  # noqa: BLE001 - values of the user's, whose `__str__` may do anything
            return self._drop()
        return self.write_text(text, output=record.get("k") == "out")

    def write_text(self, text: str, *, output: bool = False) -> bool:
        """The same for a record that is JSON already, in ASCII; `output`: of kind `out`."""
        try:
            payload = text.encode("ascii")
            size = len(payload)
            # A program that closes all descriptors (to become a daemon) may have a file of its own under our number.
            if not (_control(self._descriptor, _GET_SEALS) == SEALS if self._sealed else self._is_ours()):
                return self._drop()
            self._unlooked -= size
            if self._unlooked < 0:
                self._look()
            if self._waiting > (self._output_cap_bytes if output else self._cap_bytes) or size > RECORD_BYTES:
                self._unlooked = 0
                return self._drop()
            frame = _HEAD(MAGIC, 0, size, _checksum(payload)) + payload
            return _append(self._descriptor, frame) == len(frame) or self._drop()
        except Exception:  # noqa: BLE001 - a guest never raises into the worker; the loss is counted
            return self._drop()

    def _look(self) -> None:
        """How much waits. The file's own size, not a count of ours: forked children write to it as well."""
        self._waiting = os.lseek(self._descriptor, 0, os.SEEK_END) - self._page.get(Page.ACKNOWLEDGED)
        self._unlooked = self._look_bytes

    def _is_ours(self) -> bool:
        return _is(self._descriptor, self._device, self._inode)

    def _drop(self) -> bool:
        self.dropped += 1
        try:
            # Keeper, recorder and forked children count in the same word.
            self._page.set(Page.DROPPED, self._page.get(Page.DROPPED) + 1)
        except (ValueError, OSError):
            pass
        return False


def _is_sealed(descriptor: int) -> bool:
    try:
        return bool(_control(descriptor, _GET_SEALS) == SEALS)
    except (OSError, TypeError):
        return False


def _is(descriptor: int, device: int, inode: int) -> bool:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (device, inode)


def from_environment(environ: Mapping[str, str], *, cap_bytes: int = DEFAULT_CAP_BYTES) -> tuple[Writer, Page] | None:
    """The writer that a launcher above us has prepared, or None where there is none (or it is not ours).

    A spawned child (`close_fds`) reaches the files through the keeper's /proc entry.
    """
    try:
        events, _, page, device, inode, keeper = map(int, environ[ENVIRONMENT_KEY].split(","))
        if not _is(events, device, inode):
            events = os.open(f"/proc/{keeper}/fd/{events}", os.O_WRONLY | os.O_APPEND)
            page = os.open(f"/proc/{keeper}/fd/{page}", os.O_RDWR)
            if not _is(events, device, inode):
                return None
        shared = Page(page)
        return Writer(events, shared, cap_bytes=cap_bytes), shared
    except (KeyError, ValueError, OSError):
        return None
