"""The answer for one request: its spans, diagnosed now, with what earlier diagnoses left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final

from collector.clickhouse import Database
from collector.diagnosis import answer_of, rulings_of
from collector.diagnosis.answer import Answer, Group, Missing, Revision, Verdict
from collector.diagnosis.beside import NOTHING, Beside
from collector.diagnosis.evidence import Evidence, evidence_of
from collector.diagnosis.fingerprint import fingerprint
from collector.diagnosis.lifecycle_beside import asks_for_siblings, with_beside
from collector.diagnosis.lifecycle_case import Ruling
from collector.diagnosis.records import Record
from collector.errors import NotFound
from collector.queries.beside import Asked, beside, siblings
from collector.queries.job import JobSpans, spans_of_job
from collector.queries.jobs import StoredJob, counts_of_groups, histories_of, stored_jobs
from collector.queries.stored import (
    NO_FAILURE,
    JobRow,
    VerdictRow,
    document_of,
    hardware_of,
    ms_of,
    time_of_ns,
    within_int64,
)
from collector.rows import SpanRow
from sdk_exporter.bounds import clip
from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName

__all__ = [
    "Diagnosed",
    "FirstLook",
    "JobRow",
    "VerdictRow",
    "answer_of_job",
    "diagnosed",
    "first_look",
    "job_row",
    "looked_beside",
    "verdict_row",
]

SEARCH_BYTES: Final = 64 << 10
"""Most bytes of text by which one request can be found."""
NAMES_TOLD: Final = 4
OLDEST_NEWS_NS: Final = 7 * 86_400 * 1_000_000_000
"""The longest that a spool is believed to have waited; a start before that is a wrong clock."""
_REPORTS: Final = frozenset({SpanName.HEARTBEAT, SpanName.STOP_CHANNEL, SpanName.JOB_TAKE})


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """One diagnosis. `why`: what made the verdict differ from the stored one; empty where it does not."""

    answer: Answer
    fingerprint: str
    why: str


async def answer_of_job(db: Database, tenant: str, job_id: str, now: datetime) -> Answer:
    """The whole answer for one request, as of `now`. Raises NotFound with reason never_seen or past_retention."""
    found, stored = await asyncio.gather(spans_of_job(db, tenant, job_id), stored_jobs(db, tenant, [job_id]))
    previous = stored.get(job_id)
    if not found.spans:
        raise _not_found(job_id, previous)
    look = await asyncio.to_thread(first_look, job_id, found, now)
    around = await looked_beside(db, tenant, [look], now)
    result = await asyncio.to_thread(diagnosed, tenant, look, previous, around.get(job_id, NOTHING))
    history = (await histories_of(db, tenant, [job_id])).get(job_id, [])
    if result.why:  # the digest has not written this revision yet
        history = [*history, Revision(at=now, code=result.answer.verdict.code, why=result.why)]
    return replace(result.answer, history=tuple(history), group=await _group(db, tenant, result, previous, found.spans))


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What a request's own records, and its workers', tell of it."""

    found: JobSpans
    evidence: Evidence
    rulings: tuple[Ruling, ...]

    @property
    def job_id(self) -> str:
        return self.evidence.job_id

    @property
    def verdict(self) -> Verdict:
        """The newest attempt's, before anything beside the request is looked at."""
        return self.rulings[-1].verdict


def first_look(job_id: str, found: JobSpans, now: datetime) -> FirstLook:
    """Read the records of one request. Pure; takes milliseconds of a processor."""
    evidence = evidence_of(job_id, found.spans, now)
    return FirstLook(found, evidence, rulings_of(evidence))


async def looked_beside(db: Database, tenant: str, looks: Sequence[FirstLook], now: datetime) -> dict[str, Beside]:
    """What happened beside those of these requests that failed, in a few questions for all of them."""
    failed = [look for look in looks if look.verdict.code not in NO_FAILURE]
    boots = {look.job_id: _boots(look) for look in failed if asks_for_siblings(look.verdict)}
    runs = await siblings(db, tenant, sorted({boot for told in boots.values() for boot in told}))
    of_boots = {
        job_id: None if runs is None else tuple(run for boot in told for run in runs.get(boot, ()))
        for job_id, told in boots.items()
    }
    asked = [_asked(look, of_boots.get(look.job_id)) for look in failed]
    return await beside(db, tenant, asked, now, of_boots)


def _boots(look: FirstLook) -> list[tuple[str, str]]:
    """The worker boot of the newest attempt."""
    newest = look.evidence.attempts[-1] if look.evidence.attempts else None
    return [(newest.worker_id, newest.boot_id)] if newest and newest.worker_id and newest.boot_id else []


def _asked(look: FirstLook, runs: tuple[Record, ...] | None) -> Asked:
    """What to read for one failed request. Its fingerprint is the one that it has once its siblings are known."""
    evidence, spans = look.evidence, look.found.spans
    verdict = look.verdict
    if runs:
        verdict = with_beside(replace(evidence, beside=Beside(siblings=runs)), look.rulings[-1]).verdict
    hardware = hardware_of(_worker_resource(evidence.attempts[-1].worker_id if evidence.attempts else "", spans))
    crashed = look.verdict.code == "boot_crashed"
    return Asked(
        job_id=look.job_id,
        endpoint_id=evidence.endpoint_id or "",
        fingerprint=fingerprint(verdict, evidence),
        first_at=time_of_ns(within_int64(_first_ns(look.job_id, spans))),
        last_at=time_of_ns(within_int64(_last_ns(look.job_id, spans))),
        where={dimension: value for dimension, value in asdict(hardware).items() if value},
        starts_until_ns=max((boot.last_ns for boot in evidence.boots), default=0) if crashed else 0,
    )


def diagnosed(tenant: str, look: FirstLook, previous: StoredJob | None, around: Beside = NOTHING) -> Diagnosed:
    """The answer about one request, compared with its last diagnosis. Pure."""
    found, evidence = look.found, replace(look.evidence, beside=around)
    answer = answer_of(evidence, tenant=tenant, rulings=look.rulings)
    if found.cut:
        answer = _said_to_be_cut(answer)
    verdict = answer.verdict
    changed = previous is None or (previous.code, previous.cause, previous.is_final) != (
        verdict.code,
        verdict.cause,
        answer.final,
    )
    revision = (previous.revision if previous else 0) + (1 if changed else 0)
    return Diagnosed(
        answer=replace(answer, revision=revision),
        fingerprint="" if verdict.code in NO_FAILURE else fingerprint(verdict, evidence),
        why=why_changed(previous, answer, found.spans, evidence.now) if changed else "",
    )


def why_changed(previous: StoredJob | None, answer: Answer, spans: Sequence[SpanRow], now: datetime) -> str:
    """What made this verdict: the records that arrived since the last one, or that none did."""
    since_ms = previous.digested_ms if previous else 0
    new = [span for span in spans if span.arrived_ms > since_ms]
    told = _names([span for span in new if span.name not in _REPORTS] or new)
    if previous is None:
        return f"first diagnosis, from {told}"
    if new:
        return f"{told} arrived"
    if previous.is_final:
        return "no record arrived: the rules of diagnosis are others than then"
    silent = max(0, ms_of(now) - since_ms) // 1000
    if answer.final and previous.code == answer.verdict.code:
        return f"no record still expected can change it, {silent} s after the last one"
    return f"nothing arrived for {silent} s"


def _names(spans: Sequence[SpanRow]) -> str:
    """Names of records, the newest first, errors marked; the rest counted."""
    newest_first = sorted(spans, key=lambda span: (span.arrived_ms, span.start_ns), reverse=True)
    names = list(dict.fromkeys(span.name + (" (error)" if span.status == "error" else "") for span in newest_first))
    told = ", ".join(clip(name, 64) for name in names[:NAMES_TOLD])
    return told + (f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else "")


def _said_to_be_cut(answer: Answer) -> Answer:
    """Say in the verdict that it rests on a part of the records only."""
    part = Missing(
        what="This request has more records than one answer reads; the oldest reports or the user's own spans are left"
        " out here",
        how="",
    )
    return replace(answer, verdict=replace(answer.verdict, missing=(*answer.verdict.missing, part)))


def _not_found(job_id: str, previous: StoredJob | None) -> NotFound:
    shown = clip(job_id, 200)
    if previous is None:
        return NotFound(f"no record of a request {shown!r} was ever stored", reason="never_seen")
    day = previous.updated_at.date().isoformat()
    return NotFound(
        f"the records of request {shown!r} are past retention; the last verdict, of {day}, was {previous.code}",
        reason="past_retention",
    )


async def _group(
    db: Database, tenant: str, result: Diagnosed, previous: StoredJob | None, spans: Sequence[SpanRow]
) -> Group | None:
    """The group of a failure, this request counted in it whether or not the digest has written it."""
    if not result.fingerprint:
        return None
    stored = (await counts_of_groups(db, tenant, [result.fingerprint])).get(result.fingerprint)
    own_first = time_of_ns(within_int64(_first_ns(result.answer.job_id, spans)))
    if stored is None or stored.first_seen is None:
        return Group(result.fingerprint, 1, own_first)
    if previous is not None and previous.fingerprint == result.fingerprint:
        return stored
    return replace(stored, count=stored.count + 1, first_seen=min(stored.first_seen, own_first))


# ------------------------------------------------------------------------------------------------ rows of the tables


def job_row(result: Diagnosed, found: JobSpans, previous: StoredJob | None, now: datetime) -> JobRow:
    """The row that lists read, from one diagnosis."""
    answer, verdict, own = result.answer, result.answer.verdict, _own(result.answer.job_id, found.spans)
    hardware = hardware_of(_worker_resource(answer.worker_ids[-1] if answer.worker_ids else "", found.spans))
    return JobRow(
        tenant=answer.tenant,
        job_id=answer.job_id,
        version=_version(previous, now),
        endpoint_id=answer.endpoint_id or "",
        worker_ids=list(answer.worker_ids),
        boot_ids=sorted({span.boot_id for span in own if span.boot_id}),
        state=answer.state,
        is_final=answer.final,
        code=verdict.code,
        cause=verdict.cause,
        queue_reason=verdict.queue_reason or "",
        fault=verdict.fault,
        retry=verdict.retry,
        confidence=verdict.confidence,
        inferred=verdict.inferred,
        fingerprint=result.fingerprint,
        title=verdict.title,
        sentence=verdict.sentence,
        root_line=next((item.text for item in verdict.evidence if item.what == "log_line"), ""),
        revision=answer.revision,
        first_ns=within_int64(_first_ns(answer.job_id, found.spans)),
        last_ns=within_int64(_last_ns(answer.job_id, found.spans)),
        digested_ms=found.newest_arrival_ms,
        updated_ms=ms_of(now),
        host=hardware.host or "",
        gpu=hardware.gpu or "",
        driver=hardware.driver or "",
        image=hardware.image or "",
        release=hardware.release or "",
        region=hardware.region or "",
        sdk=hardware.sdk or "",
        search_text=_search_text(answer, own),
        document=document_of(answer),
    )


def verdict_row(result: Diagnosed, previous: StoredJob | None, now: datetime) -> VerdictRow:
    """The row of the history, for a diagnosis that differs from the last."""
    answer = result.answer
    return VerdictRow(
        tenant=answer.tenant,
        job_id=answer.job_id,
        revision=answer.revision,
        version=_version(previous, now),
        at_ms=ms_of(now),
        code=answer.verdict.code,
        cause=answer.verdict.cause,
        is_final=answer.final,
        why=result.why,
    )


def _version(previous: StoredJob | None, now: datetime) -> int:
    """Grows with every write, also where a clock was set back."""
    return max(ms_of(now) * 1000, previous.version + 1 if previous else 0)


def _own(job_id: str, spans: Sequence[SpanRow]) -> list[SpanRow]:
    """The request's own spans; where all were lost, those of the worker that named it."""
    return [span for span in spans if span.job_id == job_id] or list(spans)


def _first_ns(job_id: str, spans: Sequence[SpanRow]) -> int:
    """When the request was first heard of, by the clock of who told it as far as that can be right: a record does not
    begin after it arrived, and not weeks before. One wrong clock must not head the list for ever."""
    return min((_believable(span.start_ns, span) for span in _own(job_id, spans)), default=0)


def _last_ns(job_id: str, spans: Sequence[SpanRow]) -> int:
    return max((_believable(max(span.start_ns, span.end_ns), span) for span in _own(job_id, spans)), default=0)


def _believable(at_ns: int, span: SpanRow) -> int:
    arrived_ns = span.arrived_ms * 1_000_000
    return max(arrived_ns - OLDEST_NEWS_NS, min(at_ns, arrived_ns))


def _worker_resource(worker_id: str, spans: Sequence[SpanRow]) -> dict[str, object]:
    """The resource of the newest span of the newest worker that had the request; empty where none had it."""
    return next((dict(span.resource) for span in reversed(spans) if worker_id and span.worker_id == worker_id), {})


def _search_text(answer: Answer, own: Sequence[SpanRow]) -> str:
    """Everything that `q` looks through: id, sentence, evidence, exceptions, log tail."""
    exceptions = [
        f"{event.attributes.get(Key.EXCEPTION_TYPE, '')}: {event.attributes.get(Key.EXCEPTION_MESSAGE, '')}"
        for span in own
        for event in span.events
        if event.name == EXCEPTION_EVENT
    ]
    tail = answer.log_tail.text if answer.log_tail else ""
    texts = [
        answer.job_id,
        answer.verdict.sentence,
        *(item.text for item in answer.verdict.evidence),
        *exceptions,
        tail,
    ]
    return clip("\n".join(dict.fromkeys(text for text in texts if text)), SEARCH_BYTES)
