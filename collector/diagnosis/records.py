"""One thing that was told: the spans of one span id merged, read without trust in their types.

Attributes are typed by whoever sent them: every reading here tolerates any value, and a wrong type reads as "not told".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from collector.diagnosis.answer import LogTail, Source
from collector.diagnosis.clues import ExceptionClue
from collector.rows import Attributes, AttributeValue, SpanEvent, SpanRow
from sdk_exporter.contract import EXCEPTION_EVENT, STARTED_SUFFIX, Key, LogScope

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_NS: Final = 253_402_300_799 * 1_000_000_000  # 9999-12-31T23:59:59Z, the last second that a datetime can hold
SECOND_NS: Final = 1_000_000_000


def moment(ns: int) -> datetime:
    """Unix nanoseconds as an aware UTC datetime; out of range is clamped, never an error."""
    return _EPOCH + timedelta(microseconds=min(max(ns, 0), _LAST_NS) // 1000)


def nanoseconds(at: datetime) -> int:
    """An aware datetime as Unix nanoseconds, exact to the microsecond."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that was told, its start and its end merged. `end_ns` is None where only the start came."""

    span_id: str
    trace_id: str
    parent_id: str
    name: str
    job_id: str
    endpoint_id: str
    worker_id: str
    boot_id: str
    start_ns: int
    end_ns: int | None
    arrived_ms: int
    status: str
    message: str
    attributes: Attributes
    resource: Attributes
    events: tuple[SpanEvent, ...]

    @property
    def ended(self) -> bool:
        """Whether the end was told."""
        return self.end_ns is not None

    @property
    def failed(self) -> bool:
        """Whether it ended in an error."""
        return self.status == "error"

    @property
    def last_ns(self) -> int:
        """The latest time that this record tells of."""
        return self.start_ns if self.end_ns is None else self.end_ns

    @property
    def start(self) -> datetime:
        """Start, aware UTC."""
        return moment(self.start_ns)

    @property
    def end(self) -> datetime | None:
        """End, aware UTC; None where it was not told."""
        return None if self.end_ns is None else moment(self.end_ns)

    @property
    def last(self) -> datetime:
        """The latest time that this record tells of, aware UTC."""
        return moment(self.last_ns)

    @property
    def source(self) -> Source:
        """Who told it."""
        if self.name.startswith("caller."):
            return "caller"
        return "platform" if self.name.startswith("platform.") else "worker"

    def text(self, key: str) -> str:
        """A string attribute, or "" where it is absent or of another type."""
        value = self.attributes.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float | None:
        """A finite number, or None."""
        return _number(self.attributes.get(key))

    def integer(self, key: str) -> int | None:
        """A whole number (a float without a fraction counts), or None. 64-bit values stay exact."""
        told = self.attributes.get(key)
        if isinstance(told, int) and not isinstance(told, bool):
            return told
        value = _number(told)
        return int(value) if value is not None and value == int(value) else None

    def flag(self, key: str) -> bool | None:
        """A bool, or None."""
        value = self.attributes.get(key)
        return value if isinstance(value, bool) else None

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of an array attribute (a lone string counts as one)."""
        value = self.attributes.get(key)
        if isinstance(value, str):
            return (value,)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    @property
    def exception(self) -> ExceptionClue | None:
        """The last `exception` event, else what `error.type` and the status text say, else None."""
        for event in reversed(self.events):
            if event.name == EXCEPTION_EVENT:
                told = event.attributes
                kind = _string(told.get(Key.EXCEPTION_TYPE)) or self.text(Key.ERROR_TYPE)
                message = _string(told.get(Key.EXCEPTION_MESSAGE)) or self.message
                return ExceptionClue(kind, message, _string(told.get(Key.EXCEPTION_STACKTRACE)))
        kind = self.text(Key.ERROR_TYPE)
        return ExceptionClue(kind, self.message) if self.failed and (kind or self.message) else None

    @property
    def error_type(self) -> str:
        """The failure's type without its module, "" where none was told."""
        kind = self.text(Key.ERROR_TYPE)
        if not kind and (exception := self.exception):
            kind = exception.type
        return kind.rpartition(".")[2]

    @property
    def tail(self) -> LogTail | None:
        """The log tail that this record carries (also an empty one whose counters tell why), or None."""
        text = self.text(Key.LOG_TAIL)
        withheld = self.integer(Key.LOG_BYTES_WITHHELD) or 0
        dropped = self.integer(Key.LOG_BYTES_DROPPED) or 0
        if not text and not withheld and Key.LOG_BYTES_SEEN not in self.attributes:
            return None
        complete = self.flag(Key.LOG_COMPLETE)
        # Output can be a job's own only on that job's run: what a worker's death tells may be anybody's.
        own = self.text(Key.LOG_SCOPE) == LogScope.JOB and bool(self.job_id)
        return LogTail(
            text=text,
            bytes=len(text.encode("utf-8", "replace")),
            bytes_dropped=max(dropped, 0),
            bytes_withheld=max(withheld, 0),
            redactions=max(self.integer(Key.LOG_REDACTIONS) or 0, 0),
            complete=dropped <= 0 and withheld <= 0 if complete is None else complete,
            scope="job" if own else "worker",
        )


def _string(value: AttributeValue) -> str:
    return value if isinstance(value, str) else ""


def _number(value: AttributeValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an int beyond any double
        return None


def _key(span: SpanRow) -> str:
    """The id under which a span is one entry: its own, or the one that its ending span will have."""
    if span.name.endswith(STARTED_SUFFIX):
        told = span.attributes.get(Key.SPAN_ID)
        if isinstance(told, str) and told:
            return told.lower()
    return span.span_id.lower()


_STATUS_ORDER: Final = {"error": 2, "ok": 1}


def _preference(span: SpanRow) -> tuple[bool, int, int, int, str]:
    """Orders spans of one id: the fullest last. The same whatever order they came in."""
    try:
        content = json.dumps([span.attributes, span.status_message, span.name], sort_keys=True, default=str)
    except RecursionError:  # nested beyond reason; which copy of it wins does not matter
        content = ""
    started = span.name.endswith(STARTED_SUFFIX)
    return (not started, span.end_ns, _STATUS_ORDER.get(span.status, 0), -span.start_ns, content)


def _merged(key: str, spans: Sequence[SpanRow]) -> Record:
    """One record of all spans that tell of one thing. What the ending span says wins."""
    ordered = sorted(spans, key=_preference) if len(spans) > 1 else list(spans)
    best = ordered[-1]
    started = best.name.endswith(STARTED_SUFFIX)
    attributes: Attributes = {}
    for span in ordered:
        attributes.update(span.attributes)
    return Record(
        span_id=key,
        trace_id=best.trace_id,
        parent_id=best.parent_id,
        name=best.name.removesuffix(STARTED_SUFFIX),
        job_id=first_told(span.job_id for span in reversed(ordered)),
        endpoint_id=first_told(span.endpoint_id for span in reversed(ordered)),
        worker_id=first_told(span.worker_id for span in reversed(ordered)),
        boot_id=first_told(span.boot_id for span in reversed(ordered)),
        start_ns=best.start_ns,
        end_ns=None if started else max(best.end_ns, best.start_ns),
        arrived_ms=max(span.arrived_ms for span in ordered),
        status="unset" if started else best.status,
        message=best.status_message,
        attributes=attributes,
        resource=best.resource,
        events=tuple(best.events),
    )


def first_told(values: Iterable[str]) -> str:
    return next((value for value in values if value), "")


def records_of(spans: Iterable[SpanRow]) -> tuple[Record, ...]:
    """Spans merged to one record per span id, by start time."""
    by_key: dict[str, list[SpanRow]] = {}
    for span in spans:
        by_key.setdefault(_key(span), []).append(span)
    return tuple(sorted((_merged(key, group) for key, group in by_key.items()), key=by_time))


def by_time(record: Record) -> tuple[int, int, str]:
    return (record.start_ns, record.last_ns, record.span_id)
