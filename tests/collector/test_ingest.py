"""Spans through the front door, on both engines: 200 means stored, and everything else says what was wrong."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import AsyncIterator

import httpx
import pytest
import zstandard
from clickhouse_server import ClickHouseServer
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from otlp_bytes import JSON, PROTOBUF, RESOURCE, request_of, span
from parts import served, server_url
from pydantic import SecretStr

from collector import asgi
from collector.clickhouse import Database
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from collector.settings import Settings
from sdk_exporter.contract import ATTRIBUTE_BYTES, Key


@pytest.fixture
async def one_server(clickhouse: ClickHouseServer) -> AsyncIterator[httpx.AsyncClient]:
    """A collector where the engine makes no difference."""
    async with served(asgi.collector_only(Settings(database_url=SecretStr(server_url(clickhouse))))) as client:
        yield client


@pytest.fixture
async def small_server(clickhouse: ClickHouseServer) -> AsyncIterator[httpx.AsyncClient]:
    """A collector that takes bodies of 100 kB."""
    settings = Settings(database_url=SecretStr(server_url(clickhouse)), body_bytes=100_000)
    async with served(asgi.collector_only(settings)) as client:
        yield client


async def stored(db: Database) -> list[SpanRow]:
    """Every span that a reader sees."""
    rows = await db.query(f"SELECT {SPAN_COLUMNS} FROM spans ORDER BY start_ns, name LIMIT 1 BY span_id")  # noqa: S608
    return [span_row(row) for row in rows]


async def test_a_span_is_stored_when_the_answer_comes(server: httpx.AsyncClient, db: Database) -> None:
    sent = span("job.run", attributes={"count": 2**63 - 1, "ratio": 1.0, "on": True, "names": ["a", "b"]})
    answer = await server.post("/v1/traces", content=request_of(sent).SerializeToString(), headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    [row] = await stored(db)
    assert row == SpanRow(
        tenant="default",
        arrived_ms=row.arrived_ms,
        start_ns=sent.start_time_unix_nano,
        end_ns=sent.end_time_unix_nano,
        trace_id=sent.trace_id.hex(),
        span_id=sent.span_id.hex(),
        parent_id="",
        job_id="job-1",
        endpoint_id="endpoint-1",
        worker_id="worker-1",
        boot_id="b" * 32,
        name="job.run",
        kind=0,
        status="unset",
        status_message="",
        attributes={
            "count": 2**63 - 1,
            "ratio": 1.0,
            "on": True,
            "names": ["a", "b"],
            Key.INVOCATION_ID: "job-1",
        },
        resource=RESOURCE,
        events=[],
        links=[],
        scope="stallscope",
    )
    assert isinstance(row.attributes["ratio"], float)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity"])
async def test_every_encoding_is_read(server: httpx.AsyncClient, db: Database, encoding: str) -> None:
    body = request_of(*[span(job_id=f"job-{number}") for number in range(50)]).SerializeToString()
    packed = {"gzip": gzip.compress, "zstd": zstandard.compress, "identity": bytes}[encoding](body)
    answer = await server.post("/v1/traces", content=packed, headers={**PROTOBUF, "content-encoding": encoding})
    assert answer.status_code == 200, answer.text
    assert len(await stored(db)) == 50


async def test_json_is_read_with_hex_ids_and_numbers_either_way(server: httpx.AsyncClient, db: Database) -> None:
    begin = 1_760_000_000_123_456_789
    document = {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": Key.SERVICE_INSTANCE_ID, "value": {"stringValue": "w"}}]},
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": "ABCDEF0123456789abcdef0123456789",
                                "spanId": "0123456789ABCDEF",
                                "parentSpanId": "fedcba9876543210",
                                "name": "job.run",
                                "kind": 2,
                                "startTimeUnixNano": str(begin),
                                "endTimeUnixNano": begin + 1,
                                "someNewField": {"nested": True},
                                "status": {"code": 2, "message": "bad"},
                                "links": [{"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "2"}],
                                "attributes": [
                                    {"key": "big", "value": {"intValue": "9007199254740993"}},
                                    {"key": "small", "value": {"intValue": 7}},
                                    {"key": Key.INVOCATION_ID, "value": {"stringValue": "j"}},
                                ],
                            }
                        ]
                    }
                ],
            }
        ]
    }
    answer = await server.post("/v1/traces", content=json.dumps(document), headers=JSON)
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, "application/json", {})
    [row] = await stored(db)
    assert (row.trace_id, row.span_id, row.parent_id) == (
        "abcdef0123456789abcdef0123456789",
        "0123456789abcdef",
        "fedcba9876543210",
    )
    assert (row.start_ns, row.end_ns, row.kind, row.status, row.status_message) == (begin, begin + 1, 2, "error", "bad")
    assert row.attributes == {"big": 9007199254740993, "small": 7, Key.INVOCATION_ID: "j"}
    assert row.links[0].span_id == "0" * 15 + "2"


async def test_the_same_batch_twice_shows_each_span_once(server: httpx.AsyncClient, db: Database) -> None:
    body = request_of(span(job_id="a"), span(job_id="b")).SerializeToString()
    for _ in range(2):
        assert (await server.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 200
    assert sorted(row.job_id for row in await stored(db)) == ["a", "b"]


async def test_one_bad_span_is_refused_alone_with_its_reason(server: httpx.AsyncClient, db: Database) -> None:
    message = request_of(span(job_id="good"), span(job_id="bad", trace_id=b""), span(job_id="bad", span_id=b"\1"))
    answer = await server.post("/v1/traces", content=message.SerializeToString(), headers=PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 2)
    assert "1 refused: trace_id is not 16 bytes" in partial.error_message
    assert "1 refused: span_id is not 8 bytes" in partial.error_message
    assert [row.job_id for row in await stored(db)] == ["good"]
    as_json = await server.post("/v1/traces", content=otlp_json(message), headers=JSON)
    assert as_json.json()["partialSuccess"]["rejectedSpans"] == "2"


def otlp_json(message: ExportTraceServiceRequest) -> str:
    """The message as OTLP/JSON: ids in hex."""
    document = json_format.MessageToDict(message)
    for part in document["resourceSpans"]:
        for one in part["scopeSpans"][0]["spans"]:
            for key in ("traceId", "spanId"):
                one[key] = base64.b64decode(one.get(key, "")).hex()
    return json.dumps(document)


async def test_ten_megabytes_in_one_attribute_are_clipped_and_marked_and_siblings_stay(
    server: httpx.AsyncClient, db: Database
) -> None:
    big = span(job_id="big", attributes={"payload": "x" * (10 << 20)})
    answer = await server.post(
        "/v1/traces", content=request_of(span(job_id="small"), big).SerializeToString(), headers=PROTOBUF
    )
    assert answer.status_code == 200
    by_job = {row.job_id: row for row in await stored(db)}
    assert set(by_job) == {"small", "big"}
    payload = by_job["big"].attributes["payload"]
    assert isinstance(payload, str)
    assert len(payload.encode()) == ATTRIBUTE_BYTES
    assert payload.endswith("…[cut]")


async def test_an_empty_request_is_a_success(server: httpx.AsyncClient, db: Database) -> None:
    assert (await server.post("/v1/traces", content=b"", headers=PROTOBUF)).status_code == 200
    assert (await server.post("/v1/traces", content=b"{}", headers=JSON)).status_code == 200
    assert await stored(db) == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff\xff garbage", PROTOBUF, 400),
        (request_of(span()).SerializeToString()[:-9], PROTOBUF, 400),
        (b"{", JSON, 400),
        (b"[1]", JSON, 400),
        (b'{"resourceSpans": 7}', JSON, 400),
        (b'{"resourceSpans": [[[[]]]]}', JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, JSON, 400),
        (b"\xff\xfe{}", JSON, 400),
        (b"not gzip", {**PROTOBUF, "content-encoding": "gzip"}, 400),
        (gzip.compress(b"\n\x00" * 500)[:-12], {**PROTOBUF, "content-encoding": "gzip"}, 400),
        (b"not zstd", {**PROTOBUF, "content-encoding": "zstd"}, 400),
        (b"", {"content-type": "text/plain"}, 415),
        (b"", {}, 415),
        (b"", {**PROTOBUF, "content-encoding": "br"}, 415),
    ],
    ids=[
        "garbage",
        "cut",
        "json-cut",
        "json-array",
        "json-number",
        "json-deep-value",
        "json-deep-array",
        "json-deep-object",
        "json-no-utf8",
        "no-gzip",
        "gzip-cut",
        "no-zstd",
        "text",
        "no-type",
        "brotli",
    ],
)
async def test_what_cannot_be_read_is_refused_in_the_type_it_came_in(
    one_server: httpx.AsyncClient, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await one_server.post("/v1/traces", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    if headers.get("content-type") == "application/json":
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["message"]
    else:
        assert answer.headers["content-type"] == "application/x-protobuf"
        assert Status.FromString(answer.content).message


async def test_a_body_over_the_limit_is_refused_as_sent_and_as_inflated(small_server: httpx.AsyncClient) -> None:
    large = os.urandom(200_000)
    for headers in (PROTOBUF, {**PROTOBUF, "content-encoding": "gzip"}):
        answer = await small_server.post("/v1/traces", content=large, headers=headers)
        assert answer.status_code == 413
        assert "STALLSCOPE_BODY_BYTES is 100000 bytes" in Status.FromString(answer.content).message
    bombs = {
        "gzip": gzip.compress(bytes(50 << 20)),
        "zstd": zstandard.compress(bytes(50 << 20)),
    }
    assert all(len(bomb) < 60_000 for bomb in bombs.values())
    for encoding, bomb in bombs.items():
        answer = await small_server.post("/v1/traces", content=bomb, headers={**PROTOBUF, "content-encoding": encoding})
        assert answer.status_code == 413, encoding
        assert "STALLSCOPE_BODY_BYTES (inflated)" in Status.FromString(answer.content).message


async def test_a_body_without_a_length_is_bounded_too(small_server: httpx.AsyncClient) -> None:
    async def endless() -> object:
        while True:
            yield bytes(10_000)

    answer = await small_server.post("/v1/traces", content=endless(), headers=PROTOBUF)
    assert answer.status_code == 413


async def test_more_bodies_at_once_than_memory_allows_are_turned_away_for_later(settings: Settings) -> None:
    async def in_two_pieces() -> AsyncIterator[bytes]:
        yield bytes(700_000)
        yield bytes(700_000)

    tight = settings.model_copy(update={"in_flight_bytes": 1 << 20})
    async with served(asgi.collector_only(tight)) as client:
        answer = await client.post("/v1/traces", content=in_two_pieces(), headers=PROTOBUF)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "STALLSCOPE_IN_FLIGHT_BYTES" in Status.FromString(answer.content).message
        again = await client.post("/v1/traces", content=b"", headers=PROTOBUF)
        assert again.status_code == 200, "what a refused request held is given back"
        assert "stallscope_in_flight_bytes 0.0" in (await client.get("/metrics")).text


async def test_logs_of_no_request_and_metrics_are_politely_refused(one_server: httpx.AsyncClient) -> None:
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "hello"
    answer = await one_server.post("/v1/logs", content=logs.SerializeToString(), headers=PROTOBUF)
    refused = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, refused.rejected_log_records) == (200, 1)
    assert "belongs to no request" in refused.error_message
    metrics = ExportMetricsServiceRequest()
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_int=1)
    metric.gauge.data_points.add(as_int=2)
    answer = await one_server.post("/v1/metrics", content=metrics.SerializeToString(), headers=PROTOBUF)
    assert ExportMetricsServiceResponse.FromString(answer.content).partial_success.rejected_data_points == 2
    assert (await one_server.post("/v1/metrics", content=b"", headers=PROTOBUF)).content == b""


async def test_news_of_stored_spans_is_passed_on(settings: Settings, db: Database) -> None:
    heard: list[object] = []
    app = asgi.create_app(settings, [asgi.ingest.router], on_stored=lambda *news: heard.append(news))
    async with served(app) as client:
        message = request_of(
            span(job_id="a"),
            span("worker.heartbeat", job_id=None),
            span("worker.death", job_id=None, attributes={Key.DEATH_JOBS_IN_HAND: ["b", "c"]}),
        )
        await client.post("/v1/traces", content=message.SerializeToString(), headers=PROTOBUF)
        await client.post("/v1/traces", content=b"", headers=PROTOBUF)
    assert heard == [("default", {"a", "b", "c"}, {("worker-1", "b" * 32)})]
