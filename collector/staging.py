"""OTLP message → what the store decodes itself (`migrations/0002`, `0003`): spans as they came, and rows made here.

A plain span, as nearly all are, is only checked and goes on as the bytes that it is; the store reads its attributes at
a twentieth of what Python needs. One that may need redaction, clipping or a value that the store's decoder cannot keep
becomes a row in Python (`decode`), and travels in the same message as a span with ready texts. Both end as equal rows.

Pure: no clock, network or settings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status

from sdk_exporter.contract import ATTRIBUTES_PER_SPAN, Key

from . import decode
from .decode import Rejections
from .rows import Attributes, SpanRow, json_text
from .suspects import suspects

SPANS_PER_PART: Final = 2_000
NAME_CHARACTERS: Final = 64
"""A longer name is looked at: it could be more than `decode.NAME_BYTES`."""
JOB_ID_VALUE: Final = b"\n" + bytes((len(Key.INVOCATION_ID),)) + Key.INVOCATION_ID.encode() + b"\x12"
"""What stands before the value of a job id in a serialized span."""

SCHEMA: Final = Path(__file__).with_name("staged.proto")
"""The message that the store reads: OTLP's numbers, and from 1001 our own. A sender's own fields of these numbers count
for nothing: those of a resource are written here, and those of a span are read where `ready` is set, which is where the
span was written here too."""
MESSAGE_NAME: Final = "Staged"


@dataclass(frozen=True, slots=True)
class Part:
    """One `resource_spans` of the message, with its tag: parts one after the other are one message.

    In two pieces, so that what may be a megabyte is copied once, when an insert is put together.
    """

    head: bytes
    body: bytes
    spans: int


@dataclass(slots=True)
class Staged:
    """What a request comes to."""

    parts: list[Part] = field(default_factory=list)
    rejections: Rejections = field(default_factory=Rejections)
    job_ids: set[str] = field(default_factory=set)
    """Requests that there is news of."""
    worker_boots: set[tuple[str, str]] = field(default_factory=set)
    """(worker id, boot id) of spans that tell of a worker and of no request."""

    @property
    def spans(self) -> int:
        """How many are to be stored."""
        return sum(part.spans for part in self.parts)


def stage(message: ExportTraceServiceRequest, tenant: str, arrived_ms: int) -> Staged:
    """All spans of a message, which is used up. Raises TooLarge where there are more than one request may hold."""
    decode.refuse_too_many(sum(len(scope.spans) for part in message.resource_spans for scope in part.scope_spans))
    staged, closer = Staged(), ExportTraceServiceRequest()
    for part in message.resource_spans:
        head = _Head(tenant, arrived_ms, _resource(part.resource.SerializeToString()))
        for scope in part.scope_spans:
            name = decode.clean(scope.scope.name, decode.NAME_BYTES)
            scope.ClearField("scope")
            suspect = [span for piece in _pieces(scope) for span in _stage_plain(staged, piece, name, head)]
            if suspect:
                copied = closer.resource_spans.add(resource=part.resource).scope_spans.add()
                copied.scope.name = name
                copied.spans.extend(suspect)
    rows, staged.rejections = decode.span_rows(closer, tenant, arrived_ms)
    _add_rows(staged, rows)
    return staged


def stage_rows(rows: Sequence[SpanRow], rejections: Rejections) -> Staged:
    """Rows that were made in Python, such as those of log records."""
    staged = Staged(rejections=rejections)
    _add_rows(staged, rows)
    return staged


def count(data: bytes) -> int:
    """How many spans staged bytes hold."""
    message = ExportTraceServiceRequest.FromString(data)
    return sum(len(scope.spans) for part in message.resource_spans for scope in part.scope_spans)


def halves(data: bytes) -> tuple[bytes, bytes] | None:
    """Staged bytes in two, to find which of them the store refuses. None: it is one span.

    Read as OTLP: our own fields are unknown to it, and kept.
    """
    total = count(data)
    if total < 2:
        return None
    return _without(data, range(total // 2, total)), _without(data, range(total // 2))


def _without(data: bytes, places: range) -> bytes:
    message = ExportTraceServiceRequest.FromString(data)
    place = 0
    for part in message.resource_spans:
        for scope in part.scope_spans:
            first, place = place, place + len(scope.spans)
            del scope.spans[max(places.start - first, 0) : max(places.stop - first, 0)]
    return message.SerializeToString()


def _pieces(scope: ScopeSpans) -> Iterator[ScopeSpans]:
    """The scope's spans in messages of no more than an insert wants."""
    if len(scope.spans) <= SPANS_PER_PART:
        yield scope
        return
    for start in range(0, len(scope.spans), SPANS_PER_PART):
        yield ScopeSpans(spans=scope.spans[start : start + SPANS_PER_PART])


def _stage_plain(staged: Staged, scope: ScopeSpans, name: str, head: _Head) -> list[Span]:
    """Stage the plain spans; the others come back."""
    taken = _take_out(scope, [place for place, span in enumerate(scope.spans) if not _is_plain(span)])
    serialized = scope.SerializeToString()
    if places := _suspect_places(serialized):
        taken += _take_out(scope, places)
        serialized = scope.SerializeToString()
    if scope.spans:
        _add(staged, head, name, serialized, len(scope.spans), ready=False)
        _tell_news(staged, head, serialized, len(scope.spans))
    return taken


def _is_plain(span: Span) -> bool:
    """Whether nothing is odd about the span but, perhaps, its attributes: of these `suspects` tells."""
    trace_id, span_id = span.trace_id, span.span_id
    return (
        len(trace_id) == 16
        and len(span_id) == 8
        and trace_id != decode.NO_TRACE_ID
        and span_id != decode.NO_SPAN_ID
        and len(span.parent_span_id) in (0, 8)
        and 0 < span.start_time_unix_nano <= decode.LATEST_NS
        and span.end_time_unix_nano <= decode.LATEST_NS
        and 0 < len(span.name) <= NAME_CHARACTERS
        and len(span.attributes) <= ATTRIBUTES_PER_SPAN
        and not (span.events or span.links)
        and not (span.HasField("status") and (span.status.code not in (0, 1) or span.status.message))
    )


def _take_out(scope: ScopeSpans, places: Sequence[int]) -> list[Span]:
    taken = []
    for place in places:
        span = Span()
        span.CopyFrom(scope.spans[place])
        taken.append(span)
    for place in reversed(places):
        del scope.spans[place]
    return taken


def _suspect_places(serialized: bytes) -> list[int]:
    """Which spans of a serialized ScopeSpans need a closer look."""
    ends = suspects.ends(serialized)
    if ends == []:
        return []
    starts = list(_span_starts(serialized))
    if ends is None:
        return list(range(len(starts)))
    return sorted({bisect_right(starts, end) - 1 for end in ends} - {-1})


def _span_starts(serialized: bytes) -> Iterator[int]:
    """Where the spans of a ScopeSpans begin: its fields one after the other, all of them length-delimited."""
    position = 0
    while position < len(serialized):
        if serialized[position] == 0x12:
            yield position
        size, position = _varint(serialized, _varint(serialized, position)[1])
        position += size


# ------------------------------------------------------------------------------------------------------------ bytes


@dataclass(frozen=True, slots=True)
class _Resource:
    """What a resource comes to in the message."""

    fields: bytes
    boot: tuple[str, str]  # (worker id, boot id)

    @classmethod
    def of(cls, attributes: Attributes) -> _Resource:
        """Of cleaned attributes."""
        ids = [decode.text_of(attributes, key) for key in (Key.FAAS_NAME, Key.SERVICE_INSTANCE_ID, Key.BOOT_ID)]
        texts = (json_text(attributes), *ids)
        fields = b"".join(_text_field(1003 + place, text) for place, text in enumerate(texts))
        return cls(fields, (ids[1], ids[2]))


@lru_cache(maxsize=256)
def _resource(serialized: bytes) -> _Resource:
    """A worker says the same with every request."""
    return _Resource.of(decode.resource_of(Resource.FromString(serialized).attributes))


@dataclass(frozen=True, slots=True)
class _Head:
    """What the spans of a part have in common."""

    tenant: str
    arrived_ms: int
    resource: _Resource

    def serialized(self, *, ready: bool) -> bytes:
        own = _text_field(1001, self.tenant) + _number_field(1002, self.arrived_ms) + self.resource.fields
        return own + _number_field(1007, 1) if ready else own


def _add(staged: Staged, head: _Head, name: str, spans: bytes, count: int, *, ready: bool) -> None:
    """Add serialized spans, each with its tag, of one scope."""
    scope = _field(1, _text_field(1, name))
    common = head.serialized(ready=ready) + _tag_and_size(2, len(scope) + len(spans)) + scope
    staged.parts.append(Part(_tag_and_size(1, len(common) + len(spans)) + common, spans, count))


def _tell_news(staged: Staged, head: _Head, serialized: bytes, spans: int) -> None:
    """Which requests, or which worker, the serialized spans tell of."""
    values = serialized.split(JOB_ID_VALUE)[1:]
    # A plain id is a short text: `suspects` takes all others for odd. Two lengths and a tag stand before it.
    staged.job_ids.update(value[3 : 3 + value[2]].decode("utf-8", "replace") for value in set(values) if len(value) > 2)
    if len(values) < spans and any(boot := head.resource.boot):
        staged.worker_boots.add(boot)


def _add_rows(staged: Staged, rows: Sequence[SpanRow]) -> None:
    alike: dict[tuple[str, int, int, str], list[SpanRow]] = {}
    for row in rows:
        alike.setdefault((row.tenant, row.arrived_ms, id(row.resource), row.scope), []).append(row)
    for together in alike.values():
        head = _Head(together[0].tenant, together[0].arrived_ms, _Resource.of(together[0].resource))
        for start in range(0, len(together), SPANS_PER_PART):
            some = together[start : start + SPANS_PER_PART]
            spans = b"".join(_field(2, _ready_span(row)) for row in some)
            _add(staged, head, together[0].scope, spans, len(some), ready=True)
    staged.job_ids |= decode.job_ids(rows)
    staged.worker_boots |= decode.worker_boots(rows)


def _ready_span(row: SpanRow) -> bytes:
    span = Span(
        trace_id=bytes.fromhex(row.trace_id),
        span_id=bytes.fromhex(row.span_id),
        parent_span_id=bytes.fromhex(row.parent_id),
        name=row.name,
        start_time_unix_nano=row.start_ns,
        end_time_unix_nano=row.end_ns,
        status=Status(code=decode.STATUS_WORDS.index(row.status)),  # type: ignore[arg-type]  # an enum's number
    )
    texts = (row.job_id, json_text(row.attributes), json_text(row.events), json_text(row.links), row.status_message)
    ready = b"".join(_text_field(1001 + place, text) for place, text in enumerate(texts))
    return span.SerializeToString() + _number_field(6, row.kind) + ready


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """(number, where it ends)."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


def _encoded(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _tag_and_size(number: int, size: int) -> bytes:
    return _encoded(number << 3 | 2) + _encoded(size)


def _field(number: int, data: bytes) -> bytes:
    return _tag_and_size(number, len(data)) + data


def _text_field(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


def _number_field(number: int, value: int) -> bytes:
    return _encoded(number << 3) + _encoded(value)
