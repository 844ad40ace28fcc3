"""Works out what happened to a request, and why. Pure: `now` is part of the evidence, nothing is read from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collector.diagnosis.answer import (
    Answer,
    AnswerSpan,
    AnswerSpanEvent,
    Attempt,
    Group,
    LogTail,
    Revision,
    Verdict,
)
from collector.diagnosis.evidence import Evidence
from collector.diagnosis.lifecycle import judge, judge_unclaimed
from collector.diagnosis.lifecycle_beside import with_beside
from collector.diagnosis.lifecycle_case import Ruling
from collector.diagnosis.phases import phases_of, wasted_of
from collector.diagnosis.records import Record, moment
from collector.diagnosis.tail import diagnose_tail

__all__ = ["answer_of", "diagnose", "diagnose_tail", "rulings_of"]

_STATUSES: Final = {"ok": "ok", "error": "error"}


def diagnose(evidence: Evidence) -> Verdict:
    """The verdict about the request: its newest attempt's."""
    newest = judge(evidence, evidence.attempts[-1]) if evidence.attempts else judge_unclaimed(evidence)
    return with_beside(evidence, newest).verdict


def rulings_of(evidence: Evidence) -> tuple[Ruling, ...]:
    """What the request's own records tell: a ruling for each attempt, else the one about a request nobody claimed."""
    if not evidence.attempts:
        return (judge_unclaimed(evidence),)
    return tuple(judge(evidence, attempt) for attempt in evidence.attempts)


def answer_of(
    evidence: Evidence,
    *,
    tenant: str,
    revision: int = 1,
    history: Sequence[Revision] = (),
    group: Group | None = None,
    rulings: Sequence[Ruling] = (),
) -> Answer:
    """Everything about the request, as API and page show it. `rulings`: those of `rulings_of`, where they are known."""
    told = rulings or rulings_of(evidence)
    newest = with_beside(evidence, told[-1])
    return Answer(
        job_id=evidence.job_id,
        tenant=tenant,
        endpoint_id=evidence.endpoint_id,
        worker_ids=tuple(dict.fromkeys(a.worker_id for a in evidence.attempts if a.worker_id)),
        state=newest.state,
        final=newest.final,
        revision=revision,
        verdict=newest.verdict,
        attempts=_attempts(evidence, (*told[:-1], newest)),
        history=tuple(history),
        phases=phases_of(evidence),
        log_tail=newest.tail or _own_tail(evidence),
        group=group,
        wasted=wasted_of(evidence, newest.state),
        spans=tuple(_span(record) for record in evidence.records),
    )


def _attempts(evidence: Evidence, rulings: Sequence[Ruling]) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            number=attempt.number,
            worker_id=attempt.worker_id or None,
            boot_id=attempt.boot_id or None,
            claimed_at=moment(attempt.claimed_ns) if attempt.claim else None,
            state=found.state,
            verdict=found.verdict,
        )
        for attempt, found in zip(evidence.attempts, rulings, strict=False)  # one ruling where there is no attempt
    )


def _own_tail(evidence: Evidence) -> LogTail | None:
    """The tail of the newest run, where the verdict needed none."""
    run = evidence.attempts[-1].run if evidence.attempts else None
    return run.tail if run is not None else None


def _span(record: Record) -> AnswerSpan:
    status = _STATUSES.get(record.status, "unset")
    return AnswerSpan(
        span_id=record.span_id,
        trace_id=record.trace_id,
        parent_id=record.parent_id or None,
        name=record.name,
        start=record.start,
        end=record.end,
        status=status,  # type: ignore[arg-type]  # the mapping above holds only the two
        attributes=record.attributes,
        events=tuple(AnswerSpanEvent(e.name, moment(e.at_ns), e.attributes) for e in record.events),
    )
