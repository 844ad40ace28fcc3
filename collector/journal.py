"""A journal on the local disk: what was acknowledged and is not in the store yet. Restarts and kills replay it.

Files of records, appended and never changed: length, CRC-32, spans, time of arrival, then the request. `position` names
the first record that is not stored, and the end of the batch that was being stored: tried again after a crash it is the
same batch with the same token, which the store keeps once. A record that is torn or damaged ends its file; nothing
stops the start.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import struct
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from .errors import StallscopeError, StoreUnavailable
from .metrics import Metrics
from .settings import SettingsError
from .writer import BYTES_PER_INSERT, RETRY_SECONDS, SPANS_PER_INSERT, Batch, Request

log = logging.getLogger(__name__)
Result = TypeVar("Result")

SEGMENT_BYTES: Final = 32 << 20
"""A file is closed here; it is deleted when all of it is stored."""
FILL_SPANS: Final = 8_000
"""An insert of as many spans costs the store half of what small ones do; a batch waits for them,"""
FILL_SECONDS: Final = 0.05
"""but no longer than this, since nobody sees what only the journal has."""
_HEADER: Final = struct.Struct("<IIIQ")  # bytes after it, their CRC-32, spans, Unix milliseconds of arrival
_RECORD_BYTES: Final = 512 << 20
"""More than any request may be: a length above it is damage."""
_SUFFIX: Final = ".journal"
_VECTORS: Final = 1_000  # IOV_MAX is 1,024


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A record's file and its offset there."""

    segment: int = 0
    offset: int = 0


@dataclass(slots=True)
class _Adding:
    pieces: list[bytes]
    spans: int
    safe: asyncio.Future[None]

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class _Read:
    batch: Batch
    end: Place
    spans: int


@dataclass(slots=True)
class Journal:
    """A `writer.Backlog` on disk. One process has it at a time."""

    folder: Path
    limit_bytes: int
    metrics: Metrics
    _own_name: str = ""
    _lock: int = -1
    _file: int = -1
    _end: Place = Place()  # where the next record goes: everything before is on the disk
    _done: Place = Place()  # everything before is in the store
    _planned: Place | None = None  # end of the batch that is being stored
    _reading: _Read | None = None
    _sizes: dict[int, int] = field(default_factory=dict)  # bytes of each file
    _spans: int = 0  # that wait; an estimate for the fill, exact while nothing is damaged
    _oldest_ms: int | None = None
    _adding: list[_Adding] = field(default_factory=list)
    _committing: asyncio.Task[None] | None = None
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _tries: int = 0
    _closed: bool = False
    _disk: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="journal-append")
    )
    _reader: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="journal-read")
    )

    # ------------------------------------------------------------------------------------------------------- opening

    async def open(self) -> None:
        """Take the folder and find what a process before left. Raises SettingsError where it cannot be used."""
        try:
            await self._on(self._disk, self._recover)
        except BlockingIOError:
            raise SettingsError(
                f"STALLSCOPE_JOURNAL_DIR: another process has {self.folder}; each collector needs one of its own"
            ) from None
        except OSError as error:
            raise SettingsError(f"STALLSCOPE_JOURNAL_DIR: cannot use {self.folder}: {error.strerror}") from error
        self.metrics.journal_bytes.set_function(lambda: float(self.bytes_waiting))
        self.metrics.journal_age.set_function(lambda: self.age_seconds)

    def _recover(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._own_name, self._done, self._planned = self._read_position()
        found = sorted(int(entry.stem) for entry in self.folder.glob(f"*{_SUFFIX}") if entry.stem.isdigit())
        for segment in found:
            if segment < self._done.segment:
                self._path(segment).unlink()
                continue
            self._sizes[segment] = self._sound_bytes(segment)
        last = max(found, default=self._done.segment)
        # Never appended to an old file: what is torn at its end stays there.
        self._end = Place(last + 1, 0)
        if self._spans:
            log.warning("the journal holds %d spans that are not stored yet", self._spans)

    def _read_position(self) -> tuple[str, Place, Place | None]:
        try:
            said = json.loads((self.folder / "position").read_text(encoding="utf-8"))
            planned = Place(*said["planned"]) if said["planned"] else None
            return str(said["name"]), Place(*said["done"]), planned
        except FileNotFoundError:
            return uuid.uuid4().hex, Place(), None
        except (ValueError, KeyError, TypeError):
            log.exception("the journal's position cannot be read: all that it holds is stored again")
            return uuid.uuid4().hex, Place(), None

    def _sound_bytes(self, segment: int) -> int:
        """How much of a file can be read; counts what waits in it."""
        size, offset = self._path(segment).stat().st_size, 0
        with self._path(segment).open("rb") as file:
            while header := file.read(_HEADER.size):
                record = _record(header, file.read) if len(header) == _HEADER.size else None
                if record is None:
                    log.warning("%s ends in a torn or damaged record at %d of %d bytes", file.name, offset, size)
                    break
                if Place(segment, offset) >= self._done:
                    self._spans += record.spans
                    self._oldest_ms = self._oldest_ms or record.arrived_ms
                offset = file.tell()
        return offset

    # ------------------------------------------------------------------------------------------------------ appending

    async def add(self, request: Request) -> None:
        """Return when the record is on the disk. Raises StoreUnavailable where the journal or its disk is full."""
        if self._closed:
            raise StoreUnavailable("this process is stopping")
        pieces = _pieces(request)
        size = sum(map(len, pieces))
        if self.bytes_waiting + sum(adding.size for adding in self._adding) + size > self.limit_bytes:
            raise StoreUnavailable("the store does not answer and the journal is full (STALLSCOPE_JOURNAL_BYTES)")
        adding = _Adding(pieces, request.spans, asyncio.get_running_loop().create_future())
        self._adding.append(adding)
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_all(), name="journal-commit")
        await adding.safe

    async def _commit_all(self) -> None:
        """What came while the disk was busy goes together: one wait for the disk serves all."""
        while self._adding:
            together, self._adding = self._adding, []
            error: OSError | None = None
            try:
                await self._on(self._disk, lambda together=together: self._append(together))  # type: ignore[misc]
            except OSError as raised:
                log.error("the journal cannot be written: %s", raised.strerror)  # noqa: TRY400 (no traceback: a full disk)
                error = raised
            for adding in together:
                if error is None:
                    self._spans += adding.spans
                if adding.safe.done():
                    continue
                if error is None:
                    adding.safe.set_result(None)
                else:
                    adding.safe.set_exception(StoreUnavailable(f"the journal cannot be written: {error.strerror}"))
            self._came.set()

    def _append(self, together: Sequence[_Adding]) -> None:
        if self._file >= 0 and self._end.offset >= SEGMENT_BYTES:
            self._leave_segment()
        if self._file < 0:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            self._file = os.open(self._path(self._end.segment), flags, 0o600)
            self._sync_folder()
        pieces = [piece for adding in together for piece in adding.pieces]
        size = sum(map(len, pieces))
        try:
            for start in range(0, len(pieces), _VECTORS):
                _write_all(self._file, pieces[start : start + _VECTORS])
            os.fdatasync(self._file)
        except OSError:
            # What the disk has of it is unknown from here on: nothing more goes into this file.
            os.truncate(self._file, self._end.offset)
            self._leave_segment()
            raise
        if self._oldest_ms is None:
            self._oldest_ms = _now_ms()
        self._end = Place(self._end.segment, self._end.offset + size)
        self._sizes[self._end.segment] = self._end.offset

    def _leave_segment(self) -> None:
        os.close(self._file)
        self._file = -1
        self._end = Place(self._end.segment + 1, 0)

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # -------------------------------------------------------------------------------------------------------- storing

    async def next(self) -> Batch | None:
        """The batch that could not be stored before, else the next records: many, or what there is after a moment."""
        if self._reading is not None:
            return None if self._closed and self._tries else self._reading.batch
        while True:
            while not self.bytes_waiting:
                if self._closed:
                    return None
                self._came.clear()
                await self._came.wait()
            await self._fill()
            self._reading = await self._on(self._reader, self._read_batch)
            if self._reading.batch.requests:
                return self._reading.batch
            await self.settle(self._reading.batch, None)  # nothing but damage was there

    async def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + FILL_SECONDS
        while self._spans < FILL_SPANS and loop.time() < until:
            if self._planned is not None or self._closed:
                return
            await asyncio.sleep(FILL_SECONDS / 10)

    def _read_batch(self) -> _Read:
        start = self._next_record()
        end_of_file = self._sizes[start.segment]
        requests: list[Request] = []
        spans = size = 0
        with self._path(start.segment).open("rb") as file:
            file.seek(start.offset)
            while file.tell() < end_of_file:
                place = Place(start.segment, file.tell())
                full = spans >= SPANS_PER_INSERT or size >= BYTES_PER_INSERT
                if requests and (place >= self._planned if self._planned else full):
                    break
                record = _record(file.read(_HEADER.size), file.read)
                if record is None:  # damaged since it was found sound: the rest of the file is lost
                    log.error("%s is damaged at %d", file.name, place.offset)
                    self._sizes[start.segment] = place.offset
                    break
                if not requests:
                    self._oldest_ms = record.arrived_ms
                requests.append(record.request)
                spans += record.spans
                size += record.request.size
            end = Place(start.segment, file.tell())
        self._planned = end
        self._write_position()
        token = f"{self._own_name}-{start.segment}-{start.offset}-{end.offset}"
        return _Read(Batch(requests, token), end, spans)

    def _next_record(self) -> Place:
        segment = min(segment for segment, size in self._waiting_in() if size)
        return max(self._done, Place(segment, 0))

    async def settle(self, batch: Batch, error: StallscopeError | None) -> None:
        """Stored: forget it. Else wait a little, and `next` gives it again."""
        reading = self._reading
        if error is not None:
            if self._tries == 0:
                log.warning("the journal holds %d spans: %s", self._spans, error)
            pause = RETRY_SECONDS[min(self._tries, len(RETRY_SECONDS) - 1)]
            self._tries += 1
            if not self._closed:
                await asyncio.sleep(pause)
            return
        self._tries = 0
        if reading is not None:
            self._done, self._planned = reading.end, None
            self._spans -= reading.spans
        self._reading = None
        if not self.bytes_waiting:
            self._oldest_ms = None
        await self._on(self._reader, self._forget_stored)

    def _forget_stored(self) -> None:
        segment = self._done.segment
        if segment < self._end.segment and self._done.offset >= self._sizes.get(segment, 0):
            self._done = Place(segment + 1, 0)  # nothing more goes into that file
        self._write_position()
        for segment in [one for one in self._sizes if one < self._done.segment]:
            del self._sizes[segment]
            self._path(segment).unlink(missing_ok=True)

    def _write_position(self) -> None:
        """Not waited for the disk: after a loss of power a few batches are stored again, and shown once."""
        planned = [self._planned.segment, self._planned.offset] if self._planned else None
        said = {"name": self._own_name, "done": [self._done.segment, self._done.offset], "planned": planned}
        written = self.folder / "position.new"
        try:
            written.write_text(json.dumps(said), encoding="utf-8")
            written.replace(self.folder / "position")
        except OSError as error:  # a full disk; what is stored twice is shown once
            log.warning("the journal's position cannot be written: %s", error.strerror)

    async def close(self) -> None:
        """Take nothing more; what cannot be stored in time stays on the disk."""
        self._closed = True
        self._came.set()

    async def release(self) -> None:
        """Let go of the folder."""
        if self._committing is not None:
            await asyncio.gather(self._committing, return_exceptions=True)
        self._disk.shutdown()
        self._reader.shutdown()
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    # -------------------------------------------------------------------------------------------------- what is told

    @property
    def bytes_waiting(self) -> int:
        """Bytes of records that are not stored yet."""
        return sum(size for _, size in self._waiting_in())

    def _waiting_in(self) -> list[tuple[int, int]]:
        """(file, bytes in it that are not stored)."""
        done = self._done
        return [
            (segment, size - done.offset if segment == done.segment else size)
            for segment, size in list(self._sizes.items())
            if segment >= done.segment
        ]

    @property
    def age_seconds(self) -> float:
        """How long the oldest record has waited; 0 where none waits."""
        return max(0.0, (_now_ms() - self._oldest_ms) / 1e3) if self._oldest_ms is not None else 0.0

    def _path(self, segment: int) -> Path:
        return self.folder / f"{segment:012d}{_SUFFIX}"

    async def _on(self, pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


@dataclass(frozen=True, slots=True)
class _Record:
    request: Request
    spans: int
    arrived_ms: int


def _pieces(request: Request) -> list[bytes]:
    news = json.dumps([request.tenant, sorted(request.job_ids), sorted(request.worker_boots)]).encode()
    body = [len(news).to_bytes(4, "little"), news, *request.pieces]
    checksum = size = 0
    for piece in body:
        checksum = zlib.crc32(piece, checksum)
        size += len(piece)
    return [_HEADER.pack(size, checksum, request.spans, _now_ms()), *body]


def _record(header: bytes, read: Callable[[int], bytes]) -> _Record | None:
    """The record that `header` begins. None where it is not whole and sound."""
    if len(header) < _HEADER.size:
        return None
    size, checksum, spans, arrived_ms = _HEADER.unpack(header)
    body = read(size) if size <= _RECORD_BYTES else b""
    if len(body) != size or size < 4 or zlib.crc32(body) != checksum:
        return None
    news_end = 4 + int.from_bytes(body[:4], "little")
    tenant, job_ids, worker_boots = json.loads(body[4:news_end])
    boots = [(worker, boot) for worker, boot in worker_boots]
    return _Record(Request(tenant, [body[news_end:]], spans, job_ids, boots), spans, arrived_ms)


def _write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    written, size = os.writev(descriptor, pieces), sum(map(len, pieces))
    if written < size:  # a disk that fills up, or a signal: the rest, or the error that stopped it
        rest = memoryview(b"".join(pieces))[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
