"""Records to OTLP: what a record says becomes a span, every text in it redacted and bounded.

Only OpenTelemetry's messages are used, not its SDK: its span objects, and the pass from them to messages, took two
thirds of a span's processor time, and its import a fifth of a second and 10 MiB. The messages too are loaded with the
first event only: the worker then starts earlier, and a worker without events costs nothing.

Spans are serialised one by one and joined as bytes. In protobuf a repeated field is just its entries one after the
other, so an attribute that comes again and again is redacted, made and serialised once; it was four fifths of a span's
processor time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, SpanFlags, Status

from sdk_exporter import bounds
from sdk_exporter.contract import (
    ARRAY_ITEMS,
    ATTRIBUTE_BYTES,
    ATTRIBUTES_PER_SPAN,
    EXCEPTION_EVENT,
    JOB_ID_BYTES,
    MESSAGE_BYTES,
    STACKTRACE_BYTES,
    STARTED_SUFFIX,
    VERSION,
    Key,
    Loss,
)
from sdk_exporter.recorder.delivery import MOST_BODY_BYTES, Body, Outcome
from sdk_exporter.recorder.settings import is_hex
from sdk_exporter.recorder.tail import Cleaner

_NAME_BYTES: Final = 256
_KEY_BYTES: Final = 256
_MOST_LINKS: Final = 16
_SHORT_CHARACTERS: Final = 128
_REMEMBERED: Final = 2048
_REQUEST_RESOURCE_SPANS: Final = ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER
_RESOURCE_SPANS_SCOPE_SPANS: Final = ResourceSpans.SCOPE_SPANS_FIELD_NUMBER
_SCOPE_SPANS_SPANS: Final = ScopeSpans.SPANS_FIELD_NUMBER
_SPAN_ATTRIBUTES: Final = Span.ATTRIBUTES_FIELD_NUMBER
_LENGTH_DELIMITED: Final = 2
_SCOPE: Final = InstrumentationScope(name="stallscope", version=VERSION)
_STATUS: Final = {"ok": Status.STATUS_CODE_OK, "error": Status.STATUS_CODE_ERROR}
_SAMPLED: Final = 1  # W3C trace flags
_FLAGS: Final = _SAMPLED | SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
"""As OpenTelemetry's own exporters write it: known not to come from another process."""
_VERBATIM: Final = frozenset(
    {
        Key.INVOCATION_ID,
        Key.SPAN_ID,
        Key.BOOT_ID,
        Key.SERVICE_INSTANCE_ID,
        Key.FAAS_NAME,
        Key.HEARTBEAT_JOBS,
        Key.DEATH_JOBS_IN_HAND,
        Key.SHUTDOWN_JOBS_IN_HAND,
        Key.LOG_TAIL,
    }
)
"""Ids, which must arrive as they are, and the tail, which is redacted already."""


class Unusable(ValueError):
    """A record that no span can be made of."""


class Encoder:
    """Makes spans of one worker boot."""

    def __init__(self, cleaner: Cleaner, resource: Mapping[str, Any]) -> None:
        self._cleaner = cleaner
        self._facts = dict(resource)
        self._resource: bytes | None = None
        # Words, names and settings come again and again. `typed`: 1, 1.0 and True are equal and not the same.
        self._attribute_again = functools.lru_cache(_REMEMBERED, typed=True)(self._attribute)
        self._clean_short = functools.lru_cache(_REMEMBERED)(self._clean_now)

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Merges facts about the worker into the resource of all spans that follow. What the user set stays."""
        if not facts:
            return
        for key, value in facts.items():
            self._facts.setdefault(str(key), value)
        self._resource = None

    def spans(self, record: Mapping[str, Any], extra: Mapping[str, Any]) -> list[bytes]:
        """The spans of one record, serialised, `extra` being the recorder's own attributes. Raises Unusable,
        RedactionFailed."""
        kind = record.get("k")
        if kind == "start":
            return [self._span(record, extra, started=True)]
        if kind in ("end", "point"):
            return [self._span(record, extra, started=False)]
        return []

    def bodies(self, spans: Sequence[bytes], outcome: Outcome) -> list[Body]:
        """Requests below the bound, halved until they are; a span that alone is over it is counted in `outcome`."""
        if not spans:
            return []
        scope_spans = ScopeSpans(scope=_SCOPE).SerializeToString()
        scope_spans += b"".join(_entry(_SCOPE_SPANS_SPANS, span) for span in spans)
        group = self._current_resource() + _entry(_RESOURCE_SPANS_SCOPE_SPANS, scope_spans)
        data = _entry(_REQUEST_RESOURCE_SPANS, group)
        if len(data) <= MOST_BODY_BYTES:
            return [Body(data, len(spans))]
        if len(spans) == 1:
            outcome.lose(Loss.TOO_LARGE, 1)
            return []
        middle = len(spans) // 2
        return self.bodies(spans[:middle], outcome) + self.bodies(spans[middle:], outcome)

    # ----------------------------------------------------------------------------------------------------- pieces

    def _span(self, record: Mapping[str, Any], extra: Mapping[str, Any], *, started: bool) -> bytes:
        trace_id, span_id, name = record.get("tr"), record.get("id"), record.get("n")
        if not is_hex(trace_id, 32) or not is_hex(span_id, 16) or not isinstance(name, str) or not name:
            raise Unusable("ids or name")
        parent = record.get("pa")
        given: dict[str, Any] = dict(record["a"]) if isinstance(record.get("a"), dict) else {}
        given.update(extra)
        if isinstance(record.get("j"), str):
            given[Key.INVOCATION_ID] = record["j"]
        end = _time(record.get("t"))
        begin = min(_time(record.get("t0", record.get("t"))), end)
        if started:
            given[Key.SPAN_ID] = span_id
            name, span_id, begin = name + STARTED_SUFFIX, started_id(str(span_id)), end
        fault = record.get("x") if isinstance(record.get("x"), dict) and not started else None
        if fault:
            given.setdefault(Key.ERROR_TYPE, str(fault.get("type", "")))
        span = Span(
            name=self._clean(name, _NAME_BYTES),
            trace_id=bytes.fromhex(str(trace_id)),
            span_id=bytes.fromhex(str(span_id)),
            kind=Span.SPAN_KIND_INTERNAL,
            flags=_FLAGS,
            start_time_unix_nano=begin,
            end_time_unix_nano=end,
            links=_links(record.get("li")),
            status=self._status(record, fault),
        )
        if isinstance(parent, str) and is_hex(parent, 16):
            span.parent_span_id = bytes.fromhex(parent)
        if fault:
            span.events.append(self._exception(fault, end))
        return span.SerializeToString() + self._attributes(given)

    def _current_resource(self) -> bytes:
        """Everything of ResourceSpans but its spans."""
        if self._resource is None:
            told = (self._key_value(key, value) for key, value in self._facts.items())
            attributes = itertools.islice(filter(None, told), ATTRIBUTES_PER_SPAN)
            self._resource = ResourceSpans(resource=Resource(attributes=attributes)).SerializeToString()
        return self._resource

    def _attributes(self, given: Mapping[str, Any]) -> bytes:
        """Entries of a span, at most `ATTRIBUTES_PER_SPAN`."""
        kept: list[bytes] = []
        for key, value in given.items():
            kind = type(value)
            again = kind is int or (kind is str and len(value) <= _SHORT_CHARACTERS) or kind is float or kind is bool
            entry = self._attribute_again(key, value) if again else self._attribute(key, value)
            if entry:
                kept.append(entry)
                if len(kept) >= ATTRIBUTES_PER_SPAN:
                    break
        return b"".join(kept)

    def _attribute(self, key: str, value: object) -> bytes:
        told = self._key_value(key, value)
        return b"" if told is None else _entry(_SPAN_ATTRIBUTES, told.SerializeToString())

    def _key_value(self, key: str, value: object) -> KeyValue | None:
        """None for what OTLP cannot carry."""
        told = self._value(key, value)
        return None if told is None else KeyValue(key=bounds.clip(str(key), _KEY_BYTES), value=told)

    def _value(self, key: str, value: object) -> AnyValue | None:
        """What OTLP can carry of it, None for nothing."""
        if value is None:
            return None
        if isinstance(value, bool):
            return AnyValue(bool_value=value)
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return AnyValue(int_value=value)
        if isinstance(value, float):
            return AnyValue(double_value=value) if math.isfinite(value) else None
        if isinstance(value, (list, tuple)):
            items = [AnyValue(string_value=self._string(key, str(item))) for item in list(value)[:ARRAY_ITEMS]]
            return AnyValue(array_value=ArrayValue(values=items))
        return AnyValue(string_value=self._string(key, str(value)))

    def _string(self, key: str, text: str) -> str:
        if key == Key.LOG_TAIL:
            return bounds.valid(text)  # bounded by its own setting already
        if key in _VERBATIM:
            return bounds.clip(text, JOB_ID_BYTES)
        return self._clean(text, ATTRIBUTE_BYTES)

    def _clean(self, text: str, limit_bytes: int) -> str:
        if len(text) <= _SHORT_CHARACTERS:
            return self._clean_short(text, limit_bytes)
        return self._clean_now(text, limit_bytes)

    def _clean_now(self, text: str, limit_bytes: int) -> str:
        """Redacted, then cut. What is far beyond the bound is not looked at."""
        if text.endswith(bounds.CUT_MARK):  # the worker has cut it: what stands before the mark may be half a secret
            text = self._cleaner.text(text.removesuffix(bounds.CUT_MARK), open_end=True) + bounds.CUT_MARK
        head = text[: 4 * limit_bytes]
        return bounds.clip(self._cleaner.text(head, open_end=len(head) < len(text)), limit_bytes)

    def _exception(self, fault: Mapping[str, Any], at: int) -> Span.Event:
        facts = {
            Key.EXCEPTION_TYPE: self._clean(str(fault.get("type", "")), _NAME_BYTES),
            Key.EXCEPTION_MESSAGE: self._clean(str(fault.get("message", "")), MESSAGE_BYTES),
            Key.EXCEPTION_STACKTRACE: self._clean(str(fault.get("stacktrace", "")), STACKTRACE_BYTES),
        }
        attributes = [
            KeyValue(key=str(key), value=AnyValue(string_value=value)) for key, value in facts.items() if value
        ]
        return Span.Event(name=EXCEPTION_EVENT, time_unix_nano=at, attributes=attributes)

    def _status(self, record: Mapping[str, Any], fault: Mapping[str, Any] | None) -> Status:
        unset = Status.STATUS_CODE_ERROR if fault else Status.STATUS_CODE_UNSET
        code = _STATUS.get(str(record.get("s")), unset)
        if code != Status.STATUS_CODE_ERROR or not fault:
            return Status(code=code)
        return Status(code=code, message=self._clean(str(fault.get("message", "")), MESSAGE_BYTES))


def started_id(span_id: str) -> str:
    """Id of `<name>.started`, made from its span's: a record that is read twice stays one span."""
    return hashlib.blake2b(f"{span_id}{STARTED_SUFFIX}".encode(), digest_size=8).hexdigest()


def _entry(field: int, data: bytes) -> bytes:
    """One entry of a field of messages: its tag (one byte for fields below 16), the length as a varint, the bytes."""
    size, head = len(data), bytearray((field << 3 | _LENGTH_DELIMITED,))
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + data


def _links(given: object) -> list[Span.Link]:
    """One [trace id, span id] or a list of them."""
    pairs: Iterable[Any] = given if isinstance(given, list) else ()
    if isinstance(given, list) and given and isinstance(given[0], str):
        pairs = [given]
    return [
        Span.Link(trace_id=bytes.fromhex(pair[0]), span_id=bytes.fromhex(pair[1]), flags=_FLAGS)
        for pair in list(pairs)[:_MOST_LINKS]
        if isinstance(pair, list) and len(pair) == 2 and is_hex(pair[0], 32) and is_hex(pair[1], 16)
    ]


def _time(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63:
        return value
    raise Unusable("time")
