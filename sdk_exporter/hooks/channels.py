"""Health of a poll channel: the worker's intake (`job_take`) and its stop signals (`stop_channel`).

Told once a minute and at once when its state changes; no record per poll, since a channel may spin at thousands a
second. What the newest answer was (status, content type, or the error in its place) goes with each report: the SDK
drops most bad answers without a word, or with one line of DEBUG.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sdk_exporter import events
from sdk_exporter.contract import CHANNEL_REPORT_SECONDS, ChannelState, ChannelViolation, Key
from sdk_exporter.guard import never_raise
from sdk_exporter.spool import Page

SPIN_POLLS: Final = 40
SPIN_SECONDS: Final = 2.0
"""So many idle polls within so many seconds: nobody holds the poll open, and nobody pauses."""
DEAD_SECONDS: Final = 30.0
DEAD_POLLS: Final = 3
"""Without a valid answer for so long, over so many polls, a channel is dead; told when it comes to that."""
VALID_POLLS: Final = 2
"""So many valid answers in a row end it."""
HOLDS_WITHOUT_ANSWER: Final = 3
"""An open poll counts as unanswered after 30 s and so many times the longest hold so far: the time of three polls."""
LONGEST_POLL_SECONDS: Final = 90.0
"""How long the worker SDK waits for an answer: what an open poll is given before any was ever answered."""
MOVING_SECONDS: Final = 2.0
"""A beat that is later than this says that process or loop did not move: then nobody could poll."""
HOLDS_KEPT: Final = 512
TOO_LARGE_TO_PARSE_BYTES: Final = 1 << 20
"""A stop answer above this is not looked into; a real one is a list of ids."""
CHANGES_PER_REPORT_TIME: Final = 30
"""Most changes of state told at once within CHANNEL_REPORT_SECONDS, so that a flapping channel does not flood."""
CONTENT_TYPE_CHARACTERS: Final = 100
TIMEOUT: Final = "timeout"
"""OpenTelemetry's word for `error.type` where the client's own bound ended the request."""


class Poll:
    """One request on its way, filled in by the HTTP trace."""

    __slots__ = ("_clock", "began", "body", "content_type", "status", "transport")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.began = clock()
        self.status: int | None = None
        self.content_type = ""
        """Of the answer: media type alone, lower-case."""
        self.body = b""
        """The answer as far as the SDK has read it; a reference, not a copy."""
        self.transport: asyncio.BaseTransport | None = None
        """The connection that it went out on."""

    def seconds(self) -> float:
        return self._clock() - self.began


class Channel:
    """Counts since the last report, and the state. Polled on the loop, reported by the beat thread as well."""

    def __init__(self, span_name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._span_name, self._clock = span_name, clock
        # Reentrant: nothing here runs in a signal handler, but `report` is called with it held.
        self._lock = threading.RLock()
        self._state: ChannelState | None = None
        self._is_polled = self._is_always_polled = self._is_open = False
        self._told: tuple[ChannelState, ChannelViolation | None, int] | None = None
        self._polls_without_valid = 0
        self._recovering = 0
        self._changes: deque[float] = deque(maxlen=CHANGES_PER_REPORT_TIME)
        self._since = self._last_report = self._last_ok = clock()
        self._idle: deque[float] = deque(maxlen=SPIN_POLLS)
        self._violation: ChannelViolation | None = None
        self._consecutive_failures = 0
        self._last_tick = self._free_since = self._since
        self._longest_hold: float | None = None
        self._unanswered_since: float | None = None
        self._newest: dict[str, Any] = {}
        """Attributes of the newest poll."""
        self._clear()

    def _clear(self) -> None:
        self._polls = self._empty = self._failures = 0
        self._holds: deque[float] = deque(maxlen=HOLDS_KEPT)

    @never_raise
    def expected(self, *, always: bool = False) -> None:
        """From now on the SDK should poll: no poll at all is news as well.

        `always`: as long as its loop runs, busy or not, so that no poll at all is a failure.
        """
        with self._lock:
            self._is_polled, self._is_always_polled = True, always
            self._since = self._last_report = self._last_ok = self._free_since = self._clock()

    @never_raise
    def begins(self) -> None:
        """A poll is on its way; `answered` or `failed` ends it."""
        with self._lock:
            self._is_open, self._free_since = True, self._clock()

    @never_raise
    def disabled(self) -> None:
        """The SDK has no such channel in this worker, for its whole life."""
        with self._lock:
            self._state = ChannelState.DISABLED
            self._report_if_due()

    @never_raise
    def answered(
        self, poll: Poll, *, is_empty: bool = False, is_idle: bool = False, violation: ChannelViolation | None = None
    ) -> None:
        """An answer that the SDK took. `is_idle`: it brought no work, so that many of them in a row are a spin."""
        with self._lock:
            self._empty += is_empty
            self._consecutive_failures = 0
            self._violation = violation
            self._newest = _told_of(poll)
            self._count(poll, is_valid=violation is None, is_idle=is_idle)

    @never_raise
    def failed(self, poll: Poll, error: BaseException) -> None:
        """No answer, or one that says no."""
        with self._lock:
            self._failures += 1
            self._consecutive_failures += 1
            self._violation = None
            self._newest = {**_told_of(poll), Key.ERROR_TYPE: _error_type(poll, error)}
            self._count(poll, is_valid=False, is_idle=True)

    def _count(self, poll: Poll, *, is_valid: bool, is_idle: bool) -> None:
        now = self._clock()
        self._is_open, self._free_since, self._unanswered_since = False, now, None
        self._polls += 1
        self._holds.append(poll.seconds())
        if is_valid:
            self._longest_hold = max(self._longest_hold or 0.0, poll.seconds())
            self._recovering = VALID_POLLS - 1 if self._is_dead(now) else max(0, self._recovering - 1)
            self._polls_without_valid, self._last_ok = 0, now
        else:
            self._polls_without_valid += 1
        if is_idle:
            self._idle.append(now)
        else:
            self._idle.clear()
        self._state = self._judge(now)
        self._report_if_due()

    def _is_dead(self, now: float) -> bool:
        return self._polls_without_valid >= DEAD_POLLS and now - self._last_ok >= DEAD_SECONDS

    def _condition(self, now: float) -> tuple[ChannelState, ChannelViolation | None, int] | None:
        """What makes a report when it changes; the number counts from death back to health."""
        if self._state is None:
            return None
        return self._state, self._violation, VALID_POLLS if self._is_dead(now) else self._recovering

    def _judge(self, now: float) -> ChannelState:
        if len(self._idle) == SPIN_POLLS and now - self._idle[0] < SPIN_SECONDS:
            return ChannelState.SPINNING
        if self._violation is not None:
            return ChannelState.VIOLATING
        return ChannelState.FAILING if self._consecutive_failures else ChannelState.OK

    @never_raise
    def unread(self) -> None:
        """The worker ends, and an answer to a poll lies in its socket: whatever it handed out is lost."""
        with self._lock:
            self._newest = {**self._newest, Key.CLAIM_UNREAD: True}
            self._report(self._clock())

    @never_raise
    def tick(self) -> None:
        """The beat thread's look: reports go on when the loop is blocked or a poll hangs."""
        with self._lock:
            if self._is_always_polled:
                self._look_for_answers(self._clock())
            self._report_if_due()

    def _look_for_answers(self, now: float) -> None:
        """Whether an answer is overdue. A process that was paused, a loop that a handler blocks or that has ended, owes
        none."""
        if now - self._last_tick > MOVING_SECONDS or _loop_age() > MOVING_SECONDS:
            self._free_since = now
        self._last_tick = now
        hold = LONGEST_POLL_SECONDS if self._longest_hold is None else self._longest_hold
        patience = max(DEAD_SECONDS, HOLDS_WITHOUT_ANSWER * hold) if self._is_open else DEAD_SECONDS
        if self._unanswered_since is None and now - self._free_since >= patience:
            self._unanswered_since = self._free_since
            self._state, self._violation, self._newest = ChannelState.FAILING, None, {}
            self._polls_without_valid = max(self._polls_without_valid, DEAD_POLLS)

    def _report_if_due(self) -> None:
        if self._state is None and not self._is_polled:
            return
        now = self._clock()
        if self._told != self._condition(now) and self._may_tell_change(now):
            self._changes.append(now)
            self._report(now)
        elif now - self._last_report >= CHANNEL_REPORT_SECONDS:
            self._report(now)

    def _may_tell_change(self, now: float) -> bool:
        return len(self._changes) < CHANGES_PER_REPORT_TIME or now - self._changes[0] >= CHANNEL_REPORT_SECONDS

    def _report(self, now: float) -> None:
        window = max(now - self._since, 1.0)  # a rate over less than a second says nothing
        attributes: dict[str, Any] = {
            # Absent before the first poll has ended: nothing speaks for the channel, nor against it.
            Key.CHANNEL_STATE: None if self._state is None else self._state.value,
            Key.CHANNEL_POLLS: self._polls,
            Key.CHANNEL_EMPTY: self._empty,
            Key.CHANNEL_FAILURES: self._failures,
            Key.CHANNEL_CONSECUTIVE_FAILURES: self._consecutive_failures,
            Key.CHANNEL_LAST_OK_AGE_SECONDS: now - self._last_ok,
            Key.CHANNEL_RATE_PER_SECOND: self._polls / window,
            **self._newest,
        }
        if self._unanswered_since is not None:
            attributes[Key.CHANNEL_UNANSWERED_SECONDS] = now - self._unanswered_since
            attributes[Key.CHANNEL_POLLING] = self._is_open
        if self._violation is not None:
            attributes[Key.CHANNEL_VIOLATION] = self._violation.value
        if self._holds:
            attributes[Key.CHANNEL_HOLD_SECONDS_P50] = sorted(self._holds)[len(self._holds) // 2]
        events.point(self._span_name, attributes)
        self._told, self._last_report, self._since = self._condition(now), now, now
        self._clear()


def _loop_age() -> float:
    """Seconds since the event loop beat last; without end where none runs, 0 where that cannot be told."""
    if events.page is None:
        return 0.0
    beat_ns = events.page.get(Page.LOOP_BEAT)
    return time.monotonic() - beat_ns / 1e9 if beat_ns else float("inf")


def _told_of(poll: Poll) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if poll.status is not None:
        told[Key.HTTP_STATUS] = poll.status
    if poll.content_type:
        told[Key.HTTP_CONTENT_TYPE] = [poll.content_type[:CONTENT_TYPE_CHARACTERS]]
    return told


def _error_type(poll: Poll, error: BaseException) -> str:
    if poll.status is not None and poll.status >= 400:
        return str(poll.status)
    # The SDK bounds a poll by cancelling it.
    if isinstance(error, (asyncio.CancelledError, asyncio.TimeoutError)):
        return TIMEOUT
    return events.type_name(type(error))


def violation_of_take(poll: Poll) -> ChannelViolation | None:
    """How an answer of the intake that was thrown away broke its shape; None for a batch of nothing."""
    if poll.content_type != "application/json":
        return ChannelViolation.CONTENT_TYPE
    try:
        answer = json.loads(poll.body)
    except ValueError:
        return ChannelViolation.PARSE
    return None if answer == [] else ChannelViolation.NOT_OBJECT


def violation_of_stop(poll: Poll) -> ChannelViolation | None:
    """What the SDK drops with one line of log at most; a wrong key without any."""
    if poll.content_type != "application/json":
        return ChannelViolation.CONTENT_TYPE
    if len(poll.body) > TOO_LARGE_TO_PARSE_BYTES:
        return None
    try:
        answer = json.loads(poll.body)
    except ValueError:
        return ChannelViolation.PARSE
    if not isinstance(answer, dict):
        return ChannelViolation.NOT_OBJECT
    if "jobsToStop" not in answer:
        return ChannelViolation.WRONG_KEY
    ids = answer["jobsToStop"]
    if not isinstance(ids, list):
        return ChannelViolation.NOT_LIST
    return None if all(isinstance(job_id, str) for job_id in ids) else ChannelViolation.NON_STRING_IDS
