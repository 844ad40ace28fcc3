"""Children of the worker that end badly: engines, tools, whatever it started.

The worker reaps its own children, so what can be known afterwards depends on the kernel: the exit status of a zombie
that a look happens to meet, of any process through its pidfd from Linux 6.15 on, else nothing. Orphans come to the
keeper, which reaps and tells them itself.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Final

from sdk_exporter.recorder.death import exit_facts, oom_kills
from sdk_exporter.recorder.processes import Watched, command_of, descendants, read_process

_LOOK_SECONDS: Final = 1.0
_TOOL_SECONDS: Final = 1.0
"""A child that lived shorter and just failed was a probe (`git`, a compiler), not a part that was lost."""
_UNKNOWN_SECONDS: Final = 10.0
"""One whose status nobody knows is told only when it lived longer: an engine does, a tool does not."""
_MOST: Final = 256
_TERM_SECONDS: Final = 0.3
_PAUSE_PER_LOOK: Final = 50
_FORKS_HELPER: Final = "multiprocessing.resource_tracker"
"""Part of Python, not of the user's program."""
ASKED_TO_END: Final = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})


class Children:
    """Looks once a second at most, and never for more than a fiftieth of the time."""

    def __init__(self, keeper: int) -> None:
        """`keeper`: pid of whoever adopts and tells orphans, 0 for nobody."""
        self._keeper = keeper
        self._known: dict[int, _Child] = {}
        self._commands: dict[int, str] = {}
        self._doubtful: list[dict[str, Any]] = []
        """Those that were asked to end: a worker on its way out does that, so they are told when it lives on."""
        self._next = 0.0
        self._ooms: int | None = None
        self._unclaimed_ooms = 0
        self._backend_seen: float | None = None
        self._is_backend_lost = False
        self._ending_since: float | None = None

    def look(self, worker: int) -> list[dict[str, Any]]:
        """`child` records of those that ended since the last look."""
        now = time.monotonic()
        if now < self._next or worker <= 0:
            return []
        begun = time.thread_time()
        self._meet(worker)
        ended = [child for child in self._known.values() if child.watched.gone()]
        records, self._doubtful = self._doubtful, []
        for child in ended:
            record = self._record(child)
            if record is not None:
                (self._doubtful if record.get("signal") in ASKED_TO_END else records).append(record)
        for child in ended:
            child.watched.close()
            del self._known[child.watched.pid]
        self._see_backend(worker, now, is_lost=bool(records or self._doubtful))
        told = self._with_ooms(records, worker)
        # A worker with thousands of children must not cost a core.
        self._next = now + max(_LOOK_SECONDS, _PAUSE_PER_LOOK * (time.thread_time() - begun))
        return told

    def end(self) -> bool:
        """SIGTERM, then SIGKILL, to those that we have met and to what they have started, for want of a keeper. To be
        called until it answers False: none is left."""
        now = time.monotonic()
        self._known = {pid: child for pid, child in self._known.items() if not child.watched.gone()}
        number = signal.SIGTERM
        if self._ending_since is None:
            self._ending_since = now
        elif now - self._ending_since < _TERM_SECONDS:
            return bool(self._known)
        else:
            number = signal.SIGKILL
        for child in self._known.values():
            for below in [Watched(process.pid) for process in descendants(child.watched.pid)]:
                below.send(number)
                below.close()
            child.watched.send(number)
        return bool(self._known)

    def backend_age(self) -> float | None:
        """Seconds since a program that the worker started was last seen alive. None while there was none to lose: those
        that ended well are forgotten, and forks of the worker itself (the SDK's pings) do not count."""
        return None if self._backend_seen is None else time.monotonic() - self._backend_seen

    def _see_backend(self, worker: int, now: float, *, is_lost: bool) -> None:
        own = command_of(worker)
        alive = (child for child in self._known.values() if now - child.watched.seen_at >= _TOOL_SECONDS)
        commands = {self.command(child.watched.pid) for child in alive}
        if any(command != own and _FORKS_HELPER not in (command or _FORKS_HELPER) for command in commands):
            self._backend_seen, self._is_backend_lost = now, False
        elif is_lost:
            self._is_backend_lost = True
        elif not self._is_backend_lost:
            self._backend_seen = None

    def command(self, pid: object) -> str | None:
        """What a child was started as, if we met it."""
        return self._commands.get(pid) if isinstance(pid, int) else None

    def _meet(self, worker: int) -> None:
        ours = {os.getpid(), *(process.pid for process in descendants(os.getpid()))}
        for process in descendants(worker):
            child = self._known.get(process.pid)
            if child is None and process.state not in "ZX" and process.pid not in ours and len(self._known) < _MOST:
                child = self._known[process.pid] = _Child(process.pid)
            if child is not None and process.exit_status is not None:
                child.status = process.exit_status
            if child is not None and process.state not in "ZX":
                self._commands[process.pid] = command_of(process.pid) or "?"  # again: it may have exec'ed since
        while len(self._commands) > _MOST:
            del self._commands[next(iter(self._commands))]

    def _record(self, child: _Child) -> dict[str, Any] | None:
        """None for a good end, and for those that the keeper tells."""
        if self._keeper and child.adopted_by == self._keeper:
            return None
        lived = time.monotonic() - child.watched.seen_at
        status = child.status if child.status is not None else child.watched.exit_status()
        pid = child.watched.pid
        record: dict[str, Any] = {"k": "child", "t": time.time_ns(), "child": pid, "command": self.command(pid)}
        if status is None:
            return record if lived >= _UNKNOWN_SECONDS else None
        code, signal_word = exit_facts(status)
        if signal_word is None and (code == 0 or lived < _TOOL_SECONDS):
            return None
        return {**record, "exit": code, "signal": signal_word}

    def _with_ooms(self, records: list[dict[str, Any]], worker: int) -> list[dict[str, Any]]:
        """An OOM kill belongs to a child that was killed just now; else it is told without one, at the next look: the
        worker itself may have been the victim, and then its death says so."""
        before, self._ooms = self._ooms, oom_kills()
        new = 0 if before is None or self._ooms is None else self._ooms - before
        unclaimed, self._unclaimed_ooms = self._unclaimed_ooms, 0
        for record in records:
            if (new or unclaimed) and record.get("signal") in ("SIGKILL", None) and not record.get("exit"):
                record["oom"] = True
                new, unclaimed = 0, 0
        if new:
            self._unclaimed_ooms = new
        process = read_process(worker)
        if unclaimed and process is not None and process.state not in "ZX":
            records.append({"k": "child", "t": time.time_ns(), "oom": True})
        return records


class _Child:
    """One that we met alive."""

    def __init__(self, pid: int) -> None:
        self.watched = Watched(pid)
        self.status: int | None = None

    @property
    def adopted_by(self) -> int:
        """Its parent at the end; 0 when that cannot be seen any more."""
        return self.watched.last_parent
