"""The health of one poll channel, from its reports. Pure.

Dead: no valid answer for 30 s and over 3 polls, or no poll at all; alive again after 2 valid polls. A worker reports at
once when its channel changes, so its last report holds until the next one. Only the worker can tell that it polls no
more: it knows whether its loop is free to poll, and how long the platform usually holds a poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from collector.watch.sightings import Report
from sdk_exporter.contract import ChannelState

DEAD_SECONDS: Final = 30.0
DEAD_POLLS: Final = 3
VALID_POLLS: Final = 2

State = Literal["ok", "dead", "failing", "disabled", "violating", "spinning"]
_VIOLATIONS: Final = {
    "content_type": "wrong content type",
    "parse": "answers that cannot be parsed",
    "not_object": "answers that are no object",
    "not_list": "ids that are no list",
    "non_string_ids": "ids that are no strings",
    "wrong_key": "answers without the key for ids",
}


@dataclass(frozen=True, slots=True)
class Health:
    """What a channel is. `since_ns`: when it became so, on the worker's clock. `why`: in words for a sentence."""

    state: State
    since_ns: int = 0
    why: str = ""
    report: Report | None = None


@dataclass(slots=True)
class _Streak:
    """A stretch without valid answers, as it is read."""

    first: Report
    newest: Report
    polls: int = 0
    valid: int = 0
    oks: int = 0
    dead: bool = False

    def bad(self, report: Report) -> None:
        self.newest, self.valid, self.oks = report, 0, 0
        grown = 1 if report is self.first else max(report.polls or 1, 0)  # the first may count good polls before it
        self.polls = max(self.polls + grown, report.consecutive_failures or 0)
        self.dead = self.dead or report.unanswered_seconds is not None or self._long_enough(report.at_ns)

    def still(self, until_ns: int) -> None:
        """Nothing else was told until then: the last word holds."""
        self.dead = self.dead or self._long_enough(until_ns)

    def _long_enough(self, until_ns: int) -> bool:
        lasted = (until_ns - self.first.at_ns) / 1e9
        told = self.newest.last_ok_age_seconds
        age = lasted if told is None else max(lasted, told + (until_ns - self.newest.at_ns) / 1e9)
        return age >= DEAD_SECONDS and self.polls >= DEAD_POLLS

    def recovers(self, report: Report) -> bool:
        """Whether this good report ends it. A dead channel needs two good polls; the first is told at once."""
        if not self.oks:
            self.still(report.at_ns)  # until this answer there was none
        self.valid += 1 if not self.oks else max((report.polls or 1) - (report.failures or 0), 0)
        self.oks += 1
        return not self.dead or self.valid >= VALID_POLLS


def health(reports: Sequence[Report], alive_until_ns: int) -> Health:
    """`alive_until_ns`: the worker's newest heartbeat, on the same clock as the reports."""
    streak: _Streak | None = None
    for report in reports:
        if report.state in (ChannelState.FAILING, ChannelState.VIOLATING):
            streak = streak or _Streak(report, report)
            streak.bad(report)
        elif streak and (report.state != ChannelState.OK or streak.recovers(report)):
            streak = None
    if not reports:
        return Health("ok")
    newest = reports[-1]
    if streak:
        if newest is streak.newest:
            streak.still(alive_until_ns)
        return _of_streak(streak)
    if newest.state in (ChannelState.DISABLED, ChannelState.SPINNING):
        state: State = "disabled" if newest.state == ChannelState.DISABLED else "spinning"
        return Health(state, _since(reports), "", newest)
    return Health("ok", newest.at_ns, "", newest)


def _of_streak(streak: _Streak) -> Health:
    last = streak.newest
    state: State = "dead" if streak.dead else "violating" if last.state == ChannelState.VIOLATING else "failing"
    since_ns = streak.first.at_ns
    if streak.first.unanswered_seconds is not None:  # told only once it had lasted
        since_ns -= int(streak.first.unanswered_seconds * 1e9)
    return Health(state, since_ns, _why(last), last)


def _why(report: Report) -> str:
    """`HTTP 200, text/html` where the worker told that, else what it did tell: without an answer the error's type."""
    if report.unanswered_seconds is not None:
        return "polls without an answer" if report.is_polling else "no polls at all"
    kind = report.content_type.partition(";")[0].strip().lower()[:80]
    violation = _VIOLATIONS.get(report.violation, report.violation[:40])
    status = f"HTTP {report.http_status}" if report.http_status is not None else "HTTP 200" if report.violation else ""
    detail = kind if kind and report.violation in ("", "content_type") else violation
    words = ", ".join(part for part in (status, detail) if part)
    return words or report.error_type.rpartition(".")[2][:80] or "polls that fail"


def _since(reports: Sequence[Report]) -> int:
    """When the last unbroken run of the newest state began."""
    since = reports[-1].at_ns
    for report in reversed(reports):
        if report.state != reports[-1].state:
            break
        since = report.at_ns
    return since
