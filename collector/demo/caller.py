"""The demo's caller: sends requests to the platform and tells what it saw of them, as any instrumented client could."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Final

import aiohttp
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from collector.demo.platform import TERMINAL
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

EXPORT_EVERY_MS: Final = 200
REQUEST_SECONDS: Final = 30.0


class Caller:
    """A client of one endpoint. Its spans are `caller.request` (and its start at once) and `caller.poll`."""

    def __init__(self, platform_base: str, collector_base: str, endpoint: str) -> None:
        self._endpoint = endpoint
        self._http = aiohttp.ClientSession(
            f"{platform_base}/v2/{endpoint}/", timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        )
        # An own provider and explicit values: the environment may configure OpenTelemetry for something else.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource({Key.SERVICE_NAME: "demo-caller", Key.FAAS_NAME: endpoint}),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=f"{collector_base}/v1/traces", headers={}, timeout=REQUEST_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=EXPORT_EVERY_MS))
        self._tracer = self._provider.get_tracer("stallscope.demo")
        self._open: dict[str, Span] = {}

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection and hand all ended spans in."""
        await self._http.close()
        await asyncio.to_thread(self._provider.shutdown)

    async def submit(self, body: dict[str, Any]) -> str:
        """Send a request with `/run`; its id."""
        began_ns = time.time_ns()
        span = self._tracer.start_span(SpanName.CALLER_REQUEST, kind=SpanKind.CLIENT, start_time=began_ns)
        said = await self._post("run", body)
        job_id = str(said["id"])
        facts = self._facts(job_id, str(said["status"]))
        span.set_attributes(facts)
        self._open[job_id] = span
        started = {**facts, Key.SPAN_ID: format(span.get_span_context().span_id, "016x")}
        self._instant(SpanName.CALLER_REQUEST + STARTED_SUFFIX, started, span, at_ns=began_ns)
        return job_id

    async def poll(self, job_id: str) -> dict[str, Any]:
        """Ask for the request's status; the platform's answer. A terminal one ends the request's span."""
        async with self._http.get(f"status/{job_id}") as answer:
            said: dict[str, Any] = await answer.json()
        status, span = str(said.get("status", "")), self._open[job_id]
        facts: dict[str, str | float] = self._facts(job_id, status)
        if "delayTime" in said:
            facts[Key.CALLER_QUEUE_SECONDS] = said["delayTime"] / 1000
        self._instant(SpanName.CALLER_POLL, facts, span)
        if status in TERMINAL:
            span.set_attributes(facts)
            if status in ("FAILED", "TIMED_OUT"):
                span.set_status(Status(StatusCode.ERROR))
            span.end()
        return said

    async def cancel(self, job_id: str) -> None:
        await self._post(f"cancel/{job_id}", None)

    async def _post(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        async with self._http.post(path, json=body) as answer:
            answer.raise_for_status()
            said: dict[str, Any] = await answer.json()
            return said

    def _facts(self, job_id: str, status: str) -> dict[str, Any]:
        return {Key.INVOCATION_ID: job_id, Key.FAAS_NAME: self._endpoint, Key.CALLER_STATUS: status}

    def _instant(self, name: str, facts: dict[str, Any], parent: Span, at_ns: int | None = None) -> None:
        span = self._tracer.start_span(name, set_span_in_context(parent), attributes=facts, start_time=at_ns)
        span.end(at_ns)
