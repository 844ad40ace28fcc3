"""The real OpenTelemetry exporter, unchanged, against a real server on a port."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from clickhouse_server import ClickHouseServer
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from parts import on_a_port, server_url
from pydantic import SecretStr

from collector import asgi
from collector.clickhouse import Database
from collector.rows import SPAN_COLUMNS, span_row
from collector.settings import Settings
from sdk_exporter.contract import Key


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_a_stock_exporter_stores_its_spans(settings: Settings, db: Database, compression: Compression) -> None:
    async with on_a_port(asgi.server(settings)) as address:
        exporter = OTLPSpanExporter(f"{address}/v1/traces", compression=compression)
        provider = TracerProvider(resource=Resource({Key.SERVICE_INSTANCE_ID: "worker-9", Key.FAAS_NAME: "endpoint-9"}))
        provider.add_span_processor(SimpleSpanProcessor(exporter))

        def work() -> None:
            with (
                contextlib.suppress(ValueError),
                provider.get_tracer("mine").start_as_current_span(
                    "infer", attributes={Key.INVOCATION_ID: "job-9"}
                ) as span,
            ):
                span.set_attribute("steps", 30)
                raise ValueError("no such model")
            provider.shutdown()

        await asyncio.to_thread(work)
    [row] = [span_row(record) for record in await db.query(f"SELECT {SPAN_COLUMNS} FROM spans")]  # noqa: S608
    assert (row.job_id, row.worker_id, row.endpoint_id) == ("job-9", "worker-9", "endpoint-9")
    assert (row.name, row.status, row.scope, row.attributes["steps"]) == ("infer", "error", "mine", 30)
    assert row.status_message == "ValueError: no such model"
    assert [(event.name, event.attributes[Key.EXCEPTION_TYPE]) for event in row.events] == [("exception", "ValueError")]


async def test_a_stock_exporter_is_never_told_success_while_nothing_can_be_stored(clickhouse: ClickHouseServer) -> None:
    settings = Settings(database_url=SecretStr(server_url(clickhouse)))  # nobody has migrated it
    async with on_a_port(asgi.collector_only(settings)) as address:
        exporter = OTLPSpanExporter(f"{address}/v1/traces", timeout=1)
        with TracerProvider().get_tracer("mine").start_as_current_span("infer") as span:
            pass
        result = await asyncio.to_thread(exporter.export, [span])
        assert result is SpanExportResult.FAILURE
        await asyncio.to_thread(exporter.shutdown)
