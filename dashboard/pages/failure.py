"""The page of one request: what happened, what to do, and the records that say so."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.answers import answer_of_job
from collector.app import db_of
from collector.auth import ReadTenant
from collector.diagnosis.answer import Answer, AnswerSpan, PhaseName, Verdict
from collector.errors import NotFound
from collector.json_forms import answer_json
from collector.rows import Attributes
from dashboard import render, urls, wording
from dashboard.contexts import EvidenceLine, FailurePage, Record, Site, TailView
from dashboard.filters import compact, plural, size, written_bytes
from dashboard.markdown import job_markdown
from dashboard.phase_bar import bars_of, stall_clock
from dashboard.site import clock, site_of, target_of
from dashboard.surroundings import NOTHING_AROUND, Surroundings, surroundings_of
from dashboard.tail_view import root_cause, tail_view
from sdk_exporter.contract import Key, SpanName

# A page without its log tail has 150 KB at most, whatever a worker sent: a third of it for raw records, as written out.
RECORDS_ON_A_PAGE: Final = 60
RECORDS_BYTES: Final = 46_000
RECORD_MARKUP_BYTES: Final = 600
ATTRIBUTE_MARKUP_BYTES: Final = 80
ATTRIBUTE_CHARACTERS: Final = 2000  # a stack trace fits; a tail stands on the page already
ATTRIBUTES_OF_A_RECORD: Final = 100
NAME_CHARACTERS: Final = 200
IN_HAND: Final[frozenset[PhaseName]] = frozenset({"claimed", "gated", "run", "deliver", "stop"})
"""Phases in which a worker has the request, and somebody pays for it."""
ADDED: Final = ("comparison", "stands_out", "new_in", "regressed", "clock", "held_seconds", "not_asked")
"""What the JSON form of the page has beyond the API's answer."""


async def failure_page(request: Request, tenant: ReadTenant) -> Response:
    """`/jobs/{id}`, and its twins `.json` (the body of the API) and `.md`."""
    target = target_of(request, "/jobs/", ("html", "json", "md"))
    if not target.id:
        return RedirectResponse("/jobs", 303)
    db, now = db_of(request), clock()
    answer = await answer_of_job(db, tenant, target.id, now)
    if target.form == "html" and request.query_params.get("download") == "tail":
        return tail_file(answer)
    around = await surroundings_of(db, tenant, answer, now)
    # A large answer takes a good part of a second to write out: not on the loop that serves everyone.
    return await asyncio.to_thread(written, answer, frame_of(request, answer), target.form, around)


def tail_file(answer: Answer) -> Response:
    """The log tail as the worker wrote it, colours and all, as a file to keep. Raises NotFound."""
    if answer.log_tail is None:
        raise NotFound("No log tail of this request is stored.")
    headers = {"Content-Disposition": 'attachment; filename="tail.log"'}
    body = answer.log_tail.text.encode("utf-8", "replace")
    return Response(body, headers=headers, media_type="text/plain; charset=utf-8")


def written(answer: Answer, site: Site, form: urls.Form, around: Surroundings) -> Response:
    """The answer in one of its forms. The JSON form is the body of the API, and beside it what the page adds."""
    page = failure_view(answer, site, around)
    if form == "json":
        added = {name: getattr(page, name) for name in ADDED}
        return render.json({**answer_json(answer), **added, "usual": around.usual})
    return render.markdown(job_markdown(page)) if form == "md" else render.html("failure.html", page)


def frame_of(request: Request, answer: Answer) -> Site:
    """The frame: the window's title tells one tab from another."""
    twins = (("JSON", urls.page("jobs", answer.job_id, "json")), ("Markdown", urls.page("jobs", answer.job_id, "md")))
    return site_of(request, f"{answer.verdict.title} · {answer.job_id[:60]}", "Requests", twins=twins)


def failure_view(answer: Answer, site: Site, around: Surroundings = NOTHING_AROUND) -> FailurePage:
    """The answer as the page shows it, with what stands around it. Pure."""
    records = records_of(answer.spans, {item.span_id for item in answer.verdict.evidence})
    anchors = {record.span.span_id: record.anchor for record in records}
    tail = tail_view(answer.log_tail, answer.verdict) if answer.log_tail else None
    return FailurePage(
        site=site,
        answer=answer,
        tone=wording.TONES[answer.state],
        fault=wording.SIDES[answer.verdict.fault],
        unknowns=unknowns_of(answer),
        evidence=evidence_of(answer.verdict, anchors, tail),
        bars=bars_of(answer, site.now, around.usual),
        clock=stall_clock(answer, site.now, around.usual),
        held_seconds=held_seconds(answer, site.now),
        comparison=around.comparison,
        stands_out=around.stands_out,
        new_in=around.new_in,
        regressed=around.regressed,
        not_asked=around.not_asked,
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


def held_seconds(answer: Answer, now: datetime) -> float | None:
    """Seconds that workers had the request in hand, from each claim to the last that they did for it."""
    spent = []
    for number in {phase.attempt for phase in answer.phases}:
        mine = [phase for phase in answer.phases if phase.attempt == number and phase.name in IN_HAND]
        starts = [phase.start for phase in mine if phase.start]
        ends = [phase.end or now for phase in mine if phase.end or not answer.final]
        if starts and ends:
            spent.append(max((max(ends) - min(starts)).total_seconds(), 0.0))
    return sum(spent) if spent else None


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


def records_of(spans: Sequence[AnswerSpan], quoted: Collection[str | None] = ()) -> tuple[Record, ...]:
    """The raw records in order of time, at most `RECORDS_ON_A_PAGE`, each with an anchor of our own making.

    They are shown as long as `RECORDS_BYTES` lasts: a request can carry megabytes of them. `quoted`: ids of those that
    the verdict rests on, which are shown before any other.
    """
    chosen = sorted(spans, key=lambda span: (span.span_id not in quoted, span.start, span.span_id))[:RECORDS_ON_A_PAGE]
    room = Room(RECORDS_BYTES - RECORD_MARKUP_BYTES * len(chosen))
    records = [_record(number, span, room) for number, span in enumerate(chosen, start=1)]
    return tuple(sorted(records, key=lambda record: (record.span.start, record.span.span_id)))


def _record(number: int, span: AnswerSpan, room: Room) -> Record:
    return Record(
        span=span,
        anchor=f"record-{number}",
        line=_cut(log_line(span), NAME_CHARACTERS),
        attributes=room.pairs(span.attributes),
        events=tuple((event.name, event.at, room.pairs(event.attributes)) for event in span.events),
    )


def log_line(span: AnswerSpan) -> str:
    """What a log record says, with its severity before it; empty where the span is none."""
    if span.name != SpanName.LOG_RECORD:
        return ""
    severity, body = (span.attributes.get(key) for key in (Key.RECORD_SEVERITY, Key.RECORD_BODY))
    return " ".join(compact(part) for part in (severity, body) if part is not None)


@dataclass(slots=True)
class Room:
    """How many bytes of attributes, as written out, a page still has room for."""

    bytes: int

    def pairs(self, attributes: Attributes) -> tuple[tuple[str, str], ...]:
        """Names and values by name, as many as there is room for; the rest is counted."""
        shown: list[tuple[str, str]] = []
        for name, value in sorted(attributes.items()):
            pair = (_cut(name, NAME_CHARACTERS), _cut(compact(value), ATTRIBUTE_CHARACTERS))
            size = ATTRIBUTE_MARKUP_BYTES + sum(written_bytes(text) for text in pair)
            if len(shown) == ATTRIBUTES_OF_A_RECORD or size > self.bytes:
                left_out = plural(len(attributes) - len(shown), "more attribute")
                return (*shown, ("…", f"{left_out} in the JSON form"))
            self.bytes -= size
            shown.append(pair)
        return tuple(shown)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}… (cut here; {len(text):,} characters, all in the JSON form)"
