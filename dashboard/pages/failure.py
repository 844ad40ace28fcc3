"""The page of one request: what happened, what to do, and the records that say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.answers import answer_of_job
from collector.app import db_of
from collector.auth import ReadTenant
from collector.diagnosis.answer import Answer, AnswerSpan, EvidenceItem
from collector.json_forms import answer_json
from collector.rows import Attributes
from dashboard import render, urls, wording
from dashboard.contexts import EvidenceLine, FailurePage, Record, Site
from dashboard.filters import compact, plural, size
from dashboard.markdown import job_markdown
from dashboard.phase_bar import bars_of
from dashboard.site import clock, site_of, target_of
from dashboard.tail_view import tail_view

RECORDS_ON_A_PAGE: Final = 200
ATTRIBUTE_CHARACTERS: Final = 2000  # a stack trace fits; a tail stands on the page already
ATTRIBUTES_OF_A_RECORD: Final = 100


async def failure_page(request: Request, tenant: ReadTenant) -> Response:
    """`/jobs/{id}`, and its twins `.json` (the body of the API) and `.md`."""
    target = target_of(request, "/jobs/")
    if not target.id:
        return RedirectResponse("/jobs", 303)
    answer = await answer_of_job(db_of(request), tenant, target.id, clock())
    if target.form == "json":
        return render.json(answer_json(answer))
    page = failure_view(answer, frame_of(request, answer))
    if target.form == "md":
        return render.markdown(job_markdown(page))
    return render.html("failure.html", page)


def frame_of(request: Request, answer: Answer) -> Site:
    """The frame: the window's title tells one tab from another."""
    twins = (("JSON", urls.page("jobs", answer.job_id, "json")), ("Markdown", urls.page("jobs", answer.job_id, "md")))
    return site_of(request, f"{answer.verdict.title} · {answer.job_id[:60]}", "Requests", twins=twins)


def failure_view(answer: Answer, site: Site) -> FailurePage:
    """The answer as the page shows it. Pure."""
    records = records_of(answer.spans)
    anchors = {record.span.span_id: record.anchor for record in records}
    return FailurePage(
        site=site,
        answer=answer,
        tone=wording.TONES[answer.state],
        fault=wording.SIDES[answer.verdict.fault],
        unknowns=unknowns_of(answer),
        evidence=tuple(EvidenceLine(item, _anchor(item, anchors)) for item in answer.verdict.evidence),
        bars=bars_of(answer, site.now),
        tail=tail_view(answer.log_tail, answer.verdict) if answer.log_tail else None,
        records=records,
        records_left_out=len(answer.spans) - len(records),
    )


def _anchor(item: EvidenceItem, anchors: dict[str, str]) -> str | None:
    return anchors.get(item.span_id) if item.span_id else None


def unknowns_of(answer: Answer) -> tuple[str, ...]:
    """In which ways the answer rests on less than everything, a sentence each."""
    told = []
    if not answer.final:
        told.append("Not final: records still on their way can change this verdict.")
    if answer.verdict.inferred:
        told.append("Nobody reported the end. The verdict is worked out from what stopped arriving.")
    unfinished = [phase.name for phase in answer.phases if not phase.complete and phase.end is None]
    if answer.final and unfinished:
        told.append(f"No end was ever told of: {', '.join(dict.fromkeys(unfinished))}.")
    tail = answer.log_tail
    if tail is not None and tail.bytes_withheld:
        told.append(f"{size(tail.bytes_withheld)} of output stayed in the worker, because a setting says so.")
    if tail is not None and (tail.bytes_dropped or not (tail.complete or tail.bytes_withheld)):
        lost = f"{size(tail.bytes_dropped)} of earlier output" if tail.bytes_dropped else "Some output"
        told.append(f"{lost} is not in the log tail.")
    if not answer.spans and answer.verdict.evidence:
        told.append("The raw records behind this verdict are not at hand any more.")
    return tuple(told)


def records_of(spans: Sequence[AnswerSpan]) -> tuple[Record, ...]:
    """The raw records in order of time, at most `RECORDS_ON_A_PAGE`, each with an anchor of our own making."""
    ordered = sorted(spans, key=lambda span: (span.start, span.span_id))[:RECORDS_ON_A_PAGE]
    return tuple(
        Record(
            span=span,
            anchor=f"record-{number}",
            attributes=_pairs(span.attributes),
            events=tuple((event.name, event.at, _pairs(event.attributes)) for event in span.events),
        )
        for number, span in enumerate(ordered, start=1)
    )


def _pairs(attributes: Attributes) -> tuple[tuple[str, str], ...]:
    pairs = [(name, _cut(compact(value))) for name, value in sorted(attributes.items())]
    left_out = len(pairs) - ATTRIBUTES_OF_A_RECORD
    if left_out > 0:
        return (*pairs[:ATTRIBUTES_OF_A_RECORD], ("…", f"{plural(left_out, 'more attribute')} in the JSON form"))
    return tuple(pairs)


def _cut(text: str) -> str:
    if len(text) <= ATTRIBUTE_CHARACTERS:
        return text
    return f"{text[:ATTRIBUTE_CHARACTERS]}… (cut here; {len(text):,} characters, all in the JSON form)"
