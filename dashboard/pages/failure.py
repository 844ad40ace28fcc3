"""The page of one request: what happened, what to do, and the records that say so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.answers import answer_of_job
from collector.app import db_of
from collector.auth import ReadTenant
from collector.diagnosis.answer import Answer, AnswerSpan, Verdict
from collector.json_forms import answer_json
from collector.rows import Attributes
from dashboard import render, urls, wording
from dashboard.contexts import EvidenceLine, FailurePage, Record, Site, TailView
from dashboard.filters import compact, plural, size
from dashboard.markdown import job_markdown
from dashboard.phase_bar import bars_of
from dashboard.site import clock, site_of, target_of
from dashboard.tail_view import root_cause, tail_view

RECORDS_ON_A_PAGE: Final = 200
ATTRIBUTE_CHARACTERS: Final = 2000  # a stack trace fits; a tail stands on the page already
ATTRIBUTES_OF_A_RECORD: Final = 100
NAME_CHARACTERS: Final = 200
CHARACTERS_ON_A_PAGE: Final = 400_000


async def failure_page(request: Request, tenant: ReadTenant) -> Response:
    """`/jobs/{id}`, and its twins `.json` (the body of the API) and `.md`."""
    target = target_of(request, "/jobs/")
    if not target.id:
        return RedirectResponse("/jobs", 303)
    answer = await answer_of_job(db_of(request), tenant, target.id, clock())
    # A large answer takes a good part of a second to write out: not on the loop that serves everyone.
    return await asyncio.to_thread(written, answer, frame_of(request, answer), target.form)


def written(answer: Answer, site: Site, form: urls.Form) -> Response:
    """The answer in one of its forms."""
    if form == "json":
        return render.json(answer_json(answer))
    page = failure_view(answer, site)
    return render.markdown(job_markdown(page)) if form == "md" else render.html("failure.html", page)


def frame_of(request: Request, answer: Answer) -> Site:
    """The frame: the window's title tells one tab from another."""
    twins = (("JSON", urls.page("jobs", answer.job_id, "json")), ("Markdown", urls.page("jobs", answer.job_id, "md")))
    return site_of(request, f"{answer.verdict.title} · {answer.job_id[:60]}", "Requests", twins=twins)


def failure_view(answer: Answer, site: Site) -> FailurePage:
    """The answer as the page shows it. Pure."""
    records = records_of(answer.spans)
    anchors = {record.span.span_id: record.anchor for record in records}
    tail = tail_view(answer.log_tail, answer.verdict) if answer.log_tail else None
    return FailurePage(
        site=site,
        answer=answer,
        tone=wording.TONES[answer.state],
        fault=wording.SIDES[answer.verdict.fault],
        unknowns=unknowns_of(answer),
        evidence=evidence_of(answer.verdict, anchors, tail),
        bars=bars_of(answer, site.now),
        tail=tail,
        records=records,
        records_left_out=len(answer.spans) - len(records),
    )


def evidence_of(verdict: Verdict, anchors: Mapping[str, str], tail: TailView | None) -> tuple[EvidenceLine, ...]:
    """The records that the verdict rests on, with where they stand. `anchors`: span id → element."""
    root = root_cause(verdict)
    marked = tail is not None and any(line.root_cause for line in tail.lines)
    return tuple(
        EvidenceLine(item, anchors.get(item.span_id or ""), in_tail=marked and item is root)
        for item in verdict.evidence
    )


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
    """The raw records in order of time, at most `RECORDS_ON_A_PAGE`, each with an anchor of our own making.

    Attributes are shown as long as `CHARACTERS_ON_A_PAGE` lasts: a request can carry megabytes of them.
    """
    ordered = sorted(spans, key=lambda span: (span.start, span.span_id))[:RECORDS_ON_A_PAGE]
    budget = Budget(CHARACTERS_ON_A_PAGE)
    return tuple(
        Record(
            span=span,
            anchor=f"record-{number}",
            attributes=budget.pairs(span.attributes),
            events=tuple((event.name, event.at, budget.pairs(event.attributes)) for event in span.events),
        )
        for number, span in enumerate(ordered, start=1)
    )


@dataclass(slots=True)
class Budget:
    """How many characters of attributes a page still has room for."""

    characters: int

    def pairs(self, attributes: Attributes) -> tuple[tuple[str, str], ...]:
        """Names and values by name, as many as there is room for; the rest is counted."""
        shown: list[tuple[str, str]] = []
        for name, value in sorted(attributes.items()):
            pair = (_cut(name, NAME_CHARACTERS), _cut(compact(value), ATTRIBUTE_CHARACTERS))
            size = len(pair[0]) + len(pair[1])
            if len(shown) == ATTRIBUTES_OF_A_RECORD or size > self.characters:
                left_out = plural(len(attributes) - len(shown), "more attribute")
                return (*shown, ("…", f"{left_out} in the JSON form"))
            self.characters -= size
            shown.append(pair)
        return tuple(shown)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}… (cut here; {len(text):,} characters, all in the JSON form)"
