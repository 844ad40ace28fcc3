"""The stretches of an attempt's life, and what it cost. A missing edge is shown as missing, never guessed."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from collector.diagnosis.answer import Phase, PhaseName, State, Wasted
from collector.diagnosis.evidence import AttemptEvidence, BootEvidence, Evidence
from collector.diagnosis.lifecycle_queue import Waiting
from collector.diagnosis.lifecycle_words import between
from collector.diagnosis.records import Record, moment
from sdk_exporter.contract import Key, StopOutcome

_BAD: Final[tuple[State, ...]] = ("failed", "lost", "stalled")
BOOTS_SHOWN: Final = 5
"""Newest starts shown for a request that nobody claims; a crash loop makes hundreds."""


def phases_of(evidence: Evidence) -> tuple[Phase, ...]:
    """All phases of all attempts, in the order of time."""
    if not evidence.attempts:
        return _queued_alone(evidence)
    found = [phase for attempt in evidence.attempts for phase in _attempt_phases(evidence, attempt)]
    return tuple(found)


def _phase(
    name: PhaseName,
    attempt: int,
    worker_id: str,
    record: Record,
    *,
    until_ns: int | None = None,
) -> Phase:
    """A phase told by one record; `until_ns` closes what a death or a later record has ended."""
    end_ns = record.end_ns if record.end_ns is not None else until_ns
    start, end = record.start, None if end_ns is None else moment(max(end_ns, record.start_ns))
    return Phase(
        name=name,
        attempt=attempt,
        worker_id=worker_id or None,
        start=start,
        end=end,
        seconds=None if end is None else between(start, end),
        complete=record.ended,
        source=record.source,
    )


def _attempt_phases(evidence: Evidence, attempt: AttemptEvidence) -> list[Phase]:
    stop_ns = attempt.death.last_ns if attempt.death else None
    found = [*_queued(evidence, attempt), *_start(evidence, attempt, stop_ns)]
    claimed = _claimed(attempt, stop_ns)
    found += [claimed] if claimed else []
    if attempt.gated is not None:
        found.append(
            _phase(
                "gated",
                attempt.number,
                attempt.worker_id,
                attempt.gated,
                until_ns=attempt.run.start_ns if attempt.run else stop_ns,
            )
        )
    if attempt.run is not None:
        found.append(_phase("run", attempt.number, attempt.worker_id, attempt.run, until_ns=stop_ns))
    found += [
        _phase("deliver", attempt.number, attempt.worker_id, record, until_ns=stop_ns) for record in attempt.deliveries
    ]
    found += [_phase("stop", attempt.number, attempt.worker_id, record, until_ns=stop_ns) for record in attempt.stops]
    return found


def _queued(evidence: Evidence, attempt: AttemptEvidence) -> list[Phase]:
    """From the caller's request to the claim. Only the first attempt's is known from outside."""
    if attempt.number != 1:
        return []
    start_ns, claim = evidence.queued_ns, attempt.claim
    start = None if start_ns is None else moment(start_ns)
    end = moment(attempt.claimed_ns) if claim else None
    seconds = max(between(start, end), 0.0) if start and end else None
    source = evidence.requests[0].source if evidence.requests else "worker"
    return [Phase("queued", 1, None, start, end, seconds, seconds is not None, source)]


def _queued_alone(evidence: Evidence) -> tuple[Phase, ...]:
    if evidence.queued_ns is None:
        return ()
    queued = Phase("queued", 1, None, moment(evidence.queued_ns), None, None, False, "caller")
    return (queued, *(phase for boot in Waiting(evidence).boots()[-BOOTS_SHOWN:] for phase in _boot_alone(boot)))


def _boot_alone(boot: BootEvidence) -> list[Phase]:
    """Start and prestart of a worker that the request waited for in vain."""
    end_ns = boot.death.last_ns if boot.death else None
    told: list[tuple[PhaseName, Record | None]] = [("boot", boot.boot), ("prestart", boot.prestart)]
    return [_phase(name, 1, boot.worker_id, record, until_ns=end_ns) for name, record in told if record is not None]


def _start(evidence: Evidence, attempt: AttemptEvidence, stop_ns: int | None) -> list[Phase]:
    """Boot and prestart of the worker, where the request waited for them."""
    since_ns = evidence.queued_ns if evidence.queued_ns is not None and attempt.number == 1 else attempt.start_ns
    boot, prestart = attempt.worker.boot, attempt.worker.prestart
    found: list[Phase] = []
    if boot is not None and (boot.last_ns >= since_ns or not boot.ended):
        found.append(_phase("boot", attempt.number, attempt.worker_id, boot, until_ns=attempt.start_ns or None))
    if prestart is not None and (prestart.last_ns >= since_ns or not prestart.ended or prestart.failed):
        found.append(_phase("prestart", attempt.number, attempt.worker_id, prestart, until_ns=stop_ns))
    return found


def _claimed(attempt: AttemptEvidence, stop_ns: int | None) -> Phase | None:
    """From the claim to the run (or to what ended the attempt before it)."""
    claim, run = attempt.claim, attempt.run
    if claim is None:
        if run is None and stop_ns is None:
            return None
        end_ns = run.start_ns if run else stop_ns
        end = None if end_ns is None else moment(end_ns)
        return Phase("claimed", attempt.number, attempt.worker_id or None, None, end, None, False, "worker")
    until = run.start_ns if run else min((r.last_ns for r in attempt.deliveries), default=stop_ns)
    end = None if until is None else moment(max(until, attempt.claimed_ns))
    start = moment(attempt.claimed_ns)
    return Phase(
        "claimed",
        attempt.number,
        attempt.worker_id or None,
        start,
        end,
        None if end is None else between(start, end),
        end is not None,
        claim.source,
    )


# ---------------------------------------------------------------------------------------------------------- cost


def wasted_of(evidence: Evidence, state: State) -> Wasted:
    """What the end of the request cost. Nothing is wasted where it did not end badly."""
    newest = evidence.attempts[-1] if evidence.attempts else None
    since_cancel, held = _after_cancel(evidence, newest)
    if state not in _BAD:
        return Wasted(seconds_since_cancel=since_cancel, slot_held=held)
    return Wasted(_caller_seconds(evidence, newest), _gpu_seconds(evidence), since_cancel, held)


def _caller_seconds(evidence: Evidence, newest: AttemptEvidence | None) -> float | None:
    """How long the caller waited: until the answer, or as long as is known where none came."""
    since = evidence.queued_ns if evidence.queued_ns is not None else (newest.start_ns if newest else None)
    if since is None:
        return None
    if newest is None or (over := _over_ns(newest)) is None:
        return max(between(moment(since), evidence.now), 0.0)
    if newest.delivered is None:  # it went on waiting after the worker was gone
        over = max([over, *(r.last_ns for r in (*evidence.requests, *evidence.polls))])
    return max(between(moment(since), moment(over)), 0.0)


def _gpu_seconds(evidence: Evidence) -> float | None:
    """How long workers were occupied: by the attempts, or by the starts that failed."""
    if evidence.attempts:
        return sum(_held_seconds(evidence, attempt) for attempt in evidence.attempts)
    starts = [b for b in Waiting(evidence).boots() if b.boot is not None and b.death is not None]
    spent = [between(b.boot.start, b.death.last) for b in starts if b.boot is not None and b.death is not None]
    return sum(max(seconds, 0.0) for seconds in spent) if spent else None


def _over_ns(attempt: AttemptEvidence) -> int | None:
    """When the attempt was over for its worker, or None while it is not."""
    if attempt.delivered is not None:
        return attempt.delivered.last_ns
    ends = [r.last_ns for r in (*attempt.deliveries, attempt.run) if r is not None and r.ended]
    if attempt.death is not None:
        ends.append(attempt.death.last_ns)
    return max(ends, default=None)


def _held_seconds(evidence: Evidence, attempt: AttemptEvidence) -> float:
    end = _over_ns(attempt)
    until = moment(end) if end is not None else min(attempt.heard, evidence.now)
    return max(between(moment(attempt.claimed_ns), until), 0.0)


def _after_cancel(evidence: Evidence, attempt: AttemptEvidence | None) -> tuple[float | None, bool | None]:
    """Seconds that the handler ran on after the cancellation, and whether it still does."""
    cancelled = _cancelled_at(evidence, attempt)
    if attempt is None or cancelled is None:
        return None, None
    over = attempt.run.end if attempt.run is not None else None
    if over is None and attempt.death is not None:
        over = attempt.death.last
    stopped = next((s for s in attempt.stops if s.text(Key.STOP_OUTCOME) == StopOutcome.STOPPED), None)
    if over is None and stopped is not None:
        over = stopped.last
    return max(between(cancelled, over or evidence.now), 0.0), over is None


def _cancelled_at(evidence: Evidence, attempt: AttemptEvidence | None) -> datetime | None:
    """When the stop was signalled, else when the caller saw the cancellation."""
    landed = [s for s in attempt.stops if s.text(Key.STOP_OUTCOME) != StopOutcome.UNKNOWN_JOB] if attempt else []
    if landed:
        return landed[0].start
    told = (*evidence.requests, *evidence.polls)
    return next((r.last for r in told if r.text(Key.CALLER_STATUS).upper() == "CANCELLED"), None)
