"""OTLP message → rows: pure, and trusting nobody."""

from __future__ import annotations

import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from otlp_bytes import RESOURCE, any_value, pairs, request_of, span

from collector import decode
from collector.decode import span_rows
from collector.errors import TooLarge
from collector.rows import SpanEvent, SpanLink, SpanRow, json_text, span_row
from sdk_exporter.contract import (
    ARRAY_ITEMS,
    ATTRIBUTE_BYTES,
    ATTRIBUTES_PER_SPAN,
    EVENTS_PER_SPAN,
    JOB_ID_BYTES,
    MESSAGE_BYTES,
    REDACTED,
    STACKTRACE_BYTES,
    Key,
)

SECRET = "hf_" + string.ascii_letters[:34]  # put together here: no scanner should take it for a leak


def row_of(sent: Span, resource: dict[str, Any] | None = None) -> SpanRow:
    """The one row that a span becomes."""
    rows, rejections = span_rows(request_of(sent, resource=resource), "default", 7)
    assert rejections.count == 0, rejections.message
    [row] = rows
    return row


def test_everything_of_a_span_arrives() -> None:
    sent = span(
        "prestart.hook",
        parent_span_id=b"\x01" * 8,
        kind=Span.SpanKind.SPAN_KIND_CONSUMER,
        status=Status(code=Status.StatusCode.STATUS_CODE_ERROR, message="no"),
        attributes={"s": "text", "i": -(2**63), "d": 0.5, "b": True, "l": [1, "x", [2.0]], "m": {"k": {"n": None}}},
        events=[Span.Event(time_unix_nano=9, name="exception", attributes=pairs({Key.EXCEPTION_TYPE: "E"}))],
        links=[Span.Link(trace_id=b"\x02" * 16, span_id=b"\x03" * 8, attributes=pairs({"why": "boot"}))],
    )
    row = row_of(sent)
    assert row.attributes == {
        "s": "text",
        "i": -(2**63),
        "d": 0.5,
        "b": True,
        "l": [1, "x", [2.0]],
        "m": {"k": {"n": None}},
        Key.INVOCATION_ID: "job-1",
    }
    assert (row.parent_id, row.kind, row.status, row.status_message) == ("01" * 8, 5, "error", "no")
    assert row.events == [SpanEvent("exception", 9, {Key.EXCEPTION_TYPE: "E"})]
    assert row.links == [SpanLink("02" * 16, "03" * 8, {"why": "boot"})]
    assert (row.worker_id, row.endpoint_id, row.boot_id) == ("worker-1", "endpoint-1", "b" * 32)
    assert (row.tenant, row.arrived_ms, row.scope, row.resource) == ("default", 7, "stallscope", RESOURCE)


def test_foreign_spans_may_carry_the_ids_themselves() -> None:
    row = row_of(span(attributes={Key.SERVICE_INSTANCE_ID: "w", Key.FAAS_NAME: "e"}), resource={})
    assert (row.worker_id, row.endpoint_id, row.boot_id) == ("w", "e", "")
    assert row_of(span(job_id=None, attributes={Key.INVOCATION_ID: 123})).job_id == "123"
    assert row_of(span(job_id=None)).job_id == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trace_id": b""}, "trace_id"),
        ({"trace_id": bytes(16)}, "trace_id"),
        ({"span_id": b"\x01" * 9}, "span_id"),
        ({"span_id": bytes(8)}, "span_id"),
        ({"parent_span_id": b"\x01"}, "parent_span_id"),
        ({"start_time_unix_nano": 0}, "start_time_unix_nano"),
        ({"start_time_unix_nano": 2**64 - 1}, "2262"),
        ({"end_time_unix_nano": 2**63}, "2262"),
        ({"name": ""}, "name"),
    ],
)
def test_a_span_without_identity_or_place_in_time_is_refused_alone(changes: dict[str, Any], reason: str) -> None:
    rows, rejections = span_rows(request_of(span(**changes), span(job_id="good")), "default", 7)
    assert [row.job_id for row in rows] == ["good"]
    assert rejections.count == 1
    assert reason in rejections.message


def test_a_job_id_is_kept_verbatim_up_to_its_limit() -> None:
    for job_id in ("a/b?c#d%20", "line\nbreak\x00\x07", "é漢🎉", "../..", " spaces ", SECRET, "x" * JOB_ID_BYTES):
        row = row_of(span(job_id=job_id))
        assert row.job_id == job_id == row.attributes[Key.INVOCATION_ID]
    long = row_of(span(job_id="é" * JOB_ID_BYTES)).job_id
    assert len(long.encode()) <= JOB_ID_BYTES
    assert long.endswith("…[cut]")


def test_secrets_are_redacted_again_wherever_text_is() -> None:
    text = f"token {SECRET} end"
    sent = span(
        text,
        status=Status(message=text),
        attributes={"a": text, "deep": {"b": [text]}, Key.LOG_TAIL: text},
        events=[Span.Event(name=text, attributes=pairs({Key.EXCEPTION_MESSAGE: text}))],
        links=[Span.Link(trace_id=b"\x02" * 16, span_id=b"\x03" * 8, attributes=pairs({"c": text}))],
    )
    row = row_of(sent, resource={"r": text})
    stored = json_text([row.name, row.status_message, row.attributes, row.events, row.links, row.resource])
    assert SECRET not in stored
    assert stored.count(REDACTED) == 9


def test_a_secret_across_the_cut_is_whole_when_it_is_looked_for() -> None:
    for before in range(ATTRIBUTE_BYTES - len(SECRET) - 12, ATTRIBUTE_BYTES, 7):
        text = "y" * (before - 1) + " " + SECRET + " " + "z" * ATTRIBUTE_BYTES
        value = row_of(span(attributes={"a": text})).attributes["a"]
        assert isinstance(value, str)
        assert len(value.encode()) <= ATTRIBUTE_BYTES
        assert SECRET[:12] not in value
        assert value.endswith("…[cut]")


def test_limits_by_kind_of_text() -> None:
    much = "w " * 20_000
    row = row_of(
        span(
            much,
            status=Status(message=much),
            events=[
                Span.Event(
                    name="exception",
                    attributes=pairs({Key.EXCEPTION_MESSAGE: much, Key.EXCEPTION_STACKTRACE: much, "k" * 999: "v"}),
                )
            ]
            * (EVENTS_PER_SPAN + 3),
            attributes={"list": list(range(ARRAY_ITEMS + 9)), "bytes": b"\xff" * 100_000},
        )
    )
    assert len(row.status_message.encode()) <= MESSAGE_BYTES
    assert len(row.name.encode()) <= decode.NAME_BYTES
    assert len(row.events) == EVENTS_PER_SPAN
    attributes = row.events[0].attributes
    sizes = {key: len(str(value).encode()) for key, value in attributes.items()}
    assert sizes[Key.EXCEPTION_MESSAGE] <= MESSAGE_BYTES
    assert sizes[Key.EXCEPTION_STACKTRACE] <= STACKTRACE_BYTES
    assert max(len(key.encode()) for key in attributes) <= decode.KEY_BYTES
    assert row.attributes["list"] == list(range(ARRAY_ITEMS))
    assert len(str(row.attributes["bytes"])) <= ATTRIBUTE_BYTES


def test_of_too_many_attributes_our_own_stay() -> None:
    row = row_of(span(job_id=None, attributes={**{f"k{n}": n for n in range(999)}, Key.INVOCATION_ID: "last"}))
    assert len(row.attributes) == ATTRIBUTES_PER_SPAN
    assert row.job_id == "last"


def test_a_long_tail_keeps_its_end() -> None:
    tail = "".join(f"line {number}\n" for number in range(200_000))
    kept = row_of(span(attributes={Key.LOG_TAIL: tail})).attributes[Key.LOG_TAIL]
    assert isinstance(kept, str)
    assert kept.endswith("line 199999\n")
    assert len(kept.encode()) <= decode.TAIL_BYTES
    short = "café\n" * 3000
    assert row_of(span(attributes={Key.LOG_TAIL: short})).attributes[Key.LOG_TAIL] == short


def test_a_resource_has_one_budget_since_it_is_stored_with_each_span() -> None:
    row = row_of(span(), resource={**{f"r{n}": "x" * 10_000 for n in range(100)}, **RESOURCE})
    assert len(json_text(row.resource)) < 2 * decode.RESOURCE_BYTES
    assert row.worker_id == "worker-1"


def test_more_spans_than_a_request_may_hold_are_refused_whole() -> None:
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    spans.extend([Span()] * (decode.SPANS_PER_REQUEST + 1))
    with pytest.raises(TooLarge, match="spans in one request is 50000 spans"):
        span_rows(message, "default", 7)


def test_deep_nesting_ends_in_a_mark() -> None:
    value: Any = "bottom"
    for _ in range(20):
        value = [value]
    assert json_text(row_of(span(attributes={"deep": value})).attributes["deep"]) == "[" * 8 + '"[too deep]"' + "]" * 8


def test_numbers_that_json_has_no_word_for_are_told_in_words() -> None:
    row = row_of(span(attributes={"nan": math.nan, "up": math.inf, "down": -math.inf}))
    assert {key: row.attributes[key] for key in ("nan", "up", "down")} == {
        "nan": "NaN",
        "up": "Infinity",
        "down": "-Infinity",
    }


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | texts | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values), st.integers(-9, 300), st.integers(-9, 9)
)
def test_whatever_a_sender_says_becomes_a_row_that_reads_back(attributes: dict[str, Any], kind: int, code: int) -> None:
    row = row_of(span(kind=kind, status=Status(code=code), attributes=attributes), resource=attributes)
    record = {
        name: json_text(value) if name in ("attributes", "resource", "events", "links") else value
        for name, value in ((name, getattr(row, name)) for name in SpanRow.__dataclass_fields__)
    }
    assert span_row(record) == row
    assert AnyValue() == any_value(None)
