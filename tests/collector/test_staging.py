"""What the store decodes itself is row for row what Python would have made of it."""

from __future__ import annotations

import math
import os
import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status
from otlp_bytes import RESOURCE, any_value, pairs, request_of, span

from collector import decode, staging
from collector.clickhouse import Database
from collector.metrics import Metrics
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from collector.suspects import suspects
from collector.writer import Request, SpanWriter
from sdk_exporter.contract import REDACTED, Key

SELECT = f"SELECT {SPAN_COLUMNS} FROM spans ORDER BY start_ns, span_id"  # noqa: S608 (a constant)
NOW_MS = time.time_ns() // 1_000_000
ODD: tuple[dict[str, Any], ...] = (
    {"attributes": {"zero": 0, "no": False, "yes": True, "none": None, "empty": "", "least": -(2**63)}},
    {"attributes": {"whole": 41.0, "minus": -0.0, "large": 1e300, "small": 1.5e-7, "third": 1 / 3, "digits": 1e16}},
    {"attributes": {"nan": math.nan, "endless": math.inf, "down": -math.inf}},
    {
        "attributes": {
            "list": ["a", 1, None, [2.5]],
            "map": {"k": {"deep": [True]}},
            "bytes": b"\x00\xff",
            "nothing": [],
        }
    },
    {"attributes": {"many": list(range(100)), "long list": ["x" * 50] * 9, "bytes": os.urandom(40)}},
    {"attributes": {"text": 'a/b "q" \\ \n\t\x00\x1f\x7f é \u2028 日本 😀 <&>\' </script>', "": "without a key"}},
    {"attributes": {"k" * 64: "v", "k" * 65: "v", "é" * 40: "v"}},
    {"attributes": {"t255": "x" * 255, "t256": "x" * 256, "t": "é" * 20_000, "end": "fine"}},
    {"attributes": {f"key.{number}": number for number in range(200)}},
    {"attributes": {Key.LOG_TAIL: "line\n" * 3_000, "note": "token=" + "h4" * 20}},
    {"attributes": {"note": "Authorization: Bearer " + "h4" * 20}, "job_id": "sk-" + "a1" * 20},
    {"name": "n" * 64},
    {"name": "n" * 300},
    {"name": "Bearer " + "h4" * 20},
    {"status": Status(code=Status.StatusCode.STATUS_CODE_OK)},
    {"status": Status(code=Status.StatusCode.STATUS_CODE_ERROR, message="key: " + "h4" * 20)},
    {"status": Status(message="said without a code")},
    {"kind": 300},
    {"kind": 2, "parent_span_id": b"12345678", "trace_state": "a=b", "flags": 1},
    {"end_time_unix_nano": 5},
    {"job_id": None, "attributes": {Key.INVOCATION_ID: 17}},
    {"job_id": None},
    {"events": [Span.Event(name="exception", time_unix_nano=9, attributes=pairs({"exception.type": "E"}))]},
    {"links": [Span.Link(trace_id=b"t" * 16, span_id=b"s" * 8, attributes=pairs({"why": "batch"}))]},
)


async def both(db: Database, message: ExportTraceServiceRequest) -> tuple[list[SpanRow], list[SpanRow]]:
    """(as stored, as Python alone makes them), in the same order."""
    copied = ExportTraceServiceRequest.FromString(message.SerializeToString())
    made, _ = decode.span_rows(copied, "acme", NOW_MS)
    writer = SpanWriter(db, Metrics())
    await writer.write(Request.of("acme", staging.stage(message, "acme", NOW_MS)))
    await writer.close()
    stored = [span_row(row) for row in await db.query(SELECT)]
    return stored, sorted(made, key=lambda row: (row.start_ns, row.span_id))


async def test_odd_spans_beside_plain_ones_are_stored_as_they_were_sent(db: Database) -> None:
    message = request_of(*(span(**fields) for odd in ODD for fields in (odd, {}, {"attributes": {"plain": "yes"}})))
    bare = message.resource_spans.add().scope_spans.add()  # no resource: the ids stand on the spans
    bare.scope.name = "of another SDK"
    bare.spans.append(span(attributes={k: str(v) for k, v in RESOURCE.items()}))
    stored, made = await both(db, message)
    assert len(stored) == 3 * len(ODD) + 1
    assert stored == made


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=300)
    | st.binary(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=70)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=6), min_size=1, max_size=20))
@hypothesis_settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
async def test_any_attributes_are_stored_as_python_would_store_them(
    db: Database, attributes: list[dict[str, Any]]
) -> None:
    await db.command("TRUNCATE TABLE spans")
    stored, made = await both(db, request_of(*(span(attributes=some) for some in attributes)))
    assert stored == made


async def test_a_senders_own_fields_of_our_numbers_count_for_nothing(db: Database) -> None:
    row = decode.span_rows(request_of(span(name="forged")), "other", NOW_MS)[0][0]
    [forged] = staging.stage_rows([row], decode.Rejections()).parts
    hostile = ExportTraceServiceRequest.FromString(forged.head + forged.body)
    stored, _ = await both(db, hostile)
    assert [(one.tenant, one.job_id, one.status_message, one.attributes, one.events) for one in stored] == [
        ("acme", "", "", {}, [])
    ]


async def test_a_bad_span_is_refused_alone_and_a_secret_goes(db: Database) -> None:
    secret = "hf_" + "".join(random.choices("abcdef0123456789", k=30))  # noqa: S311
    message = request_of(span(trace_id=b"short"), span(attributes={"note": f"login with {secret}"}), span(name=""))
    staged = staging.stage(message, "acme", NOW_MS)
    assert staged.spans == 1
    assert staged.rejections.count == 2
    writer = SpanWriter(db, Metrics())
    await writer.write(Request.of("acme", staged))
    await writer.close()
    [row] = await db.query(SELECT)
    assert secret not in row["attributes"]
    assert REDACTED in row["attributes"]


async def test_the_same_batch_sent_again_is_kept_once(db: Database) -> None:
    staged = staging.stage(request_of(span(), span()), "acme", NOW_MS)
    data = b"".join(part.head + part.body for part in staged.parts)
    for _ in range(3):
        await db.insert_message("spans_in", data, staging.SCHEMA, staging.MESSAGE_NAME, token="batch-1")
    assert await db.query("SELECT count() AS n FROM spans") == [{"n": 2}]


async def test_it_stores_where_the_working_directory_cannot_be_written(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/proc")
    writer = SpanWriter(db, Metrics())
    await writer.write(Request.of("acme", staging.stage(request_of(span()), "acme", NOW_MS)))
    await writer.close()
    assert await db.query("SELECT count() AS n FROM spans") == [{"n": 1}]


def test_the_news_of_plain_spans_is_that_of_their_rows() -> None:
    spans = [span(job_id=f"job-{number}" if number % 3 else None, attributes={"a": number}) for number in range(30)]
    spans.append(span(name="worker.death", job_id=None, attributes={Key.DEATH_JOBS_IN_HAND: ["in-hand"]}))
    message = request_of(*spans)
    rows, _ = decode.span_rows(message, "acme", NOW_MS)
    staged = staging.stage(message, "acme", NOW_MS)
    assert staged.job_ids == decode.job_ids(rows)
    assert staged.worker_boots == decode.worker_boots(rows)


def test_a_request_of_many_spans_becomes_several_parts_and_halves_hold_all() -> None:
    message = request_of(*(span(attributes={"n": number}) for number in range(staging.SPANS_PER_PART + 3)))
    staged = staging.stage(message, "acme", NOW_MS)
    assert staged.spans == staging.SPANS_PER_PART + 3
    assert max(part.spans for part in staged.parts) <= staging.SPANS_PER_PART
    data = b"".join(part.head + part.body for part in staged.parts)
    halves = staging.halves(data)
    assert halves is not None
    assert [staging.count(half) for half in halves] == [1001, 1002]
    tenants = {part.SerializeToString().count(b"acme") for half in halves for part in parts_of(half)}
    assert tenants == {1}, "each half says whose it is"


def parts_of(data: bytes) -> list[ResourceSpans]:
    """The resources of staged bytes."""
    return list(ExportTraceServiceRequest.FromString(data).resource_spans)


@pytest.mark.parametrize("size", [0, 1, 124, 125, 126, 127, 128, 129, 255, 256, 300, 16_383, 16_384])
@pytest.mark.parametrize("kind", ["text", "bytes", "list"])
def test_what_the_stores_decoder_cannot_keep_is_found_at_every_length(kind: str, size: int) -> None:
    value = {"text": "x" * size, "bytes": b"x" * size, "list": [True] * size}[kind]
    made = Span(attributes=[KeyValue(key="k", value=any_value(value))]).SerializeToString()
    assert bool(suspects.ends(made)) == (kind != "text" or size >= 255)
