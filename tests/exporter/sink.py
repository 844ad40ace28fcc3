"""An OTLP collector that keeps what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Sink:
    """An OTLP/HTTP collector that keeps the spans it is sent."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        self.arrived = asyncio.Event()
        self.base = ""

    async def traces(self, request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        for span in (span for part in message.resource_spans for scope in part.scope_spans for span in scope.spans):
            self.spans[span.name] = {
                item.key: item.value.string_value or item.value.int_value for item in span.attributes
            }
        self.arrived.set()
        return web.Response(content_type="application/x-protobuf")

    async def wait_for(self, name: str) -> dict[str, Any]:
        while name not in self.spans:
            await asyncio.wait_for(self.arrived.wait(), 60)
            self.arrived.clear()
        return dict(self.spans[name])


@asynccontextmanager
async def running_sink() -> AsyncIterator[Sink]:
    sink = Sink()
    app = web.Application()
    app.router.add_post("/v1/traces", sink.traces)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sink.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield sink
    finally:
        await runner.cleanup()
