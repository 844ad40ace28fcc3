"""Phases of an answer → positions on a bar. Pure geometry; what is not known stays visible as such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, get_args

from collector.diagnosis.answer import Answer, Phase, PhaseName, State
from dashboard.contexts import PhaseBar, PhaseRow, Segment
from dashboard.filters import duration

ORDER: Final[tuple[PhaseName, ...]] = get_args(PhaseName)

# A worker boots once for many requests: these may lie hours before the request and must not squeeze it to a hair.
OF_THE_WORKER: Final[frozenset[PhaseName]] = frozenset({"boot", "prestart"})
OPEN_STATES: Final[frozenset[State]] = frozenset({"queued", "claimed", "running", "stalled"})

UNKNOWN_SHARE: Final = 0.25  # of the known time, for an edge that is not known
NARROWEST_PERCENT: Final = 0.7  # about 3 px of a bar on a phone

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


def bars_of(answer: Answer, now: datetime) -> tuple[PhaseBar, ...]:
    """One bar per attempt, newest first; one empty-handed bar where no attempt is known."""
    attempts = {attempt.number: attempt for attempt in answer.attempts}
    numbers = sorted(attempts.keys() | {phase.attempt for phase in answer.phases}, reverse=True) or [1]
    bars = []
    for number in numbers:
        attempt = attempts.get(number)
        verdict = attempt.verdict if attempt else answer.verdict
        state = attempt.state if attempt else answer.state
        phases = [phase for phase in answer.phases if phase.attempt == number]
        worker = attempt.worker_id if attempt else next((phase.worker_id for phase in phases if phase.worker_id), None)
        bars.append(_bar(number, worker, phases, verdict.code, now if state in OPEN_STATES else None))
    return tuple(bars)


def _bar(number: int, worker: str | None, phases: Sequence[Phase], code: str, now: datetime | None) -> PhaseBar:
    edges = _edges(phases, now)
    broke_in = BROKE_IN.get(code)
    drawn = _padded(edges, phases, now) if edges else None
    rows = tuple(_row(name, [phase for phase in phases if phase.name == name], drawn, now, broke_in) for name in ORDER)
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
) -> PhaseRow:
    if not phases:
        return PhaseRow(name, (), name == broke_in, None, None, None, "", "no record")
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
    )


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
