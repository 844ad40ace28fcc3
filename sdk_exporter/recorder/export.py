"""Records to OTLP: what a record says becomes a span, every text in it redacted and bounded.

OpenTelemetry is imported here, and this module only when the first event has come: the worker then starts a fifth of a
second earlier, and a worker without events costs nothing.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

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
_SCOPE: Final = InstrumentationScope("stallscope", VERSION)
_STATUS: Final = {"ok": StatusCode.OK, "error": StatusCode.ERROR}
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
        self._resource: Resource | None = None
        # Words, names and settings come again and again, and redaction is half of what a span costs.
        self._clean_short = functools.lru_cache(_REMEMBERED)(self._clean_now)

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Merges facts about the worker into the resource of all spans that follow. What the user set stays."""
        for key, value in facts.items():
            self._facts.setdefault(str(key), value)
        self._resource = None

    def spans(self, record: Mapping[str, Any], extra: Mapping[str, Any]) -> list[ReadableSpan]:
        """The spans of one record, `extra` being the recorder's own attributes. Raises Unusable, RedactionFailed."""
        kind = record.get("k")
        if kind == "start":
            return [self._span(record, extra, started=True)]
        if kind in ("end", "point"):
            return [self._span(record, extra, started=False)]
        return []

    def bodies(self, spans: Sequence[ReadableSpan], outcome: Outcome) -> list[Body]:
        """Requests below the bound, halved until they are; a span that alone is over it is counted in `outcome`."""
        if not spans:
            return []
        data = encode_spans(spans).SerializeToString()
        if len(data) <= MOST_BODY_BYTES:
            return [Body(data, len(spans))]
        if len(spans) == 1:
            outcome.lose(Loss.TOO_LARGE, 1)
            return []
        middle = len(spans) // 2
        return self.bodies(spans[:middle], outcome) + self.bodies(spans[middle:], outcome)

    # ----------------------------------------------------------------------------------------------------- pieces

    def _span(self, record: Mapping[str, Any], extra: Mapping[str, Any], *, started: bool) -> ReadableSpan:
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
        return ReadableSpan(
            name=bounds.clip(self._cleaner.text(name), _NAME_BYTES),
            context=_context(str(trace_id), str(span_id)),
            parent=_context(str(trace_id), parent) if isinstance(parent, str) and is_hex(parent, 16) else None,
            resource=self._current_resource(),
            attributes=self._attributes(given),
            events=[self._exception(fault, end)] if fault else [],
            links=_links(record.get("li")),
            status=self._status(record, fault),
            start_time=begin,
            end_time=end,
            instrumentation_scope=_SCOPE,
        )

    def _current_resource(self) -> Resource:
        if self._resource is None:
            self._resource = Resource(self._attributes(self._facts))
        return self._resource

    def _attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in given.items():
            key = str(key)
            clean = self._value(key, value)
            if clean is not None:
                kept[key if len(key) < _KEY_BYTES // 4 else bounds.clip(key, _KEY_BYTES)] = clean
            if len(kept) >= ATTRIBUTES_PER_SPAN:
                break
        return kept

    def _value(self, key: str, value: object) -> object:
        """What OTLP can carry of it, None for nothing."""
        if isinstance(value, str):
            return self._string(key, value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**63 else str(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        if isinstance(value, (list, tuple)):
            return [self._string(key, str(item)) for item in list(value)[:ARRAY_ITEMS]]
        return self._string(key, str(value))

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

    def _exception(self, fault: Mapping[str, Any], at: int) -> Event:
        facts = {
            Key.EXCEPTION_TYPE: self._clean(str(fault.get("type", "")), _NAME_BYTES),
            Key.EXCEPTION_MESSAGE: self._clean(str(fault.get("message", "")), MESSAGE_BYTES),
            Key.EXCEPTION_STACKTRACE: self._clean(str(fault.get("stacktrace", "")), STACKTRACE_BYTES),
        }
        return Event(EXCEPTION_EVENT, {key: value for key, value in facts.items() if value}, at)

    def _status(self, record: Mapping[str, Any], fault: Mapping[str, Any] | None) -> Status:
        code = _STATUS.get(str(record.get("s")), StatusCode.ERROR if fault else StatusCode.UNSET)
        if code is not StatusCode.ERROR or not fault:
            return Status(code)
        return Status(code, self._clean(str(fault.get("message", "")), MESSAGE_BYTES))


def started_id(span_id: str) -> str:
    """Id of `<name>.started`, made from its span's: a record that is read twice stays one span."""
    return hashlib.blake2b(f"{span_id}{STARTED_SUFFIX}".encode(), digest_size=8).hexdigest()


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _links(given: object) -> list[Link]:
    """One [trace id, span id] or a list of them."""
    pairs: Iterable[Any] = given if isinstance(given, list) else ()
    if isinstance(given, list) and given and isinstance(given[0], str):
        pairs = [given]
    return [
        Link(_context(pair[0], pair[1]))
        for pair in list(pairs)[:_MOST_LINKS]
        if isinstance(pair, list) and len(pair) == 2 and is_hex(pair[0], 32) and is_hex(pair[1], 16)
    ]


def _time(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63:
        return value
    raise Unusable("time")
