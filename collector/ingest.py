"""POST /v1/{traces,logs,metrics}: the story of a span, in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from fastapi import APIRouter, Response
from fastapi import Request as HttpRequest
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from . import decode, otlp, staging
from .app import Parts, count_request, parts_of
from .auth import Sender, ingest_sender
from .writer import Request

router = APIRouter(include_in_schema=False)
Result = TypeVar("Result")

INLINE_BYTES: Final = 32_768
"""A body up to this size is read at once; a larger one beside the event loop, which others wait for."""
DECODERS: Final = 2
"""Large bodies that are read at once. Read, one can take thirty times its bytes; more at once would not be faster."""
_decoders: Final = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
METRICS_NOT_KEPT: Final = "Stallscope keeps no metrics. Turn their exporter off to save the traffic."


async def post_traces(request: HttpRequest) -> Response:
    """Spans in; 200 once they are stored."""
    return await _answered(request, take_traces)


async def post_logs(request: HttpRequest) -> Response:
    """Log records in; those that name a request are stored, others refused politely."""
    return await _answered(request, take_logs)


async def post_metrics(request: HttpRequest) -> Response:
    """Metrics are read, refused politely and not kept."""
    return await _answered(request, take_metrics)


# As plain routes: what FastAPI adds, a thread for each dependency among it, costs more than reading a small body.
for _path, _endpoint in (("/v1/traces", post_traces), ("/v1/logs", post_logs), ("/v1/metrics", post_metrics)):
    router.add_route(_path, _endpoint, methods=["POST"], include_in_schema=False)


async def _answered(request: HttpRequest, take: Take) -> Response:
    parts, sender = parts_of(request), ingest_sender(request)
    parts.rates.admit(sender.token)
    parts.congestion.refuse_when_late()
    with parts.in_flight.share() as share:
        body = await otlp.read_body(request, parts.settings.body_bytes, share)
        with parts.congestion.waiting():
            answer = await take(Delivery(parts, sender, body, share))
    count_request(request, 200)
    return otlp.success(answer, body)


# ------------------------------------------------------------------------- the same, whichever way a body came


@dataclass(frozen=True, slots=True)
class Delivery:
    """A body that came in, from whom, and what it holds of the memory for bodies."""

    parts: Parts
    sender: Sender
    body: otlp.Body
    share: otlp.Share

    def read(self, kind: type[otlp.OtlpMessage]) -> otlp.OtlpMessage:
        """The message in it. Long work for a large body: see `beside`."""
        return otlp.parse(self.body, kind, self.parts.settings.body_bytes, self.share)


Take = Callable[[Delivery], Awaitable[Message]]
"""Takes a body of one signal in and says what the sender is answered. Raises StallscopeError."""


async def take_traces(delivery: Delivery) -> ExportTraceServiceResponse:
    """Spans, stored when this returns. Raises what `otlp.parse`, `staging.stage` and the writer raise."""
    parts, tenant = delivery.parts, delivery.sender.tenant
    staged = await beside(
        delivery.body, lambda: staging.stage(delivery.read(ExportTraceServiceRequest), tenant, _now_ms())
    )
    await parts.writer.write(Request.of(tenant, staged))
    _count(parts, delivery.sender, staged)
    answer = ExportTraceServiceResponse()
    if staged.rejections.count:
        answer.partial_success.rejected_spans = staged.rejections.count
        answer.partial_success.error_message = staged.rejections.message
    return answer


async def take_logs(delivery: Delivery) -> ExportLogsServiceResponse:
    """Log records, those that name a request stored when this returns. Raises as `take_traces`."""
    parts, tenant = delivery.parts, delivery.sender.tenant
    staged = await beside(
        delivery.body,
        lambda: staging.stage_rows(*decode.log_rows(delivery.read(ExportLogsServiceRequest), tenant, _now_ms())),
    )
    await parts.writer.write(Request.of(tenant, staged))
    _count(parts, delivery.sender, staged)
    answer = ExportLogsServiceResponse()
    if staged.rejections.count:
        answer.partial_success.rejected_log_records = staged.rejections.count
        answer.partial_success.error_message = staged.rejections.message
    return answer


async def take_metrics(delivery: Delivery) -> ExportMetricsServiceResponse:
    """Metrics: read and not kept."""
    message = await beside(delivery.body, lambda: delivery.read(ExportMetricsServiceRequest))
    answer = ExportMetricsServiceResponse()
    count = sum(_points(message))
    delivery.parts.rates.charge(delivery.sender.token, count)
    if count:
        answer.partial_success.rejected_data_points = count
        answer.partial_success.error_message = METRICS_NOT_KEPT
    return answer


def _points(message: ExportMetricsServiceRequest) -> list[int]:
    return [
        len(getattr(metric, kind).data_points)
        for part in message.resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
        if (kind := metric.WhichOneof("data"))
    ]


def _count(parts: Parts, sender: Sender, staged: staging.Staged) -> None:
    parts.rates.charge(sender.token, staged.spans + staged.rejections.count)
    parts.metrics.stored.inc(staged.spans)
    for reason, count in staged.rejections.reasons.items():
        parts.metrics.refused.labels(reason).inc(count)


async def beside(body: otlp.Body, work: Callable[[], Result]) -> Result:
    """The result of `work`, long for a large body. In threads of its own: those that readers use stay free."""
    if len(body.sent) <= INLINE_BYTES and body.encoding == "identity":
        return work()
    return await asyncio.get_running_loop().run_in_executor(_decoders, work)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
