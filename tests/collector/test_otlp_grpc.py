"""OTLP/gRPC through its own port: the same as over HTTP, said in gRPC's words."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
from collections.abc import AsyncIterator

import grpc
import pytest
from clickhouse_server import ClickHouseServer
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from otlp_bytes import request_of, span
from parts import eventually, served, server_url
from pydantic import SecretStr

from collector import asgi, migrate
from collector.clickhouse import Database
from collector.otlp_grpc import GrpcEdge
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from collector.settings import Settings
from sdk_exporter.contract import Key

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@contextlib.asynccontextmanager
async def on_a_port(settings: Settings, host: str = "127.0.0.1") -> AsyncIterator[GrpcEdge]:
    """A collector that takes gRPC on a free port."""
    edge = GrpcEdge(host, 0)
    async with served(asgi.collector_only(settings, [edge.open])):
        yield edge


@contextlib.asynccontextmanager
async def channel_to(settings: Settings) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a collector of its own."""
    async with on_a_port(settings) as edge, grpc.aio.insecure_channel(f"127.0.0.1:{edge.port}") as channel:
        yield channel


@pytest.fixture
async def migrated(clickhouse: ClickHouseServer) -> Settings:
    """Settings of a store with tables, where the engine makes no difference."""
    settings = Settings(database_url=SecretStr(server_url(clickhouse)))
    db = await Database.open(settings)
    await migrate.apply(db, retention_days=14)
    await db.close()
    return settings


@pytest.fixture
async def channel(migrated: Settings) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to such a collector."""
    async with channel_to(migrated) as channel:
        yield channel


async def stored(db: Database) -> list[SpanRow]:
    """Every span that was stored."""
    return [span_row(row) for row in await db.query(f"SELECT {SPAN_COLUMNS} FROM spans")]  # noqa: S608


async def refusal(call: grpc.aio.UnaryUnaryCall[bytes, bytes]) -> tuple[grpc.StatusCode, str, int | None]:
    """(code, message, seconds of RetryInfo) of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing = dict(caught.value.trailing_metadata() or ())
    status = Status.FromString(trailing["grpc-status-details-bin"])
    assert (status.code, status.message) == (caught.value.code().value[0], caught.value.details())
    retry = RetryInfo()
    told = [detail.Unpack(retry) for detail in status.details]
    return caught.value.code(), str(caught.value.details()), retry.retry_delay.seconds if told else None


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_stock_exporter_stores_its_spans(
    settings: Settings, db: Database, compression: grpc.Compression
) -> None:
    async with on_a_port(settings) as edge:
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{edge.port}", compression=compression)
        provider = TracerProvider(resource=Resource({Key.SERVICE_INSTANCE_ID: "worker-9"}))
        provider.add_span_processor(SimpleSpanProcessor(exporter))

        def work() -> None:
            for number in range(3):
                with provider.get_tracer("mine").start_as_current_span("infer") as one:
                    one.set_attributes({Key.INVOCATION_ID: f"job-{number}", "prompt": "a lighthouse " * 50})
            provider.shutdown()

        await asyncio.to_thread(work)
    rows = sorted(await stored(db), key=lambda row: row.job_id)
    assert [(row.job_id, row.worker_id, row.scope) for row in rows] == [
        (f"job-{number}", "worker-9", "mine") for number in range(3)
    ]
    assert all(row.attributes["prompt"] == "a lighthouse " * 50 for row in rows)


async def test_a_bad_span_is_refused_alone_with_its_reason(channel: grpc.aio.Channel) -> None:
    answer = await TraceServiceStub(channel).Export(request_of(span(), span(trace_id=b"")))
    assert answer.partial_success.rejected_spans == 1
    assert "trace_id is not 16 bytes" in answer.partial_success.error_message
    assert not (await TraceServiceStub(channel).Export(request_of())).HasField("partial_success")


async def test_all_three_signals_are_answered(channel: grpc.aio.Channel) -> None:
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "hello"
    assert (await LogsServiceStub(channel).Export(logs)).partial_success.rejected_log_records == 1
    metrics = ExportMetricsServiceRequest()
    metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points.add(as_int=1)
    assert (await MetricsServiceStub(channel).Export(metrics)).partial_success.rejected_data_points == 1


async def test_what_cannot_be_read_is_refused_for_good(channel: grpc.aio.Channel) -> None:
    export = channel.unary_unary(EXPORT)
    for garbage in (b"\xff\xff garbage", gzip.compress(b"\n\x00" * 500)[:-12]):
        code, message, retry = await refusal(export(garbage))
        assert (code, retry) == (grpc.StatusCode.INVALID_ARGUMENT, None)
        assert message
    code, message, _ = await refusal(channel.stream_unary(EXPORT)(iter([])))
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "the call holds no message")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Import")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_over_the_limit_is_refused_as_sent_and_as_inflated(migrated: Settings) -> None:
    async with channel_to(migrated.model_copy(update={"body_bytes": 100_000})) as channel:
        export = channel.unary_unary(EXPORT)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await export(os.urandom(200_000))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "100000" in str(caught.value.details())
        bomb = export(bytes(50 << 20), compression=grpc.Compression.Gzip)
        code, message, retry = await refusal(bomb)
        assert (code, retry) == (grpc.StatusCode.INVALID_ARGUMENT, None)
        assert "STALLSCOPE_BODY_BYTES (inflated) is 100000 bytes" in message
        assert not (await TraceServiceStub(channel).Export(request_of(span()))).HasField("partial_success")


async def test_a_token_decides_who_may_send_and_whose_spans_they_are(migrated: Settings) -> None:
    guarded = migrated.model_copy(
        update={"ingest_tokens": SecretStr("acme:in-a"), "read_tokens": SecretStr("acme:read-a")}
    )
    async with channel_to(guarded) as channel:
        body = request_of(span(job_id="job-a")).SerializeToString()
        export = channel.unary_unary(EXPORT)
        for metadata, expected in (
            ((), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", "Bearer wrong"),), grpc.StatusCode.UNAUTHENTICATED),
            ((("authorization", "Bearer read-a"),), grpc.StatusCode.PERMISSION_DENIED),
        ):
            code, message, retry = await refusal(export(body, metadata=metadata))
            assert (code, retry) == (expected, None)
            assert "STALLSCOPE_INGEST_TOKENS" in message
        assert await export(body, metadata=(("authorization", "Bearer in-a"),)) == b""
    db = await Database.open(guarded)
    assert [(row.tenant, row.job_id) for row in await stored(db)] == [("acme", "job-a")]
    await db.close()


async def test_a_sender_is_told_to_wait_while_nothing_can_be_stored(clickhouse: ClickHouseServer) -> None:
    settings = Settings(database_url=SecretStr(server_url(clickhouse)))  # nobody has migrated it
    async with channel_to(settings) as channel:
        body = request_of(span()).SerializeToString()
        code, _, retry = await refusal(channel.unary_unary(EXPORT)(body))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert retry is not None
        assert retry >= 1


async def test_more_messages_at_once_than_memory_allows_are_turned_away_for_later(migrated: Settings) -> None:
    async with channel_to(migrated.model_copy(update={"in_flight_bytes": 1 << 20})) as channel:
        code, message, retry = await refusal(channel.unary_unary(EXPORT)(bytes(2 << 20)))
        assert (code, retry) == (grpc.StatusCode.UNAVAILABLE, 1)
        assert "STALLSCOPE_IN_FLIGHT_BYTES" in message
        assert await channel.unary_unary(EXPORT)(b"") == b"", "what a refused call held is given back"


async def test_both_ways_in_are_counted_together(migrated: Settings) -> None:
    edge = GrpcEdge("127.0.0.1", 0)
    async with (
        served(asgi.collector_only(migrated, [edge.open])) as http,
        grpc.aio.insecure_channel(f"127.0.0.1:{edge.port}") as channel,
    ):
        export = channel.unary_unary(EXPORT)
        await export(request_of(span()).SerializeToString())
        await refusal(export(b"\xff"))
        metrics = (await http.get("/metrics")).text
    assert 'stallscope_ingest_requests_total{signal="traces",status="200"} 1.0' in metrics
    assert 'stallscope_ingest_requests_total{signal="traces",status="400"} 1.0' in metrics
    assert "stallscope_spans_stored_total 1.0" in metrics
    assert "stallscope_in_flight_bytes 0.0" in metrics


async def test_a_call_that_is_open_when_the_server_stops_is_answered(migrated: Settings) -> None:
    """Half a call is sent, the server is told to stop, the rest comes: it is stored and said so."""
    edge, stopping = GrpcEdge("127.0.0.1", 0), asyncio.Event()

    async def halting() -> AsyncIterator[bytes]:
        await stopping.wait()
        yield request_of(span()).SerializeToString()

    async with (
        served(asgi.collector_only(migrated, [edge.open])) as http,
        grpc.aio.insecure_channel(f"127.0.0.1:{edge.port}") as channel,
    ):
        call = channel.stream_unary(EXPORT)(halting())

        async def came_in() -> bool:
            return "stallscope_grpc_calls 1.0" in (await http.get("/metrics")).text

        await eventually(came_in)
        closing = edge.begin_to_close()
        stopping.set()
        assert await call == b""
        await closing
        assert "stallscope_spans_stored_total 1.0" in (await http.get("/metrics")).text
