"""What each page knows: one frozen dataclass per page, every field with the sentence that says what it is.

Templates see these and nothing else; the JSON and Markdown twins are made from the same objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from markupsafe import Markup

from collector.alerts.listing import Alert
from collector.diagnosis.answer import Answer, AnswerSpan, EvidenceItem, PhaseName, Verdict
from collector.queries import EndpointSummary, GroupSummary, Overview, StandsOut, StopChannel, WorkerSummary
from collector.queries.charts import Quantiles, Strip
from collector.queries.group_actions import Said, Standing
from collector.queries.groups import Change, Regression
from collector.queries.usual import Usual
from collector.watch.ledger import Finding

Tone = Literal["good", "bad", "open", "neutral"]


def said(help: str) -> dict[str, str]:
    """The metadata of a field: the sentence that documents it."""
    return {"help": help}


@dataclass(frozen=True, slots=True)
class Site:
    """What the frame around every page needs."""

    title: str = field(metadata=said("Title of the window, shortest distinguishing words first."))
    section: str = field(metadata=said("The entry of the navigation that this page belongs to; empty for none."))
    now: datetime = field(metadata=said("The time that ages on the page are counted from, UTC."))
    signed_in: bool = field(metadata=said("Whether a sign-in cookie is in use, so that signing out is offered."))
    search: str = field(metadata=said("What stands in the search box."))
    stylesheet: str = field(metadata=said("Address of the style sheet, which changes with its content."))
    script: str = field(metadata=said("Address of the script, which changes with its content. Pages work without it."))
    twins: tuple[tuple[str, str], ...] = field(metadata=said("Name and address of the other forms of this page."))


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One record that the verdict rests on, and where to find it."""

    item: EvidenceItem = field(metadata=said("The record as the answer has it."))
    anchor: str | None = field(
        metadata=said("Where on this page its raw record stands; None where the answer does not hold it.")
    )
    in_tail: bool = field(metadata=said("Whether it is the line that is marked in the log tail."))


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch on the phase bar. Positions are percent of the bar's width."""

    x: float = field(metadata=said("Left edge."))
    width: float = field(metadata=said("Width, never so small that it cannot be seen."))
    complete: bool = field(metadata=said("False where an edge is not known: drawn hatched."))
    open: bool = field(metadata=said("Whether it still lasts."))


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of one attempt."""

    name: PhaseName = field(metadata=said("The phase, in the contract's words."))
    segments: tuple[Segment, ...] = field(
        metadata=said("What is drawn; empty where there is no record, or only outside the bar.")
    )
    broke_here: bool = field(metadata=said("Whether the verdict is about this phase."))
    start: datetime | None = field(metadata=said("Earliest start known."))
    end: datetime | None = field(metadata=said("Latest end known."))
    seconds: float | None = field(metadata=said("Seconds spent, summed over repeats; None where not known."))
    source: str = field(metadata=said("Who told it: worker, caller, platform or collector; empty where nobody did."))
    note: str = field(metadata=said("What a reader would otherwise misread, such as `still going` or `no record`."))
    usual: Usual | None = field(metadata=said("How long it takes on this endpoint when it goes well; None: not known."))
    ghost: Segment | None = field(
        metadata=said("The usual time, drawn from where this phase began; None where either is not known.")
    )
    times_usual: float | None = field(
        metadata=said("How many times the usual it took, where that is far out of the ordinary.")
    )


@dataclass(frozen=True, slots=True)
class PhaseBar:
    """The life of one attempt, phase by phase."""

    attempt: int = field(metadata=said("Number of the attempt, from 1."))
    worker_id: str | None = field(metadata=said("The worker that claimed it."))
    start: datetime | None = field(metadata=said("Left edge of the bar; None where no phase has a time."))
    end: datetime | None = field(metadata=said("Right edge of the bar."))
    seconds: float | None = field(metadata=said("Seconds from edge to edge."))
    whole: bool = field(metadata=said("False where it still lasts, or an edge of a phase was never told."))
    rows: tuple[PhaseRow, ...] = field(metadata=said("Always the same phases in the same order, missing ones too."))


@dataclass(frozen=True, slots=True)
class StallClock:
    """How long an open request has been in its phase, against the usual."""

    phase: PhaseName = field(metadata=said("The phase that it is in."))
    since: datetime = field(metadata=said("When that began."))
    seconds: float = field(metadata=said("How long ago that was, when this page was made."))
    usual: Usual | None = field(metadata=said("How long the phase takes on this endpoint; None where not known."))
    late: bool = field(metadata=said("Whether 95 of 100 were through by now."))


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which this request differs from the last good one."""

    name: str = field(metadata=said("What it is about, such as `image` or `time in run`."))
    here: str = field(metadata=said("How it is here; `not told` where no record says."))
    there: str = field(metadata=said("How it was there."))


@dataclass(frozen=True, slots=True)
class Comparison:
    """This request beside the last one of its endpoint that went well."""

    job_id: str = field(metadata=said("The good request."))
    at: datetime = field(metadata=said("When its handler began."))
    differences: tuple[Difference, ...] = field(metadata=said("In what they differ, twelve lines at most."))
    left_out: int = field(metadata=said("Differences beyond these."))
    same: tuple[str, ...] = field(metadata=said("What is told of both and is the same."))


@dataclass(frozen=True, slots=True)
class Run:
    """A part of a line that looks the same."""

    style: str = field(metadata=said("Class of the style sheet: a colour that the worker asked for, or a redaction."))
    text: str = field(metadata=said("The text."))


@dataclass(frozen=True, slots=True)
class TailLine:
    """One line of the log tail."""

    number: int = field(metadata=said("Counted from 1 in the tail."))
    text: str = field(metadata=said("The line without colour codes, otherwise as written."))
    runs: tuple[Run, ...] = field(metadata=said("The same text with its colours, and what was redacted, told apart."))
    root_cause: bool = field(metadata=said("Whether the verdict's cause was read from this line."))


@dataclass(frozen=True, slots=True)
class TailView:
    """The log tail as shown."""

    lines: tuple[TailLine, ...] = field(metadata=said("All its lines."))
    scope: Literal["job", "worker"] = field(
        metadata=said("Whose output it is. A worker's may come from other requests.")
    )
    bytes: int = field(metadata=said("Bytes of the tail."))
    bytes_dropped: int = field(metadata=said("Bytes written before it that are lost."))
    bytes_withheld: int = field(metadata=said("Bytes that a setting kept in the worker."))
    redactions: int = field(metadata=said("Secrets replaced."))
    complete: bool = field(metadata=said("False where output is known to be missing."))
    coloured: bool = field(metadata=said("Whether the worker wrote colours, which are shown."))
    root_cause_elsewhere: str | None = field(metadata=said("The root-cause line, where the tail does not hold it."))


@dataclass(frozen=True, slots=True)
class Record:
    """One raw record, with its place on the page."""

    span: AnswerSpan = field(metadata=said("The record as stored."))
    anchor: str = field(metadata=said("The element's id on the page."))
    line: str = field(metadata=said("Of a log record: its severity and text. Empty for a span."))
    attributes: tuple[tuple[str, str], ...] = field(metadata=said("Names and values, long values cut and saying so."))
    events: tuple[tuple[str, datetime, tuple[tuple[str, str], ...]], ...] = field(
        metadata=said("Events: name, time, attributes.")
    )


@dataclass(frozen=True, slots=True)
class FailurePage:
    """Everything about one request."""

    site: Site = field(metadata=said("The frame."))
    answer: Answer = field(metadata=said("The answer, as the API gives it."))
    tone: Tone = field(metadata=said("Whether the state is good, bad, still open, or none of these."))
    fault: str = field(metadata=said("Whose side, in words."))
    unknowns: tuple[str, ...] = field(metadata=said("Ways in which what is known is incomplete, a sentence each."))
    evidence: tuple[EvidenceLine, ...] = field(metadata=said("Records that the verdict rests on, strongest first."))
    bars: tuple[PhaseBar, ...] = field(metadata=said("Phase bars, newest attempt first."))
    clock: StallClock | None = field(metadata=said("The stall clock of an open request; None where nothing is open."))
    held_seconds: float | None = field(
        metadata=said("How long workers had the request in hand, which is billed; None where not known.")
    )
    comparison: Comparison | None = field(
        metadata=said(
            "This request beside the last good one of its endpoint; None where there is none to compare with."
        )
    )
    stands_out: tuple[StandsOut, ...] = field(metadata=said("What requests with this failure share more than others."))
    new_in: Change | None = field(metadata=said("The image, release or SDK that brought this failure, where one did."))
    regressed: Regression | None = field(metadata=said("That this failure had gone and came back, where it did."))
    not_asked: tuple[str, ...] = field(
        metadata=said("Parts of the page that are missing because the store did not answer in time.")
    )
    tail: TailView | None = field(metadata=said("The log tail; None where none was sent."))
    records: tuple[Record, ...] = field(metadata=said("Raw records, oldest first."))
    records_left_out: int = field(metadata=said("Raw records beyond what one page holds; the JSON form has them."))


@dataclass(frozen=True, slots=True)
class JobRow:
    """One request in a list."""

    answer: Answer = field(metadata=said("The answer, without spans, phases and tail."))
    tone: Tone = field(metadata=said("Whether the state is good, bad, still open, or none of these."))
    at: datetime | None = field(metadata=said("When it was claimed, or else the newest time known of it."))
    line: str | None = field(metadata=said("The root-cause line, where there is one."))


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to, as written in the address. Empty means not narrowed."""

    endpoint: str = field(default="", metadata=said("Endpoint id."))
    worker: str = field(default="", metadata=said("Worker id."))
    state: str = field(default="", metadata=said("State of the request."))
    verdict: str = field(default="", metadata=said("Verdict code."))
    cause: str = field(default="", metadata=said("Cause code."))
    fingerprint: str = field(default="", metadata=said("Same failure, as grouped."))
    fault: str = field(default="", metadata=said("Whose side."))
    since: str = field(default="", metadata=said("Not before: a time (RFC 3339) or an age such as `2h`."))
    until: str = field(default="", metadata=said("Before: a time (RFC 3339) or an age such as `30m`."))
    q: str = field(default="", metadata=said("Words in log tails and errors."))


@dataclass(frozen=True, slots=True)
class JobsPage:
    """A list of requests, newest first."""

    site: Site = field(metadata=said("The frame."))
    filters: Filters = field(metadata=said("What the list is narrowed to."))
    rows: tuple[JobRow, ...] = field(metadata=said("The requests of this page."))
    next_cursor: str | None = field(metadata=said("Where the next page begins; None on the last one."))
    next_url: str | None = field(metadata=said("Address of the next page."))
    first_url: str | None = field(metadata=said("Address of the newest page, where this is a later one."))
    states: tuple[str, ...] = field(metadata=said("States to choose from."))
    verdicts: tuple[str, ...] = field(metadata=said("Verdict codes to choose from."))
    narrowed: bool = field(metadata=said("Whether any filter is set."))


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of a chart."""

    x: float = field(metadata=said("Left edge."))
    y: float = field(metadata=said("Upper edge."))
    width: float = field(metadata=said("Width."))
    height: float = field(metadata=said("Height."))


@dataclass(frozen=True, slots=True)
class StackSeries:
    """One verdict in a chart of failures over time."""

    name: str = field(metadata=said("The verdict code; `other` for all that are not told apart."))
    style: str = field(metadata=said("Class of the style sheet, by its place in the stack."))
    count: int = field(metadata=said("How many in all."))
    bars: tuple[Bar, ...] = field(metadata=said("What is drawn."))


@dataclass(frozen=True, slots=True)
class StackChart:
    """Failures by verdict over time."""

    series: tuple[StackSeries, ...] = field(metadata=said("The most frequent verdict first, drawn lowest."))
    most: int = field(metadata=said("The highest bar."))
    table: tuple[tuple[datetime, int], ...] = field(metadata=said("When each stretch begins, and failures in it."))


@dataclass(frozen=True, slots=True)
class LineChart:
    """How long one phase took over time."""

    name: str = field(metadata=said("What was measured."))
    p50: tuple[tuple[float, float], ...] = field(metadata=said("Where the halves stand."))
    p95: tuple[tuple[float, float], ...] = field(metadata=said("Where 95 in 100 stand."))
    most_seconds: float = field(metadata=said("The upper edge of the chart."))
    newest: Quantiles = field(metadata=said("The newest that is known."))
    table: tuple[tuple[datetime, float | None, float | None], ...] = field(
        metadata=said("When each stretch begins, and its two times in seconds; None where nothing was measured.")
    )


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cause on one host."""

    count: int = field(metadata=said("How often it was seen there."))
    shade: int = field(metadata=said("From 1 to 5, by the most frequent of all; 0 for none."))


@dataclass(frozen=True, slots=True)
class HeatLine:
    """One host of the heat map."""

    host: str = field(metadata=said("The host."))
    cells: tuple[HeatCell, ...] = field(metadata=said("One for each cause, in their order."))


@dataclass(frozen=True, slots=True)
class Heat:
    """Failures of the last day by host and cause."""

    causes: tuple[str, ...] = field(metadata=said("The causes, the most frequent first."))
    lines: tuple[HeatLine, ...] = field(metadata=said("The hosts, the one with most failures first."))
    left_out: int = field(metadata=said("Failures on other hosts, or of other causes."))


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something was seen."""

    name: str = field(metadata=said("What was counted."))
    count: int = field(metadata=said("How often."))
    url: str = field(metadata=said("Address of the list behind the number."))
    share: float = field(metadata=said("Percent of the largest count, for the bar beside it."))


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The front page: one search box, the newest failures, and how requests ended lately."""

    site: Site = field(metadata=said("The frame."))
    counts: Overview = field(metadata=said("How requests ended in the last day."))
    newest: tuple[JobRow, ...] = field(
        metadata=said("The newest requests that failed, stalled or were lost, whenever that was.")
    )
    verdicts: tuple[Tally, ...] = field(metadata=said("Verdict codes of the last day, most frequent first."))
    causes: tuple[Tally, ...] = field(metadata=said("Cause codes of the last day's failures, most frequent first."))
    failures: StackChart | None = field(metadata=said("Failures of the last day by verdict; None where none was."))
    heat: Heat = field(metadata=said("Failures of the last day by host and cause."))
    endpoints: tuple[EndpointSummary, ...] = field(
        metadata=said("Endpoints heard of in the last day, the one heard last first.")
    )
    more_endpoints: bool = field(metadata=said("Whether there are more endpoints than are shown."))
    empty: bool = field(
        metadata=said("Whether no request was ever seen for this tenant, so that the page explains the first step.")
    )


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """Failures, the same ones counted once."""

    site: Site = field(metadata=said("The frame."))
    groups: tuple[GroupSummary, ...] = field(metadata=said("Groups, the one seen last first."))
    standings: Mapping[str, Standing] = field(metadata=said("How each stands, by its fingerprint."))
    next_cursor: str | None = field(metadata=said("Where the next page begins; None on the last one."))
    next_url: str | None = field(metadata=said("Address of the next page."))
    first_url: str | None = field(metadata=said("Address of the newest page, where this is a later one."))


@dataclass(frozen=True, slots=True)
class GroupPage:
    """One failure, wherever it was seen."""

    site: Site = field(metadata=said("The frame."))
    group: GroupSummary = field(metadata=said("The failure: how often, since when, where."))
    standing: Standing = field(metadata=said("Whether it counts as open, resolved, or as come back since."))
    told: tuple[Said, ...] = field(metadata=said("What people said about it, the newest first."))
    stands_out: tuple[StandsOut, ...] = field(metadata=said("What these requests share more often than others do."))
    new_in: Change | None = field(metadata=said("The image, release or SDK that brought this failure, where one did."))
    regressed: Regression | None = field(metadata=said("That this failure had gone and came back, where it did."))
    rows: tuple[JobRow, ...] = field(metadata=said("Its newest requests."))
    more_url: str | None = field(metadata=said("Address of the full list; None where the page holds all of it."))
    form_secret: str = field(metadata=said("What its forms must hold; empty where this visitor may only read."))


@dataclass(frozen=True, slots=True)
class EndpointPage:
    """One endpoint: how its requests ended, its failures, its workers."""

    site: Site = field(metadata=said("The frame."))
    id: str = field(metadata=said("Its id."))
    summary: EndpointSummary | None = field(
        metadata=said("Its numbers of the last day; None where nothing was heard in it.")
    )
    verdicts: tuple[Tally, ...] = field(metadata=said("Verdict codes of the last day, most frequent first."))
    causes: tuple[Tally, ...] = field(metadata=said("Cause codes of the last day's failures, most frequent first."))
    failures: StackChart | None = field(metadata=said("Failures of the last day by verdict; None where none was."))
    times: tuple[LineChart, ...] = field(metadata=said("Queue, cold start and run over the last day, where known."))
    heat: Heat = field(metadata=said("Failures of the last day by host and cause."))
    groups: tuple[GroupSummary, ...] = field(metadata=said("Its failures, the one seen last first."))
    workers: tuple[WorkerSummary, ...] = field(metadata=said("Its workers heard of in the last day."))
    more_workers: bool = field(metadata=said("Whether there are more workers than are shown."))
    rows: tuple[JobRow, ...] = field(metadata=said("Its newest requests."))
    more_url: str | None = field(metadata=said("Address of the full list; None where the page holds all of it."))


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """One worker: whether it lives, what it runs on, what it did."""

    site: Site = field(metadata=said("The frame."))
    id: str = field(metadata=said("Its id."))
    summary: WorkerSummary | None = field(metadata=said("What its records tell; None where they are past retention."))
    channel: StopChannel | None = field(metadata=said("Its newest stop channel report; None where it sent none."))
    strips: tuple[Strip, ...] = field(metadata=said("Its stop channel over the last day."))
    rows: tuple[JobRow, ...] = field(metadata=said("Its newest requests."))
    more_url: str | None = field(metadata=said("Address of the full list; None where the page holds all of it."))


@dataclass(frozen=True, slots=True)
class StopChannelsPage:
    """Whether workers can be told to stop a request."""

    site: Site = field(metadata=said("The frame."))
    findings: tuple[Finding, ...] = field(metadata=said("Open findings about stop channels, one an endpoint and kind."))
    channels: tuple[StopChannel, ...] = field(metadata=said("The newest report of each worker, the newest first."))
    strips: tuple[Strip, ...] = field(metadata=said("The channels of the first workers over the last day."))
    next_cursor: str | None = field(metadata=said("Where the next page begins; None on the last one."))
    next_url: str | None = field(metadata=said("Address of the next page."))
    first_url: str | None = field(metadata=said("Address of the newest page, where this is a later one."))


@dataclass(frozen=True, slots=True)
class AlertsPage:
    """What is wrong now, and whether people were told."""

    site: Site = field(metadata=said("The frame."))
    alerts: tuple[Alert, ...] = field(metadata=said("Open alerts and those of the last day, opened last first."))
    findings: tuple[Finding, ...] = field(metadata=said("Open findings and those of the last day."))
    more_findings: bool = field(metadata=said("Whether there are more findings than are shown."))
    next_cursor: str | None = field(metadata=said("Where the next page of alerts begins; None on the last one."))
    next_url: str | None = field(metadata=said("Address of the next page."))
    first_url: str | None = field(metadata=said("Address of the newest page, where this is a later one."))
    form_secret: str = field(metadata=said("What its forms must hold; empty where this visitor may only read."))


@dataclass(frozen=True, slots=True)
class DiagnosePage:
    """Paste a log, read the verdict."""

    site: Site = field(metadata=said("The frame."))
    pasted: str = field(metadata=said("The text in the box."))
    phase: str = field(metadata=said("The phase chosen; empty for not known."))
    exit_code: str = field(metadata=said("The exit code as written; empty for not known."))
    phases: tuple[str, ...] = field(metadata=said("Phases to choose from."))
    problem: str = field(metadata=said("Why the form could not be used; empty where it could."))
    verdict: Verdict | None = field(metadata=said("The verdict; None before a log was pasted."))
    fault: str = field(metadata=said("Whose side, in words."))
    evidence: tuple[EvidenceLine, ...] = field(metadata=said("Lines that the verdict rests on."))
    tail: TailView | None = field(metadata=said("The pasted text with the root-cause line marked; None before."))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so for the server to work."""

    name: str = field(metadata=said("What was checked."))
    ok: bool = field(metadata=said("Whether it is so."))
    detail: str = field(metadata=said("What was found."))


@dataclass(frozen=True, slots=True)
class StatusPage:
    """Whether this server works, and what it has lost or refused."""

    site: Site = field(metadata=said("The frame."))
    ready: bool = field(metadata=said("Whether every check passed."))
    checks: tuple[Check, ...] = field(metadata=said("What was checked."))
    version: str = field(metadata=said("Version of the server."))
    tenant: str = field(metadata=said("Whose data this visitor reads."))
    settings: tuple[tuple[str, str, str], ...] = field(
        metadata=said("Settings in use: name, value (secrets never), description.")
    )


@dataclass(frozen=True, slots=True)
class DocEntry:
    """One code of the catalogue."""

    code: str = field(metadata=said("The code."))
    anchor: str = field(metadata=said("The element's id on the page: the code, unless a verdict has the same."))
    title: str = field(metadata=said("A few words."))
    meaning: str = field(metadata=said("What it means."))
    needs: str = field(metadata=said("Which records it is read from; empty for causes, which are read from logs."))
    fault: str = field(metadata=said("Whose side it usually is, in words; empty where that depends."))
    retry: str = field(metadata=said("Whether trying again can help; empty where that depends."))
    advice: tuple[str, ...] = field(metadata=said("What to do."))


@dataclass(frozen=True, slots=True)
class VerdictDocsPage:
    """What each verdict and each cause means."""

    site: Site = field(metadata=said("The frame."))
    verdicts: tuple[DocEntry, ...] = field(metadata=said("What happened to a request."))
    causes: tuple[DocEntry, ...] = field(metadata=said("Why it happened."))


@dataclass(frozen=True, slots=True)
class RunbookPage:
    """What to do about an alert."""

    site: Site = field(metadata=said("The frame."))
    body: Markup = field(metadata=said("The page of `docs/runbooks`, as HTML."))


@dataclass(frozen=True, slots=True)
class LoginPage:
    """The sign-in form."""

    site: Site = field(metadata=said("The frame."))
    form_secret: str = field(metadata=said("The value that the form and a cookie must agree on."))
    next: str = field(metadata=said("Where to go afterwards: a path on this server."))
    problem: str = field(metadata=said("Why the last try was refused; empty on the first."))
    needed: bool = field(metadata=said("False where the server has no tokens, so that nobody needs to sign in."))


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """Why a page cannot be shown. A query that failed is never shown as an empty result."""

    site: Site = field(metadata=said("The frame."))
    status: int = field(metadata=said("HTTP status."))
    code: str = field(metadata=said("The code of the API's error."))
    heading: str = field(metadata=said("What happened, in a few words."))
    detail: str = field(metadata=said("What happened, in a sentence."))
    advice: tuple[str, ...] = field(metadata=said("What to do."))
    retry_url: str | None = field(metadata=said("Address to try again, where that can help."))
