"""Rules about requests for which a stop was signalled. They come first: a cancelled request has no result."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from collector.diagnosis.answer import Confidence, State
from collector.diagnosis.lifecycle_case import (
    SILENCE_POSSIBLE_SECONDS,
    Case,
    Reading,
    Ruling,
    absence,
    claim_item,
    event,
    given,
    read,
    ruling,
)
from collector.diagnosis.lifecycle_words import between, clock, duration, raised
from collector.diagnosis.records import Record
from sdk_exporter.contract import ChannelState, Key, StopOutcome

STOP_GRACE_SECONDS: Final = 10.0
"""How long a handler may clean up before a stop counts as ignored."""

_CODES: Final = {
    StopOutcome.STOPPED.value: "stopped",
    StopOutcome.SWALLOWED.value: "stop_swallowed",
    StopOutcome.IGNORED.value: "stop_ignored",
    StopOutcome.LATE.value: "stop_late",
    StopOutcome.CLEANUP_FAILED.value: "stop_cleanup_failed",
}
_ENDED: Final = frozenset({"CancelledError", "GeneratorExit"})


def stop_told(case: Case) -> Ruling | None:
    """The worker said what became of the stop.

    After `ignored` one more word may come, which counts. After any other word it is over: the platform may repeat its
    signal for a request that has left, which then is `late` and changes nothing.
    """
    told = [s for s in case.attempt.stops if s.text(Key.STOP_OUTCOME) in _CODES and not _after_completion(case, s)]
    if not told:
        return None
    told.sort(key=lambda record: (record.last_ns, record.span_id))
    over = [stop for stop in told if stop.text(Key.STOP_OUTCOME) != StopOutcome.IGNORED]
    stop = over[0] if over else told[-1]
    return _stopped(case, stop, _CODES[stop.text(Key.STOP_OUTCOME)], "certain", inferred=False)


def _after_completion(case: Case, stop: Record) -> bool:
    """Whether the signal came after the result, and the platform itself counts the request as completed."""
    delivered = case.attempt.delivered
    if delivered is None or stop.start_ns < delivered.last_ns:
        return False
    told = (*case.evidence.requests, *case.evidence.polls)
    return any(record.text(Key.CALLER_STATUS).upper() == "COMPLETED" for record in told)


def stop_pending(case: Case) -> Ruling | None:
    """The stop was signalled and the worker has not said what became of it: what the handler did tells."""
    known = (*_CODES, StopOutcome.UNKNOWN_JOB.value)
    told = [stop for stop in case.attempt.stops if stop.text(Key.STOP_OUTCOME) not in known]
    if not told:
        return None
    stop, run = told[0], case.attempt.run
    if run is not None and run.ended:
        return _stopped(case, stop, _code_of_end(case, stop, run), "likely", inferred=True)
    if case.gone or run is None:
        return _stopped(case, stop, "stopped", "likely", inferred=True)
    waited = case.since(stop.start)
    if waited < STOP_GRACE_SECONDS:
        sentence = f"This request is being stopped: {case.worker} received the stop signal {duration(waited)} ago."
        items = (event(stop, "stop signal received", at=stop.start),)
        return ruling("running", sentence, _cancelled(), items, state="running", final=False)
    confidence: Confidence = "likely" if waited >= SILENCE_POSSIBLE_SECONDS else "possible"
    return _stopped(case, stop, "stop_ignored", confidence, inferred=True)


def _code_of_end(case: Case, stop: Record, run: Record) -> str:
    if run.last_ns < stop.start_ns:
        return "stop_late"
    if run.error_type in _ENDED:
        return "stopped"
    return "stop_cleanup_failed" if run.failed else "stop_swallowed"


def stop_signal_lost(case: Case) -> Ruling | None:
    """The request was cancelled, and no stop landed in its handler."""
    unknown = [s for s in case.attempt.stops if s.text(Key.STOP_OUTCOME) == StopOutcome.UNKNOWN_JOB]
    unknown = [s for s in unknown if not _over_before(case, s)]
    strays = [s for s in case.evidence.stray_stops if not _over_before(case, s) and s.start_ns >= case.attempt.start_ns]
    cancelled = _cancelled_by_caller(case)
    for stop in (*unknown, *strays):
        text = f"a stop signal came at {clock(stop.start)} and was dropped: the worker did not know the request"
        return _signal_lost(case, stop, text)
    if cancelled is None:
        return None
    run = case.attempt.run
    if run is not None and run.ended:
        return _ended_though_cancelled(case, cancelled, run)
    if not case.gone and case.since(cancelled.last) >= SILENCE_POSSIBLE_SECONDS:
        return _signal_lost(case, cancelled, f"the caller saw the request cancelled at {clock(cancelled.last)}")
    return None


def _ended_though_cancelled(case: Case, cancelled: Record, run: Record) -> Ruling:
    """The platform counts it as cancelled, so the signal was due before any result was taken."""
    if run.failed and run.error_type in _ENDED:
        sentence = (
            f"This request was stopped on {case.worker} as asked: the caller saw it cancelled at"
            f" {clock(cancelled.last)}, and the handler ended by cancellation at {clock(run.last)}."
        )
        items = (
            event(cancelled, "the caller saw the request cancelled"),
            event(run, f"the handler ended with {run.error_type}"),
            absence("no stop signal was told by the worker"),
        )
        return ruling(
            "stopped", sentence, _cancelled(), items, state="stopped", final=True, confidence="likely", inferred=True
        )
    return _signal_lost(case, cancelled, f"the caller saw the request cancelled at {clock(cancelled.last)}")


def _over_before(case: Case, signal: Record) -> bool:
    """Whether the request had left the handler before the signal: then nothing was lost."""
    run, delivered = case.attempt.run, case.attempt.delivered
    ended = run is not None and run.ended and run.last_ns <= signal.last_ns
    return ended or (delivered is not None and delivered.last_ns <= signal.last_ns)


def _cancelled_by_caller(case: Case) -> Record | None:
    told = (*case.evidence.requests, *case.evidence.polls)
    return next((r for r in told if r.text(Key.CALLER_STATUS).upper() == "CANCELLED"), None)


def _signal_lost(case: Case, signal: Record, text: str) -> Ruling:
    run, channel = case.attempt.run, _bad_channel(case)
    on = run is not None and not run.ended and not case.gone
    seconds = between(signal.last, _end(case, signal))
    ran = (
        f"the handler ran on for {duration(seconds)}" if seconds > 0 else "the handler ended as if nothing had happened"
    )
    ran = ran if run else "it stayed with the worker"
    sentence = f"This request was cancelled, but the stop signal never reached its handler on {case.worker}: {ran}."
    if channel is not None:
        sentence += f" The worker's stop channel was {channel.text(Key.CHANNEL_STATE)}."
    items = [event(signal, text), absence("no stop signal landed in the handler")]
    if channel is not None:
        items.append(event(channel, _channel_text(channel)))
    return ruling(
        "stop_signal_lost",
        sentence,
        Reading(given("platform_api_error")),
        (*items, *claim_item(case)),
        state="running" if on else "stopped",
        final=not on,
        confidence="likely",
        inferred=True,
        retry="no",
    )


def _bad_channel(case: Case) -> Record | None:
    """The stop channel's last report that was not ok, during the attempt; a state holds until the next is told."""
    told = [r for r in case.attempt.worker.stop_channel if r.text(Key.CHANNEL_STATE)]
    before = [r for r in told if r.last_ns < case.attempt.start_ns]
    since = [*before[-1:], *(r for r in told if r.last_ns >= case.attempt.start_ns)]
    bad = [r for r in since if r.text(Key.CHANNEL_STATE) != ChannelState.OK]
    return bad[-1] if bad else None


def _channel_text(channel: Record) -> str:
    violation = channel.text(Key.CHANNEL_VIOLATION)
    return f"stop channel {channel.text(Key.CHANNEL_STATE)}" + (f" ({violation})" if violation else "")


def _cancelled() -> Reading:
    return Reading(given("request_cancelled"))


def _stopped(case: Case, stop: Record, code: str, confidence: Confidence, *, inferred: bool) -> Ruling:
    run = case.attempt.run
    on = code == "stop_ignored" and (run is None or not run.ended) and not case.gone
    # The cause of an end after a stop is the stop itself, unless the clean-up failed for a reason of its own.
    reading = (
        read(run, phase="stop", fallback=given("request_cancelled")) if code == "stop_cleanup_failed" else _cancelled()
    )
    outcome = stop.text(Key.STOP_OUTCOME) or "not told"
    items = [event(stop, f"stop signal received, outcome: {outcome}", at=stop.start)]
    if run is not None and run.ended:
        ended = f"with {run.error_type or 'an error'}" if run.failed else "without an error"
        items.append(event(run, f"the handler ended {ended}"))
    elif inferred:
        items.append(absence("no end of the run was told"))
    delivered = case.attempt.delivered
    if delivered is not None:
        items.append(event(delivered, "the result was handed in all the same"))
    state: State = "running" if on else "stopped"
    return ruling(
        code,
        _sentence(case, stop, code, confidence, on=on),
        reading,
        tuple(items),
        state=state,
        final=not on or case.settled,
        confidence=confidence,
        inferred=inferred,
        fault="caller_input" if code == "stopped" else "user_code",
        retry="yes" if code == "stopped" else "no",
    )


def _end(case: Case, stop: Record) -> datetime:
    """When the handler no longer ran, at the latest; the time of the diagnosis while it runs."""
    run, death = case.attempt.run, case.attempt.death
    if run is not None and run.ended:
        return run.last
    if run is None and stop.ended:
        return stop.last
    return case.now if death is None else death.last


def _sentence(case: Case, stop: Record, code: str, confidence: Confidence, *, on: bool) -> str:
    run = case.attempt.run
    end = _end(case, stop)
    later = duration(max(between(stop.start, end), 0.0))
    seconds = stop.number(Key.STOP_SECONDS)
    took = duration(seconds) if seconds is not None else later
    possibly = "possibly " if confidence == "possible" else ""
    signalled = f"This request was stopped on {case.worker}"
    if code == "stopped":
        return f"{signalled} as asked: the stop signal came at {clock(stop.start)} and the handler ended {took} later."
    if code == "stop_swallowed":
        return (
            f"{signalled}, but its handler swallowed the stop: it caught CancelledError and ended {took} later as if"
            " nothing had happened."
        )
    if code == "stop_ignored":
        how = f"runs on {later} later and still holds its slot" if on else f"ran on for {later}"
        return f"This request was cancelled, and its handler {possibly}ignored the stop: it {how}."
    if code == "stop_late" and run is not None and run.ended and run.last_ns <= stop.start_ns:
        return (
            f"{signalled} too late: when the stop signal reached the worker at {clock(stop.start)}, the handler had"
            f" already ended, {duration(between(run.last, stop.start))} before; possibly a blocking call had held the"
            " event loop."
        )
    if code == "stop_late":
        return (
            f"{signalled} too late: the stop signal of {clock(stop.start)} could not land before the handler had ended,"
            f" {took} later; a blocking call held the event loop."
        )
    error = raised(run.exception) if run is not None else ""
    what = f"raised {error}" if error else "failed"
    return f"{signalled}, and its handler {what} while it cleaned up, {took} after the stop signal."
