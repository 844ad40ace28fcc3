"""OTLP message → rows. Pure: no clock, network or settings.

Never trusts a worker: every string is redacted and clipped again. One bad span is refused alone, with its reason.
"""

from __future__ import annotations

import base64
import hashlib
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sdk_exporter import bounds
from sdk_exporter.contract import (
    ARRAY_ITEMS,
    ATTRIBUTE_BYTES,
    ATTRIBUTES_PER_SPAN,
    EVENTS_PER_SPAN,
    EXCEPTION_EVENT,
    JOB_ID_BYTES,
    LOG_OVERLAP_BYTES,
    MESSAGE_BYTES,
    STACKTRACE_BYTES,
    Key,
    SpanName,
)
from sdk_exporter.redaction import redact

from .errors import TooLarge
from .rows import Attributes, AttributeValue, SpanEvent, SpanLink, SpanRow, json_text
from .suspects import suspects

SPANS_PER_REQUEST: Final = 50_000
KEY_BYTES: Final = 256
NAME_BYTES: Final = 256
TAIL_BYTES: Final = 1 << 20
"""Most bytes of a log tail here: a bound only. How long one is the worker decides (STALLSCOPE_LOG_TAIL_BYTES)."""
RESOURCE_BYTES: Final = 16_384
"""Most bytes of all texts of one resource: it is stored with each of its spans."""
ATTRIBUTES_READ: Final = 1_024
"""Most attributes of one span, event or resource that are looked at, to find those worth keeping: an empty one takes 2
bytes, so a body can hold millions."""
DEPTH: Final = 8
"""Levels of arrays and maps inside a value; what lies deeper becomes a mark."""
JSON_GROWTH: Final = 6
"""A byte of text is at most six of JSON: `\\u0000`."""
TOO_DEEP: Final = "[too deep]"
CLOSE_LOOK_CHARACTERS: Final = 16 << 20
"""Most text of one request in which secrets are looked for, at up to a microsecond each."""
SHORT: Final = 256
"""Characters of a text that is worth remembering."""
LATEST_NS: Final = 2**63 - 1
NO_TRACE_ID, NO_SPAN_ID = bytes(16), bytes(8)
STATUS_WORDS: Final = ("unset", "ok", "error")

_LIMITS: Final = {
    Key.EXCEPTION_MESSAGE: MESSAGE_BYTES,
    Key.EXCEPTION_STACKTRACE: STACKTRACE_BYTES,
    Key.INVOCATION_ID: JOB_ID_BYTES,
    Key.SERVICE_INSTANCE_ID: JOB_ID_BYTES,
    Key.FAAS_NAME: JOB_ID_BYTES,
    Key.BOOT_ID: JOB_ID_BYTES,
}
_VERBATIM: Final = frozenset(
    {Key.INVOCATION_ID, Key.SERVICE_INSTANCE_ID, Key.FAAS_NAME, Key.BOOT_ID, Key.SPAN_ID}
    | {Key.HEARTBEAT_JOBS, Key.SHUTDOWN_JOBS_IN_HAND, Key.DEATH_JOBS_IN_HAND}
)
"""Ids: looked up by what the platform calls them, so kept byte for byte. An id that looks like a secret stays."""


_EXCEPTION: Final = (Key.EXCEPTION_TYPE, Key.EXCEPTION_MESSAGE, Key.EXCEPTION_STACKTRACE)


@dataclass(slots=True)
class Rejections:
    """Spans or log records refused alone, by reason. `message` is what the sender is told."""

    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many spans were refused."""
        return sum(self.reasons.values())

    @property
    def message(self) -> str:
        """One English sentence; empty where nothing was refused."""
        return "; ".join(f"{count} refused: {reason}" for reason, count in self.reasons.most_common())


class _Refused(Exception):
    """This span cannot be stored. The text is the reason, the same for all spans of its kind."""


def span_rows(message: ExportTraceServiceRequest, tenant: str, arrived_ms: int) -> tuple[list[SpanRow], Rejections]:
    """Rows of all spans that can be stored, and why the others cannot.

    Raises TooLarge where there are more spans than one request may hold.
    """
    refuse_too_many(sum(len(scope.spans) for part in message.resource_spans for scope in part.scope_spans))
    with _bounded_work():
        return _span_rows(message, tenant, arrived_ms)


def _span_rows(message: ExportTraceServiceRequest, tenant: str, arrived_ms: int) -> tuple[list[SpanRow], Rejections]:
    rows, rejections = [], Rejections()
    for part in message.resource_spans:
        resource = resource_of(part.resource.attributes)
        for scope in part.scope_spans:
            scope_name = clean(scope.scope.name, NAME_BYTES)
            for span in scope.spans:
                try:
                    rows.append(_row(span, resource, scope_name, tenant, arrived_ms))
                except _Refused as refused:
                    rejections.reasons[str(refused)] += 1
    return rows, rejections


def refuse_too_many(spans: int) -> None:
    """Raises TooLarge where these are more than one request may hold."""
    if spans > SPANS_PER_REQUEST:
        raise TooLarge("spans in one request", SPANS_PER_REQUEST, "spans")


def log_rows(message: ExportLogsServiceRequest, tenant: str, arrived_ms: int) -> tuple[list[SpanRow], Rejections]:
    """Rows of all log records that name a request (see `SpanName.LOG_RECORD`), and why the others are not kept.

    Raises TooLarge where there are more records than one request may hold.
    """
    total = sum(len(scope.log_records) for part in message.resource_logs for scope in part.scope_logs)
    if total > SPANS_PER_REQUEST:
        raise TooLarge("log records in one request", SPANS_PER_REQUEST, "log records")
    with _bounded_work():
        return _log_rows(message, tenant, arrived_ms)


def _log_rows(message: ExportLogsServiceRequest, tenant: str, arrived_ms: int) -> tuple[list[SpanRow], Rejections]:
    rows, rejections = [], Rejections()
    for part in message.resource_logs:
        resource = resource_of(part.resource.attributes)
        for scope in part.scope_logs:
            scope_name = clean(scope.scope.name, NAME_BYTES)
            for record in scope.log_records:
                try:
                    rows.append(_log_row(record, resource, scope_name, tenant, arrived_ms))
                except _Refused as refused:
                    rejections.reasons[str(refused)] += 1
    return rows, rejections


def _log_row(record: LogRecord, resource: Attributes, scope: str, tenant: str, arrived_ms: int) -> SpanRow:
    # First, and without reading the others: a worker can log much that belongs to no request.
    if not any(pair.key == Key.INVOCATION_ID for pair in record.attributes):
        raise _Refused(f"a log record without {Key.INVOCATION_ID} belongs to no request")
    at_ns = record.time_unix_nano or record.observed_time_unix_nano
    if not at_ns:
        raise _Refused("time_unix_nano is missing")
    if at_ns > LATEST_NS:
        raise _Refused("a time is after the year 2262")
    attributes = _attributes(_important_first(record.attributes), ATTRIBUTES_PER_SPAN)
    exception: Attributes = {key: attributes.pop(key) for key in _EXCEPTION if key in attributes}
    if record.event_name:
        attributes[Key.EVENT_NAME] = clean(record.event_name, NAME_BYTES)
    attributes[Key.RECORD_SEVERITY] = clean(record.severity_text, NAME_BYTES)
    attributes[Key.RECORD_SEVERITY_NUMBER] = record.severity_number
    if record.HasField("body"):
        attributes[Key.RECORD_BODY] = _value(record.body, Key.RECORD_BODY)
    return SpanRow(
        tenant=tenant,
        arrived_ms=arrived_ms,
        start_ns=at_ns,
        end_ns=at_ns,
        trace_id=record.trace_id.hex() if len(record.trace_id) == 16 else "",
        span_id=_id_of(record, resource),
        parent_id=record.span_id.hex() if len(record.span_id) == 8 else "",
        job_id=text_of(attributes, Key.INVOCATION_ID),
        endpoint_id=text_of(resource, Key.FAAS_NAME) or text_of(attributes, Key.FAAS_NAME),
        worker_id=text_of(resource, Key.SERVICE_INSTANCE_ID) or text_of(attributes, Key.SERVICE_INSTANCE_ID),
        boot_id=text_of(resource, Key.BOOT_ID) or text_of(attributes, Key.BOOT_ID),
        name=SpanName.LOG_RECORD,
        kind=0,
        status="error" if exception else "unset",
        status_message="",
        attributes=attributes,
        resource=resource,
        events=[SpanEvent(EXCEPTION_EVENT, at_ns, exception)] if exception else [],
        scope=scope,
    )


def _id_of(record: LogRecord, resource: Attributes) -> str:
    """Log records have no id. Made from what is in it, so that one that is sent again is not shown twice."""
    content = hashlib.blake2b(record.SerializeToString(deterministic=True), digest_size=8)
    content.update(json_text(resource).encode("utf-8", "replace"))
    return content.hexdigest()


def _row(span: Span, resource: Attributes, scope: str, tenant: str, arrived_ms: int) -> SpanRow:
    _check(span)
    attributes = _attributes(_important_first(span.attributes), ATTRIBUTES_PER_SPAN)
    return SpanRow(
        tenant=tenant,
        arrived_ms=arrived_ms,
        start_ns=span.start_time_unix_nano,
        # A span that ends before it began has an end that was never set, or a clock that was put back meanwhile.
        end_ns=max(span.end_time_unix_nano, span.start_time_unix_nano),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        job_id=text_of(attributes, Key.INVOCATION_ID),
        endpoint_id=text_of(resource, Key.FAAS_NAME) or text_of(attributes, Key.FAAS_NAME),
        worker_id=text_of(resource, Key.SERVICE_INSTANCE_ID) or text_of(attributes, Key.SERVICE_INSTANCE_ID),
        boot_id=text_of(resource, Key.BOOT_ID) or text_of(attributes, Key.BOOT_ID),
        name=clean(span.name, NAME_BYTES),
        kind=span.kind if 0 <= span.kind <= 255 else 0,
        status=STATUS_WORDS[span.status.code] if 0 <= span.status.code < len(STATUS_WORDS) else "unset",
        status_message=clean(span.status.message, MESSAGE_BYTES),
        attributes=attributes,
        resource=resource,
        events=_events(span.events),
        links=_links(span.links),
        scope=scope,
    )


def _check(span: Span) -> None:
    """Refuse what has no identity or no place in time. Ids of zeros are invalid by the trace context standard."""
    trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) != 16 or trace_id == NO_TRACE_ID:
        raise _Refused("trace_id is not 16 bytes, or zero")
    if len(span_id) != 8 or span_id == NO_SPAN_ID:
        raise _Refused("span_id is not 8 bytes, or zero")
    if span.parent_span_id and len(span.parent_span_id) != 8:
        raise _Refused("parent_span_id is not 8 bytes")
    if not span.start_time_unix_nano:
        raise _Refused("start_time_unix_nano is missing")
    if span.start_time_unix_nano > LATEST_NS or span.end_time_unix_nano > LATEST_NS:
        raise _Refused("a time is after the year 2262")
    if not span.name:
        raise _Refused("name is empty")


def text_of(attributes: Attributes, key: str) -> str:
    """An id column. Ids are strings; a number, as some senders write, is taken as its digits."""
    value = attributes.get(key)
    return value if isinstance(value, str) else "" if value is None or isinstance(value, (list, dict)) else str(value)


def _important_first(pairs: Sequence[KeyValue]) -> Sequence[KeyValue]:
    """Our own keys before others where some must be left out."""
    if len(pairs) <= ATTRIBUTES_PER_SPAN:
        return pairs
    return sorted(
        pairs[:ATTRIBUTES_READ],
        key=lambda pair: not pair.key.startswith(("stallscope.", "faas.", "error.", "exception.")),
    )


def _attributes(pairs: Sequence[KeyValue], most: int) -> Attributes:
    """At most `most` attributes; of a key given twice the first counts, as the standard allows."""
    attributes: Attributes = {}
    for pair in islice(pairs, ATTRIBUTES_READ):
        if len(attributes) >= most:
            break
        key = pair.key if len(pair.key) <= KEY_BYTES // 4 else clean(pair.key, KEY_BYTES)
        if key not in attributes:
            attributes[key] = _value(pair.value, key)
    return attributes


def resource_of(pairs: Sequence[KeyValue]) -> Attributes:
    """As `_attributes`, with one budget for all texts; what comes after it is used up is left out."""
    kept: Attributes = {}
    left = RESOURCE_BYTES
    for key, value in _attributes(pairs, ATTRIBUTES_PER_SPAN).items():
        left -= len(key) + _size(value)
        if left >= 0 or key in _VERBATIM:
            kept[key] = value
    return kept


def _size(value: AttributeValue) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    if isinstance(value, dict):
        return sum(len(key) + _size(item) for key, item in value.items())
    return 8


def _value(value: AnyValue, key: str, depth: int = 0) -> AttributeValue:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        text = value.string_value
        # The common case first: short, and no id. Every limit of an attribute is above it.
        return _redacted_short(text) if len(text) <= SHORT and key not in _VERBATIM else _string(text, key)
    if kind == "int_value":
        return value.int_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "double_value":
        return _double(value.double_value)
    if kind == "bytes_value":  # base64, as in OTLP/JSON; cut before it is encoded
        return base64.b64encode(value.bytes_value[: ATTRIBUTE_BYTES * 3 // 4]).decode()
    return _nested(value, key, depth)


def _nested(value: AnyValue, key: str, depth: int) -> AttributeValue:
    if depth >= DEPTH:
        return TOO_DEEP
    if value.HasField("array_value"):
        return [_value(item, key, depth + 1) for item in value.array_value.values[:ARRAY_ITEMS]]
    if value.HasField("kvlist_value"):
        return {
            clean(pair.key, KEY_BYTES): _value(pair.value, key, depth + 1)
            for pair in value.kvlist_value.values[:ARRAY_ITEMS]
        }
    return None


def _double(value: float) -> AttributeValue:
    """JSON, in which rows are stored and shown, has no word for these three; OTLP/JSON writes them as text too."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _string(text: str, key: str) -> str:
    if key in _VERBATIM:
        return bounds.clip(text, _LIMITS.get(key, JOB_ID_BYTES))
    if key == Key.LOG_TAIL:
        return clean_tail(text, TAIL_BYTES)
    return clean(text, _LIMITS.get(key, ATTRIBUTE_BYTES))


def clean(text: str, limit_bytes: int) -> str:
    """The head of `text` without secrets, in at most `limit_bytes`.

    Cut once before redaction too, so that ten megabytes cost as much as twenty kilobytes; the overlap keeps whole any
    secret that the final cut would split.
    """
    if len(text) <= SHORT:
        return bounds.clip(_redacted_short(text), limit_bytes)
    head = text[: limit_bytes + LOG_OVERLAP_BYTES]
    cleaned = bounds.clip(_redacted(head), limit_bytes)
    if len(head) < len(text) and not cleaned.endswith(bounds.CUT_MARK):
        return bounds.clip(cleaned + " " * limit_bytes, limit_bytes)  # redaction made it fit; it is cut all the same
    return cleaned


def clean_tail(text: str, limit_bytes: int) -> str:
    """The end of `text` without secrets, in at most `limit_bytes`."""
    end = text[-(limit_bytes + LOG_OVERLAP_BYTES) :]
    cleaned = redact(end, truncated=True) if len(end) < len(text) else _redacted(end)
    if len(cleaned.encode("utf-8", "replace")) * JSON_GROWTH <= limit_bytes:
        return bounds.valid(cleaned)  # the exact count is slow, and there is nothing to cut
    return bounds.tail(cleaned, limit_bytes)


@lru_cache(maxsize=8192)
def _redacted_short(text: str) -> str:
    """Short texts repeat (names, hosts, models), and looking for secrets is what costs most here."""
    return bounds.valid(_redacted(text))


def _redacted(text: str) -> str:
    """Looked at closely only where a scan, a hundred times as fast, found that there may be something."""
    if not suspects.in_text(text):
        return text
    _work.left -= len(text)
    if _work.left < 0:
        raise TooLarge("texts that may hold secrets, of one request,", CLOSE_LOOK_CHARACTERS, "characters")
    return redact(text)


class _Work(threading.local):
    left = math.inf
    """Characters that this thread may still look at closely for the request which it reads."""


_work: Final = _Work()


@contextmanager
def _bounded_work() -> Iterator[None]:
    _work.left = CLOSE_LOOK_CHARACTERS
    try:
        yield
    finally:
        _work.left = math.inf


def _events(events: Sequence[Span.Event]) -> list[SpanEvent]:
    return [
        SpanEvent(
            clean(event.name, NAME_BYTES),
            min(event.time_unix_nano, LATEST_NS),
            _attributes(event.attributes, ATTRIBUTES_PER_SPAN),
        )
        for event in events[:EVENTS_PER_SPAN]
    ]


def _links(links: Sequence[Span.Link]) -> list[SpanLink]:
    return [
        SpanLink(link.trace_id.hex(), link.span_id.hex(), _attributes(link.attributes, ATTRIBUTES_PER_SPAN))
        for link in links[:EVENTS_PER_SPAN]
        if len(link.trace_id) == 16 and len(link.span_id) == 8
    ]


def job_ids(rows: Sequence[SpanRow]) -> set[str]:
    """The requests that these rows tell of: their own, and those that a dying worker had in hand."""
    found = {row.job_id for row in rows if row.job_id}
    for row in rows:
        for key in (Key.DEATH_JOBS_IN_HAND, Key.SHUTDOWN_JOBS_IN_HAND):
            named = row.attributes.get(key)
            if isinstance(named, list):
                found.update(job_id for job_id in named if isinstance(job_id, str) and job_id)
    return found


def worker_boots(rows: Iterable[SpanRow]) -> set[tuple[str, str]]:
    """(worker id, boot id) of the rows that tell of a worker and of no request."""
    return {(row.worker_id, row.boot_id) for row in rows if not row.job_id and (row.worker_id or row.boot_id)}
