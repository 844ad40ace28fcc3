"""What a caller does wrong, read from its traffic with the invoke API alone. Pure: no clock, no network.

Only what can be seen there is told. A client that keeps waiting without asking, or that throws a result away, looks
like one that has gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from collector.caller.replies import TERMINAL, read_object

POLLS_AFTER_END: Final = 3
"""Looks at a request after its end was told. One or two are normal: clients fetch the result in a call of its own."""
SILENCE_SECONDS: Final = 30.0
"""A caller that has not come back for so long has taken what it got for the result."""


class Habit(str, Enum):
    """What is wrong."""

    PENDING_RETURNED = "pending_returned"
    """A held call was answered with a pending request, and nobody has asked for it again."""
    ENDLESS_POLLING = "endless_polling"
    """The end of the request was told, and the caller goes on asking."""
    DOUBLE_WRAPPED = "double_wrapped"
    """The input holds nothing but an `input` of its own."""
    HELD_CALL_ABANDONED = "held_call_abandoned"
    """The caller hung up before a held call was answered: it does not know the request's id, and the request runs."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call and its answer. `at`, `ended`: seconds on one clock, `ended` is None where the caller hung up.

    `job`: as in the address, or as answered to a submission. `said`: the status answered. `body`: what was sent.
    """

    at: float
    ended: float | None
    route: str
    job: str = ""
    said: str = ""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Seen:
    """A habit, the request that shows it, and one sentence."""

    habit: Habit
    job: str
    sentence: str


def read_habits(exchanges: Iterable[Exchange], now: float) -> list[Seen]:
    """What the exchanges show, in the order of requests. `now` is on their clock."""
    of_job: dict[str, list[Exchange]] = defaultdict(list)
    found: list[Seen] = []
    for one in sorted(exchanges, key=lambda exchange: exchange.at):
        if one.route == "runsync" and one.ended is None:
            found.append(Seen(Habit.HELD_CALL_ABANDONED, one.job, "The caller hung up on a held call without answer."))
        if one.route in ("run", "runsync") and _is_double_wrapped(one.body):
            found.append(Seen(Habit.DOUBLE_WRAPPED, one.job, "The input holds nothing but an `input` of its own."))
        if one.job:
            of_job[one.job].append(one)
    for job, calls in of_job.items():
        found += [seen for read in (_pending_returned, _endless_polling) if (seen := read(job, calls, now))]
    return found


def exchanges_of(events: Iterable[Mapping[str, Any]]) -> list[Exchange]:
    """Exchanges from the event log of the platform stand-in (`/_sim/events`): its `answered` and `abandoned` events."""
    return [
        Exchange(
            at=event["detail"]["began"],
            ended=event["at"] if event["kind"] == "answered" else None,
            route=event["detail"]["route"],
            job=event["job"],
            said=event["detail"].get("said", ""),
            body=event["detail"].get("body", "").encode("utf-8", "surrogatepass"),
        )
        for event in events
        if event["kind"] in ("answered", "abandoned")
    ]


def _pending_returned(job: str, calls: list[Exchange], now: float) -> Seen | None:
    first = calls[0]
    if first.route != "runsync" or first.ended is None or first.said in TERMINAL or len(calls) > 1:
        return None
    if now - first.ended < SILENCE_SECONDS:
        return None
    sentence = f"A held call was answered {first.said or 'without status'}, and the caller has not asked again."
    return Seen(Habit.PENDING_RETURNED, job, sentence)


def _endless_polling(job: str, calls: list[Exchange], now: float) -> Seen | None:
    looks = [call for call in calls if call.route in ("status", "stream")]
    # A request that is told to go on, after its end was told, was sent again under its id: count from there.
    since = max((index + 1 for index, call in enumerate(looks) if call.said not in TERMINAL), default=0)
    told = looks[since:]
    if len(told) - 1 <= POLLS_AFTER_END:
        return None
    sentence = f"The caller was told {told[0].said}, and has asked {len(told) - 1} times since."
    return Seen(Habit.ENDLESS_POLLING, job, sentence)


def _is_double_wrapped(body: bytes) -> bool:
    inner = (read_object(body) or {}).get("input")
    return isinstance(inner, dict) and set(inner) == {"input"}
