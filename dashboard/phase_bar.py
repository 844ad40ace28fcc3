"""Phases of an answer → positions on a bar. Pure geometry; what is not known stays visible as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, get_args

from collector.diagnosis.answer import Answer, Phase, PhaseName, State
from collector.queries.usual import Usual
from dashboard.contexts import PhaseBar, PhaseRow, Segment, StallClock
from dashboard.filters import duration

ORDER: Final[tuple[PhaseName, ...]] = get_args(PhaseName)

# A worker boots once for many requests: these may lie hours before the request and must not squeeze it to a hair.
OF_THE_WORKER: Final[frozenset[PhaseName]] = frozenset({"boot", "prestart"})
OPEN_STATES: Final[frozenset[State]] = frozenset({"queued", "claimed", "running", "stalled"})

UNKNOWN_SHARE: Final = 0.25  # of the known time, for an edge that is not known
NARROWEST_PERCENT: Final = 0.7  # about 3 px of a bar on a phone
TIMES_USUAL_TOLD: Final = 2.0  # a phase that took less than twice the usual is not out of the ordinary

UsualPhases = Mapping[PhaseName, Usual]

BROKE_IN: Final[Mapping[str, PhaseName]] = {
    "boot_crashed": "boot",
    "boot_hung": "boot",
    "fitness_failed": "boot",
    "init_failed": "prestart",
    "init_timeout": "prestart",
    "prestart_failed": "prestart",
    "prestart_timeout": "prestart",
    "handler_failed": "run",
    "handler_returned_error": "run",
    "generator_failed": "run",
    "handler_exited": "run",
    "self_cancelled": "run",
    "worker_killed": "run",
    "worker_crashed": "run",
    "worker_hung": "run",
    "backend_dead": "run",
    "execution_timeout": "run",
    "stop_swallowed": "stop",
    "stop_ignored": "stop",
    "stop_late": "stop",
    "stop_cleanup_failed": "stop",
    "stop_signal_lost": "stop",
    "stranded_claim": "claimed",
    "claim_lost_on_intake": "claimed",
    "empty_input_dropped": "claimed",
    "result_lost": "deliver",
    "result_undeliverable": "deliver",
    "result_expired": "deliver",
    "queue_stalled": "queued",
    "cancelled_in_queue": "queued",
    "expired": "queued",
    "cold_start_slow": "prestart",
}


def stall_clock(answer: Answer, now: datetime, usual: UsualPhases) -> StallClock | None:
    """The clock of the phase that an open request is in: of those without an end, the one that began last."""
    going = [phase for phase in answer.phases if phase.end is None and phase.start and phase.name not in OF_THE_WORKER]
    if answer.final or answer.state not in OPEN_STATES or not going:
        return None
    phase = max(going, key=lambda phase: phase.start or now)
    since = phase.start or now
    seconds = max((now - since).total_seconds(), 0.0)
    known = usual.get(phase.name)
    return StallClock(phase.name, since, seconds, known, late=known is not None and seconds > known.seconds_p95)


def bars_of(answer: Answer, now: datetime, usual: UsualPhases | None = None) -> tuple[PhaseBar, ...]:
    """One bar per attempt, newest first; one empty-handed bar where no attempt is known. `usual`: of its endpoint."""
    attempts = {attempt.number: attempt for attempt in answer.attempts}
    numbers = sorted(attempts.keys() | {phase.attempt for phase in answer.phases}, reverse=True) or [1]
    bars = []
    for number in numbers:
        attempt = attempts.get(number)
        verdict = attempt.verdict if attempt else answer.verdict
        state = attempt.state if attempt else answer.state
        phases = [phase for phase in answer.phases if phase.attempt == number]
        worker = attempt.worker_id if attempt else next((phase.worker_id for phase in phases if phase.worker_id), None)
        bars.append(_bar(number, worker, phases, verdict.code, now if state in OPEN_STATES else None, usual or {}))
    return tuple(bars)


def _bar(
    number: int,
    worker: str | None,
    phases: Sequence[Phase],
    code: str,
    now: datetime | None,
    usual: UsualPhases,
) -> PhaseBar:
    edges = _edges(phases, now)
    broke_in = BROKE_IN.get(code)
    drawn = _padded(edges, phases, now) if edges else None
    rows = tuple(
        _row(name, [phase for phase in phases if phase.name == name], drawn, now, broke_in, usual.get(name))
        for name in ORDER
    )
    if edges is None:
        return PhaseBar(number, worker, None, None, None, False, rows)
    start, end = edges
    whole = now is None and all(phase.complete for phase in phases)
    return PhaseBar(number, worker, start, end, (end - start).total_seconds(), whole, rows)


def _edges(phases: Sequence[Phase], now: datetime | None) -> tuple[datetime, datetime] | None:
    """First and last moment of the request's own phases; the worker's count only where there are no others."""
    own = [phase for phase in phases if phase.name not in OF_THE_WORKER and (phase.start or phase.end)] or list(phases)
    starts = [at for phase in own for at in (phase.start, phase.end) if at]
    if not starts:
        return None
    start = min(starts)
    ends = [at for phase in phases for at in (phase.start, phase.end) if at and at >= start]
    if now is not None:
        ends.append(now)
    end = max([*ends, start])
    return start, end if end > start else start + timedelta(milliseconds=1)


def _padded(
    edges: tuple[datetime, datetime], phases: Sequence[Phase], now: datetime | None
) -> tuple[datetime, datetime]:
    """Room at the sides for what began or ended we do not know when: it is drawn there, hatched."""
    start, end = edges
    room = (end - start) * UNKNOWN_SHARE
    if any(phase.start is None and phase.name not in OF_THE_WORKER for phase in phases):
        start -= room
    if now is None and any(phase.end is None for phase in phases):
        end += room
    return start, end


def _row(
    name: PhaseName,
    phases: Sequence[Phase],
    edges: tuple[datetime, datetime] | None,
    now: datetime | None,
    broke_in: PhaseName | None,
    usual: Usual | None,
) -> PhaseRow:
    if not phases:
        return PhaseRow(name, (), name == broke_in, None, None, None, "", "no record", usual, None, None)
    segments = tuple(segment for phase in phases if edges for segment in _segment(phase, edges, now))
    starts = [phase.start for phase in phases if phase.start]
    ends = [phase.end for phase in phases if phase.end]
    known = [phase.seconds for phase in phases if phase.seconds is not None]
    sources = dict.fromkeys(phase.source for phase in phases)
    return PhaseRow(
        name=name,
        segments=segments,
        broke_here=name == broke_in,
        start=min(starts, default=None),
        end=max(ends, default=None),
        seconds=sum(known) if known else None,
        source=", ".join(sources),
        note=_note(phases, segments, edges, now),
        usual=usual,
        ghost=_ghost(segments, edges, usual),
        times_usual=_times_usual(sum(known) if known else None, usual),
    )


def _ghost(segments: Sequence[Segment], edges: tuple[datetime, datetime] | None, usual: Usual | None) -> Segment | None:
    """The usual time, from where the phase begins here to the bar's edge at most."""
    if edges is None or usual is None or not segments:
        return None
    left, right = edges
    width = usual.seconds_p50 / (right - left).total_seconds() * 100
    width = min(max(width, NARROWEST_PERCENT), 100 - segments[0].x)
    return Segment(segments[0].x, round(width, 2), complete=True, open=False)


def _times_usual(seconds: float | None, usual: Usual | None) -> float | None:
    """How many times the usual, where it is both that much and longer than 95 of 100 take."""
    if seconds is None or usual is None or usual.seconds_p50 <= 0 or seconds <= usual.seconds_p95:
        return None
    times = seconds / usual.seconds_p50
    return round(times, 1) if times >= TIMES_USUAL_TOLD else None


def _segment(phase: Phase, edges: tuple[datetime, datetime], now: datetime | None) -> list[Segment]:
    """Where it lies between the edges; nothing where it lies wholly before them."""
    left, right = edges
    start, end = phase.start or left, phase.end or right
    if end < left or (end == left and start < left):
        return []
    whole = (right - left).total_seconds()
    x = max(0.0, (start - left).total_seconds() / whole * 100)
    width = (min(end, right) - max(start, left)).total_seconds() / whole * 100
    x = min(x, 100 - NARROWEST_PERCENT)
    width = min(max(width, NARROWEST_PERCENT), 100 - x)
    return [Segment(round(x, 2), round(width, 2), phase.complete, phase.end is None and now is not None)]


def _note(
    phases: Sequence[Phase],
    segments: Sequence[Segment],
    edges: tuple[datetime, datetime] | None,
    now: datetime | None,
) -> str:
    notes = []
    if len(phases) > 1:
        notes.append(f"{len(phases)} times")
    if any(phase.end is None for phase in phases):
        notes.append("still going" if now is not None else "its end was never told")
    if any(phase.start is None for phase in phases):
        notes.append("its start was never told")
    if not notes and any(not phase.complete for phase in phases):
        notes.append("partly known")
    began = min((phase.start for phase in phases if phase.start), default=None)
    if edges is not None and began is not None and began < edges[0]:
        notes.append(f"began {duration((edges[0] - began).total_seconds())} before this bar")
    return ", ".join(notes)
