"""What the recorder knows of the processes around it: the launcher's form and the attached one.

The launcher's recorder also stands in for a keeper that died or hangs: it goes on with moving the worker's output.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from sdk_exporter import spool
from sdk_exporter.recorder import kernel
from sdk_exporter.recorder.death import exit_facts
from sdk_exporter.recorder.processes import Watched
from sdk_exporter.recorder.shared import END_ORPHANS, FLUSH_DEADLINE, FLUSH_WISH, Shared
from sdk_exporter.recorder.streams import Stream, pump

_KEEPER_STALE_SECONDS: Final = 2.0
"""Output waits, its reader is ready, and nothing moves: SIGCONT, then SIGKILL, then we take over."""
_KEEPER_LOOK_SECONDS: Final = 0.5
_OWN_FLUSH_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 1.0


class Surroundings(Protocol):
    """What the loop asks of either form."""

    def wait(self, wake: int, seconds: float) -> bool:
        """Until `wake` is readable or the time is over. True: it is."""

    def deadline(self) -> float | None:
        """Monotonic time by which all has to be handed on; None while the worker runs."""

    def last_record(self) -> dict[str, Any] | None:
        """The worker's death, where nobody else can tell it any more; once."""

    @property
    def keeper(self) -> int:
        """Pid of the keeper, 0 where there is none."""

    @property
    def orphans_are_ours(self) -> bool:
        """True where the worker has ended and nobody else ends what it left behind."""


class Launched:
    """Under the keeper, for as long as it lives."""

    def __init__(self, shared: Shared, page: spool.Page, streams: Sequence[Stream], keeper: int) -> None:
        self._shared, self._page, self._streams, self.keeper = shared, page, list(streams), keeper
        self._watched: Watched | None = Watched(keeper)
        self._worker: Watched | None = None
        self._pumped: list[Stream] | None = None
        self._next_look = 0.0
        self._stuck_since: float | None = None
        self._moved: list[int] = []
        self._ended_at: float | None = None
        self._told = False

    @property
    def orphans_are_ours(self) -> bool:
        return self._pumped is not None and bool(self._shared.get(END_ORPHANS)) and self._worker_gone()

    def wait(self, wake: int, seconds: float) -> bool:
        keeper = self._watched.descriptor if self._watched else None
        others = [wake] if keeper is None else [wake, keeper]
        woken = wake in pump(self._pumped or [], others, seconds)
        self._streams = [stream for stream in self._streams if not stream.drop_broken()]
        self._look_at_worker()
        if self._pumped is not None:
            self._pumped = [stream for stream in self._pumped if stream.source >= 0]
        elif os.getppid() != self.keeper:
            self._take_over()
        else:
            self._look_at_keeper()
        return woken

    def deadline(self) -> float | None:
        given = self._shared.get(FLUSH_DEADLINE)
        if given:
            return given / 1e9
        if self._pumped is None or any(not s.ended or s.waiting for s in self._pumped) or not self._worker_gone():
            return None
        if self._ended_at is None:
            self._ended_at = time.monotonic()
        return self._ended_at + self._shared.get(FLUSH_WISH) / 1e9

    def last_record(self) -> dict[str, Any] | None:
        if self._told or self._shared.get(FLUSH_DEADLINE):
            return None
        self._told = True
        record: dict[str, Any] = {"k": "death", "t": time.time_ns(), "worker": self._page.get(spool.Page.WORKER_PID)}
        status = None if self._worker is None else self._worker.exit_status()
        if status is not None:
            code, signal_word = exit_facts(status)
            record.update(exit=code, signal=signal_word)
        return record

    def _look_at_worker(self) -> None:
        pid = self._page.get(spool.Page.WORKER_PID)
        if self._worker is None and pid:
            self._worker = Watched(pid)

    def _worker_gone(self) -> bool:
        return self._worker is None or self._worker.gone()

    def _take_over(self) -> None:
        self._watched = None
        self._pumped = list(self._streams)
        for stream in self._pumped:
            stream.adopt()
        kernel.set_process_name("stallscope-pump")

    def _look_at_keeper(self) -> None:
        """A keeper that lives and does not move: something waits, its reader would take it, and nothing passes."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _KEEPER_LOOK_SECONDS
        moved = [stream.moved for stream in self._streams]
        starved = any((s.waiting or kernel.pending_bytes(s.source)) and s.can_write() for s in self._streams)
        if not starved or moved != self._moved:
            self._stuck_since, self._moved = None, moved
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > 2 * _KEEPER_STALE_SECONDS:
            os.kill(self.keeper, signal.SIGKILL)  # without effect on PID 1, which nobody inside could stop either
        elif now - self._stuck_since > _KEEPER_STALE_SECONDS:
            os.kill(self.keeper, signal.SIGCONT)


class Attached:
    """Beside a worker that called `instrument()` without a launcher: its end is seen, but nothing of how it came."""

    keeper = 0
    orphans_are_ours = False

    def __init__(self, worker: int | None, page: spool.Page, events: int) -> None:
        """`worker` None: it has ended before we began. It and we hold the event file under one number."""
        self._worker = None if worker is None else Watched(worker)
        self._page, self._events = page, events
        self._next_look = 0.0
        self._ended_at: float | None = None
        page.set(spool.Page.KEEPER_PID, os.getpid())

    def wait(self, wake: int, seconds: float) -> bool:
        if self._page.get(spool.Page.KEEPER_PID) != os.getpid():
            os._exit(0)  # taken for dead, and replaced
        wanted = [wake] if wake >= 0 else []
        if self._worker is not None and self._worker.descriptor is not None and self._ended_at is None:
            wanted.append(self._worker.descriptor)
        return wake in select.select(wanted, [], [], seconds)[0]

    def deadline(self) -> float | None:
        if self._ended_at is None and (self._worker is None or self._worker.gone() or self._let_go(self._worker.pid)):
            self._ended_at = time.monotonic()
        return None if self._ended_at is None else self._ended_at + _OWN_FLUSH_SECONDS

    def _let_go(self, worker: int) -> bool:
        """True where the process lives on and can tell us nothing more: it has executed another program, or closed all
        its descriptors. Once a second, since nobody waits for it."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        try:
            theirs = os.stat(f"/proc/{worker}/fd/{self._events}")
        except FileNotFoundError:
            return os.path.exists(f"/proc/{worker}/fd")
        except OSError:
            return False  # not for us to see
        ours = os.fstat(self._events)
        return (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)

    def last_record(self) -> dict[str, Any] | None:
        return None  # `instrument()` alone promises no death: a container may end with its first process at once
