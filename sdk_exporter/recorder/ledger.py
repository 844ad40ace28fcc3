"""What the worker has in hand and what it is doing, kept outside of it. It survives the worker and the recorder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sdk_exporter.contract import ARRAY_ITEMS, JOB_ID_BYTES, SpanName

_MOST_JOBS: Final = 4 * ARRAY_ITEMS
_MOST_OPEN: Final = 1024

IDLE, CLAIMED = "idle", "claimed"

_WORDS: Final = {
    SpanName.BOOT: "boot",
    SpanName.FITNESS_CHECK: "fitness_check",
    SpanName.PRESTART: "prestart",
    SpanName.PRESTART_HOOK: "prestart",
    SpanName.JOB_RUN: "running",
    SpanName.JOB_DELIVER: "delivering",
    SpanName.JOB_STOP: "stopping",
    SpanName.SHUTDOWN: "shutdown",
}
"""Phase words of `stallscope.death.last_phase`, by the span that was open.

`boot` (before `start()`), `fitness_check`, `prestart`, `claimed` (a job in hand that is not run yet), `running`,
`delivering`, `stopping`, `shutdown` (nothing else was going on), `idle` (none of these).
"""


class Ledger:
    """Claims in hand and open phases, from the records as they come. Bounded: the oldest leave first."""

    def __init__(self) -> None:
        self.jobs: dict[str, int] = {}
        self.open: dict[str, tuple[str, str | None, int]] = {}
        """By span id: name, job id, start in Unix ns; in order of start."""
        self.losses: dict[str, int] = {}
        self._crowded: dict[str, None] = {}
        self.runs = 0
        """Handlers that have begun so far."""

    def apply(self, record: Mapping[str, Any]) -> None:
        """Takes note of one record; hostile ones change nothing."""
        kind, job = record.get("k"), record.get("j")
        if kind == "hand" and isinstance(job, str) and len(job) <= JOB_ID_BYTES:
            self.jobs[job] = _whole(record.get("t"))
            _shrink(self.jobs, _MOST_JOBS)
        elif kind == "release" and isinstance(job, str):
            self.jobs.pop(job, None)
        elif kind == "start":
            self._begin(record)
        elif kind == "end" and not _is_failed_boot(record):
            self.open.pop(str(record.get("id")), None)
        elif kind == "loss":
            self.lose(str(record.get("r"))[:64], _whole(record.get("c"), 1))

    def _begin(self, record: Mapping[str, Any]) -> None:
        job = record.get("j")
        name = str(record.get("n"))[:64]
        if name == SpanName.JOB_RUN:
            self.runs += 1
            others = [span_id for span_id, (other, _, _) in self.open.items() if other == SpanName.JOB_RUN]
            if others:
                self._crowded.update(dict.fromkeys([*others, str(record.get("id"))[:32]]))
                _shrink(self._crowded, _MOST_OPEN)
        job = job[:JOB_ID_BYTES] if isinstance(job, str) else None
        self.open[str(record.get("id"))[:32]] = (name, job, _whole(record.get("t")))
        _shrink(self.open, _MOST_OPEN)

    def lose(self, reason: str, count: int = 1) -> None:
        """Counts what does not reach the collector."""
        if count > 0:
            self.losses[reason] = self.losses.get(reason, 0) + count
            _shrink(self.losses, 64)

    @property
    def jobs_in_hand(self) -> list[str]:
        """Ids, oldest first; at most `ARRAY_ITEMS`, the newest."""
        return list(self.jobs)[-ARRAY_ITEMS:]

    @property
    def last_phase(self) -> str:
        """The innermost phase that is open: of several, the one begun last."""
        doing = [_WORDS[name] for name, _, _ in self.open.values() if name in _WORDS]
        inner = [word for word in doing if word != "shutdown"]
        if inner:
            return inner[-1]
        if self.jobs or any(name in (SpanName.JOB_CLAIMED, SpanName.JOB_GATED) for name, _, _ in self.open.values()):
            return CLAIMED
        return doing[-1] if doing else IDLE

    @property
    def is_shutting_down(self) -> bool:
        return any(name == SpanName.SHUTDOWN for name, _, _ in self.open.values())

    def is_alone(self, record: Mapping[str, Any]) -> bool:
        """True where no other handler ran during the run that this record ends."""
        span_id = str(record.get("id"))
        return span_id in self.open and span_id not in self._crowded

    # ----------------------------------------------------------------------------------------- across a restart

    def to_json(self) -> dict[str, Any]:
        return {
            "jobs": self.jobs,
            "open": self.open,
            "losses": self.losses,
            "crowded": list(self._crowded),
            "runs": self.runs,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Goes on from what `to_json` gave to a recorder before us."""
        self.jobs = dict(saved.get("jobs", {}))
        self.open = {key: (value[0], value[1], value[2]) for key, value in saved.get("open", {}).items()}
        self.losses = dict(saved.get("losses", {}))
        self._crowded = dict.fromkeys(saved.get("crowded", ()))
        self.runs = int(saved.get("runs", 0))


def _is_failed_boot(record: Mapping[str, Any]) -> bool:
    """A worker whose boot failed never comes to anything else: it dies in its boot, not idle."""
    return record.get("n") == SpanName.BOOT and record.get("s") == "error"


def _shrink(entries: dict[str, Any], limit: int) -> None:
    while len(entries) > limit:
        del entries[next(iter(entries))]


def _whole(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
