"""The answer for one request: the shapes of the API, the page and the command line, and nothing else.

Times are aware UTC datetimes; the edges print them as RFC 3339. Durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from collector.rows import Attributes

State = Literal["queued", "claimed", "running", "completed", "failed", "stopped", "stalled", "lost", "unknown"]
Fault = Literal[
    "user_code", "model_config", "capacity", "platform", "dependency", "upstream_service", "caller_input", "unknown"
]
Retry = Literal["yes", "no", "maybe"]
Confidence = Literal["certain", "likely", "possible", "unknown"]
Source = Literal["worker", "caller", "platform", "collector"]
EvidenceKind = Literal["log_line", "exception", "exit", "event", "absence"]
PhaseName = Literal["queued", "claimed", "boot", "prestart", "gated", "run", "deliver", "stop"]


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One record that a verdict rests on. `text` of a `log_line` is the line, verbatim; `line` counts from 1."""

    source: Source
    what: EvidenceKind
    text: str
    at: datetime | None = None
    span_id: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """What would have told us more, and the setting to paste."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happened to the request (`code`), why (`cause`), and the records that this rests on."""

    code: str
    cause: str
    title: str
    sentence: str
    fault: Fault
    retry: Retry
    confidence: Confidence
    queue_reason: str | None = None
    inferred: bool = False
    evidence: tuple[EvidenceItem, ...] = ()
    advice: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of an attempt's life. `end` is None while it lasts; `complete` is False where an edge is missing."""

    name: PhaseName
    attempt: int
    worker_id: str | None
    start: datetime | None
    end: datetime | None
    seconds: float | None
    complete: bool
    source: Source


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of the request by one worker boot."""

    number: int
    worker_id: str | None
    boot_id: str | None
    claimed_at: datetime | None
    state: State
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Revision:
    """A verdict as it was before or after a change, and why it changed."""

    at: datetime
    code: str
    why: str


@dataclass(frozen=True, slots=True)
class LogTail:
    """The tail that the verdict was read from. `complete` is False where output is known to be missing."""

    text: str
    bytes: int
    bytes_dropped: int
    bytes_withheld: int
    redactions: int
    complete: bool
    scope: Literal["job", "worker"]


@dataclass(frozen=True, slots=True)
class Group:
    """The same failure elsewhere."""

    fingerprint: str
    count: int
    first_seen: datetime | None


@dataclass(frozen=True, slots=True)
class Wasted:
    """What the failure cost. None where it does not apply or is not known."""

    caller_seconds: float | None = None
    gpu_seconds: float | None = None
    seconds_since_cancel: float | None = None
    slot_held: bool | None = None


@dataclass(frozen=True, slots=True)
class AnswerSpanEvent:
    """An event of a span in the answer."""

    name: str
    at: datetime
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """One raw record; one entry per span id. `end` is None for a thing of which only the start was told."""

    span_id: str
    trace_id: str
    parent_id: str | None
    name: str
    start: datetime
    end: datetime | None
    status: Literal["ok", "error", "unset"]
    attributes: Attributes
    events: tuple[AnswerSpanEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything about one request (the body of `GET /api/v1/jobs/{job_id}`)."""

    job_id: str
    tenant: str
    endpoint_id: str | None
    worker_ids: tuple[str, ...]
    state: State
    final: bool
    revision: int
    verdict: Verdict
    attempts: tuple[Attempt, ...] = ()
    history: tuple[Revision, ...] = ()
    phases: tuple[Phase, ...] = ()
    log_tail: LogTail | None = None
    group: Group | None = None
    wasted: Wasted = field(default_factory=Wasted)
    spans: tuple[AnswerSpan, ...] = ()
