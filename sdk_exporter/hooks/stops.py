"""A stop signal for one job, from its arrival until it is known what became of it.

The SDK cancels the job's task and looks no further: whether the handler stopped, swallowed the cancellation or ran on
is only seen here.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any, Final

from sdk_exporter import events, ledger
from sdk_exporter.contract import Key, SpanName, StopOutcome
from sdk_exporter.events import Attempt
from sdk_exporter.guard import never_raise

IGNORED_SECONDS: Final = 10.0
"""A handler that neither stopped nor returned for so long ignores the signal. If it ends after all, that is told."""
UNKNOWN_AGAIN_SECONDS: Final = 60.0
"""A platform may repeat a signal for a job that is not here 2,000 times a second; it is told once in this time."""
UNKNOWN_KEPT: Final = 256

_open: list[Stop] = []
_unknown: OrderedDict[str, float] = OrderedDict()


class Stop:
    """One signal."""

    __slots__ = ("_attempt", "_began", "_began_ns", "_span", "_was_ignored", "is_over", "was_after_run")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._span = events.begin(SpanName.JOB_STOP, attempt=attempt)
        self._began = time.monotonic()
        self._was_ignored = self.is_over = False
        run = attempt.run
        self.was_after_run = run is not None and run.ended
        """The handler was done when the signal came: what it cancels is at most the delivery."""

    @never_raise
    def resolve(self, outcome: StopOutcome) -> None:
        """What became of it. After `ignored`, one more outcome is told, as a span of its own."""
        if self.is_over:
            return
        self.is_over = True
        if self in _open:
            _open.remove(self)
        self._tell(outcome)

    def _tell(self, outcome: StopOutcome) -> None:
        span = self._span
        if span.ended:
            span = events.begin(SpanName.JOB_STOP, attempt=self._attempt)
        status = "ok" if outcome is StopOutcome.STOPPED else "error"
        seconds = time.monotonic() - self._began
        span.end(status, attributes={Key.STOP_OUTCOME: outcome.value, Key.STOP_SECONDS: seconds})

    @never_raise
    def look(self) -> None:
        """On the beat thread: is it still running?"""
        if not self._was_ignored and not self.is_over and time.monotonic() - self._began >= IGNORED_SECONDS:
            self._was_ignored = True
            self._tell(StopOutcome.IGNORED)


@never_raise
def tick() -> None:
    for stop in list(_open):
        stop.look()


@never_raise
def signalled(job_id: Any, is_stopping: object, task: asyncio.Task[Any] | None) -> None:
    """The SDK has acted on a signal. `is_stopping`: it found a running task, and cancelled it."""
    text = events.job_id_text(job_id)
    attempt = ledger.in_hand.get(text)
    if attempt is None or not is_stopping:
        _not_running(text, attempt)
        return
    if attempt.stop is not None and not attempt.stop.is_over:
        return  # repeated
    stop = attempt.stop = Stop(attempt)
    _open.append(stop)
    if task is not None:
        # A task cancelled before its first step never reaches our wrappers.
        task.add_done_callback(lambda done: _task_done(attempt, stop, done))


@never_raise
def _task_done(attempt: Attempt, stop: Stop, task: asyncio.Task[Any]) -> None:
    if stop.is_over:
        return
    stop.resolve(StopOutcome.STOPPED if task.cancelled() else StopOutcome.SWALLOWED)
    ledger.release(attempt, "stopped")


def _not_running(job_id: str, attempt: Attempt | None) -> None:
    """For a job that is done here, was never here, or is claimed and has no task yet: the SDK drops the signal."""
    now = time.monotonic()
    if now - _unknown.get(job_id, -UNKNOWN_AGAIN_SECONDS) < UNKNOWN_AGAIN_SECONDS:
        return
    _unknown[job_id] = now
    while len(_unknown) > UNKNOWN_KEPT:
        _unknown.popitem(last=False)
    outcome = StopOutcome.LATE if attempt is None and ledger.was_here(job_id) else StopOutcome.UNKNOWN_JOB
    events.point(
        SpanName.JOB_STOP,
        {Key.STOP_OUTCOME: outcome.value, Key.STOP_SECONDS: 0.0},
        attempt=attempt or Attempt(job_id),
        status="error",
    )


@never_raise
def handler_ended(attempt: Attempt, error: BaseException | None) -> None:
    """The handler is done, one way or another, while a signal for it is open.

    One that returned is judged in `job_ended`: the cancellation may still hit the delivery.
    """
    stop = attempt.stop
    if stop is None or stop.is_over or stop.was_after_run or error is None:
        return
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        stop.resolve(StopOutcome.STOPPED)
    else:
        stop.resolve(StopOutcome.CLEANUP_FAILED)


@never_raise
def job_ended(attempt: Attempt, error: BaseException | None) -> None:
    """The SDK is done with the job. What the handler did not answer is answered now."""
    stop = attempt.stop
    if stop is None or stop.is_over:
        return
    run = attempt.run
    if stop.was_after_run or (error is not None and run is not None and run.ended):
        stop.resolve(StopOutcome.LATE)
    elif error is None:
        stop.resolve(StopOutcome.SWALLOWED)
    else:
        stop.resolve(StopOutcome.STOPPED)
