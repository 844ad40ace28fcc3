"""What could not be sent before the end: kept on disk where STALLSCOPE_SPOOL_DIR is set, shipped by the next start.

The files hold OTLP requests as they would have gone out, so every text in them is redacted. Two workers on one volume
may ship the same file: the records carry their ids, so a repeat is harmless.
"""

from __future__ import annotations

import itertools
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from sdk_exporter import spool
from sdk_exporter.contract import Loss
from sdk_exporter.recorder.delivery import MOST_BODY_BYTES, Body, Delivery
from sdk_exporter.recorder.settings import DEFAULT_SPOOL_BYTES, RecorderSettings

_SUFFIX: Final = ".stallscope"
_MOST_FILES: Final = 1000
_PAUSE_SECONDS: Final = 30.0
"""After a refusal of the disk."""


def save(folder: str, name: str, bodies: Iterable[Body], limit_bytes: int) -> int:
    """Spans that are on disk now. The oldest files make room; what does not fit then is left out. Raises OSError."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    data, kept = bytearray(), 0
    for body in bodies:
        frame = spool.FRAME.pack(spool.MAGIC, body.spans & 0xFFFF, len(body.data), zlib.crc32(body.data)) + body.data
        if len(data) + len(frame) > limit_bytes:
            break
        data += frame
        kept += body.spans
    if not data:
        return 0
    _make_room(path, limit_bytes - len(data))
    unfinished = path / f".{name}.{os.getpid()}"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        unfinished.rename(path / f"{name}{_SUFFIX}")
    except OSError:
        unfinished.unlink(missing_ok=True)  # disk full: no half file for the next start
        raise
    return kept


def _make_room(folder: Path, room_bytes: int) -> None:
    files = sorted(((file.stat().st_mtime, file) for file in folder.glob(f"*{_SUFFIX}")), key=lambda pair: pair[0])
    total = sum(file.stat().st_size for _, file in files)
    for _, file in files:
        if total <= room_bytes:
            return
        total -= file.stat().st_size
        file.unlink(missing_ok=True)


class Kept:
    """What this worker could not send yet, on disk: a file for each piece."""

    def __init__(self, settings: RecorderSettings) -> None:
        self._folder, self._limit_bytes = settings.spool_dir, settings.spool_bytes
        self._name = settings.boot[0] if settings.boot else os.urandom(16).hex()
        self._numbers = itertools.count()
        self._next_try = 0.0
        self._saving: threading.Thread | None = None
        self._saved = False

    @property
    def possible(self) -> bool:
        """False without a folder, and for a while after the disk has refused."""
        return bool(self._folder) and time.monotonic() >= self._next_try

    def begin(self, bodies: list[Body]) -> None:
        """`add` in a thread of its own, since a volume that hangs must hold up nothing. Only when the one before is
        finished."""

        def run() -> None:
            self._saved = self.add(bodies)

        self._saving = threading.Thread(target=run, name="stallscope-kept", daemon=True)
        self._saving.start()

    def finished(self) -> bool | None:
        """Whether what was begun last is on disk; None while that is not known."""
        return None if self._saving is None or self._saving.is_alive() else self._saved

    def add(self, bodies: Iterable[Body]) -> bool:
        """True when they are on disk, as far as they fit within the bound."""
        if not self._folder:
            return False
        try:
            kept = save(self._folder, f"{self._name}.{os.getpid()}.{next(self._numbers)}", bodies, self._limit_bytes)
        except OSError:
            kept = 0
        if not kept:
            self._next_try = time.monotonic() + _PAUSE_SECONDS
            return False
        return True


def load(file: Path) -> tuple[list[Body], int]:
    """(requests in `file`, damaged places): up to the first damage, a torn end being the usual one."""
    data, bodies, position = file.read_bytes(), list[Body](), 0
    while position + spool.FRAME.size <= len(data):
        magic, spans, length, checksum = spool.FRAME.unpack_from(data, position)
        body = data[position + spool.FRAME.size : position + spool.FRAME.size + length]
        if magic != spool.MAGIC or length > MOST_BODY_BYTES or len(body) != length or zlib.crc32(body) != checksum:
            return bodies, 1
        bodies.append(Body(body, spans))
        position += spool.FRAME.size + length
    return bodies, int(position < len(data))


class Leftovers:
    """Ships what earlier workers left, in a thread of its own: a volume that hangs holds up nothing."""

    def __init__(self, settings: RecorderSettings, lose: Callable[[str, int], None]) -> None:
        self._settings, self._lose = settings, lose
        self._delivery: Delivery | None = None
        self._most_bytes = max(settings.spool_bytes, DEFAULT_SPOOL_BYTES)
        self._thread: threading.Thread | None = None
        if settings.spool_dir:
            self._thread = threading.Thread(
                target=self._ship, args=(Path(settings.spool_dir),), name="stallscope-leftovers", daemon=True
            )
            self._thread.start()

    @property
    def under_way(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def worth_waiting_for(self) -> bool:
        """Whether something is still on its way to a collector that takes it. Workers that live for a second would
        otherwise never ship what the ones before them left."""
        return self.under_way and (self._delivery is None or not self._delivery.failures)

    def _ship(self, folder: Path) -> None:
        done = threading.Event()
        for file in sorted(folder.glob(f"*{_SUFFIX}"))[:_MOST_FILES]:
            try:
                if not stat.S_ISREG(file.stat().st_mode) or file.stat().st_size > self._most_bytes:
                    continue  # whatever it is, we have not written it
                bodies, damaged = load(file)
            except OSError:
                continue  # another worker was faster
            self._lose(str(Loss.SPOOL_TORN), damaged)
            if bodies:
                delivery = self._delivery = self._delivery or Delivery(self._settings, done.set)
                done.clear()
                delivery.submit(bodies)
                while (outcome := delivery.outcome()) is None:
                    done.wait(1.0)
                for reason, count in outcome.losses.items():
                    self._lose(reason, count)
            file.unlink(missing_ok=True)
