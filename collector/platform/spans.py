"""What the platform told, as spans. A log line has the same span id however often it is read: it is stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from collector.platform.views import Endpoint, Fleet, LogLine, PlatformError, Queue, Release, Worker
from sdk_exporter.contract import VERSION, Key, SpanName

SCOPE: Final = "stallscope.platform"
MESSAGE_BYTES: Final = 512

Value = str | bool | int | float | list[str]


@dataclass(frozen=True, slots=True)
class Told:
    """One span to be. `worker` "": it is about the whole endpoint."""

    name: str
    endpoint: Endpoint
    start_ns: int
    end_ns: int
    span_id: bytes
    worker: str = ""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    resource: Mapping[str, Value] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Starts:
    """How long starts of an endpoint's workers take: 95 in 100 of `count` at most `seconds_p95`."""

    count: int
    seconds_p95: float


def endpoint_facts(
    endpoint: Endpoint, fleet: Fleet, queue: Queue | None, release: Release | None, starts: Starts | None
) -> dict[str, Value]:
    """The attributes of a `platform.endpoint`. What is not known is left out."""
    counts = fleet.counts()
    facts: dict[str, Value | None] = {
        Key.PLATFORM_JOBS_QUEUED: queue.queued if queue else None,
        Key.PLATFORM_JOBS_RUNNING: queue.running if queue else None,
        Key.PLATFORM_WORKERS: len(fleet.workers),
        Key.PLATFORM_WORKERS_RUNNING: counts["RUNNING"],
        Key.PLATFORM_WORKERS_IDLE: counts["IDLE"],
        Key.PLATFORM_WORKERS_INITIALIZING: counts["INITIALIZING"],
        Key.PLATFORM_WORKERS_THROTTLED: counts["THROTTLED"],
        Key.PLATFORM_WORKERS_UNHEALTHY: counts["UNHEALTHY"],
        Key.PLATFORM_WORKERS_MIN: endpoint.workers_min,
        Key.PLATFORM_WORKERS_MAX: endpoint.workers_max,
        Key.PLATFORM_VERSION: fleet.version,
    }
    if release is not None:
        facts[Key.PLATFORM_RELEASE], facts[Key.PLATFORM_RELEASE_AT] = release.id, release.at
        facts[Key.PLATFORM_RELEASE_FIELDS] = list(release.fields)
        if endpoint.workers_max == 0 and release.paused_by:
            facts[Key.PLATFORM_PAUSED_BY] = release.paused_by
    if starts is not None:
        facts[Key.PLATFORM_STARTS], facts[Key.PLATFORM_START_SECONDS_P95] = starts.count, starts.seconds_p95
    return {key: value for key, value in facts.items() if value not in (None, "")}


def endpoint_span(endpoint: Endpoint, facts: Mapping[str, Value], start_ns: int, end_ns: int) -> Told:
    """An answer about an endpoint, as it was between these times."""
    span_id = _id(endpoint.id, "answer", str(end_ns))
    return Told(SpanName.PLATFORM_ENDPOINT, endpoint, start_ns, end_ns, span_id, attributes=facts)


def gap_span(endpoint: Endpoint, route: str, since_ns: int, until_ns: int, error: PlatformError) -> Told:
    """That nothing could be learnt meanwhile. A gap that goes on is the same span, told again with a later end."""
    span_id = _id(endpoint.id, "gap", route, str(since_ns))
    attributes: dict[str, Value] = {Key.ERROR_TYPE: error.kind, Key.PLATFORM_ROUTE: route}
    text = f"{route}: {error}"[:MESSAGE_BYTES]
    return Told(SpanName.PLATFORM_ENDPOINT, endpoint, since_ns, until_ns, span_id, attributes=attributes, error=text)


def worker_span(endpoint: Endpoint, worker: Worker, at_ns: int, start_seconds: float | None) -> Told:
    """A worker as it is now. `start_seconds`: it has just become ready, after so long."""
    facts: dict[str, Value | None] = {
        Key.PLATFORM_STATUS: worker.status,
        Key.PLATFORM_VERSION: worker.version,
        Key.PLATFORM_IS_STALE: worker.is_stale,
        Key.PLATFORM_STARTED_AT: worker.started_at,
        Key.PLATFORM_START_SECONDS: start_seconds,
    }
    resource = {
        Key.CONTAINER_IMAGE_NAME: worker.image,
        Key.CLOUD_REGION: worker.data_center,
        Key.HW_MODEL: worker.gpu,
    }
    return Told(
        SpanName.PLATFORM_WORKER,
        endpoint,
        at_ns,
        at_ns,
        _id(endpoint.id, worker.id, "worker", str(at_ns)),
        worker=worker.id,
        attributes={key: value for key, value in facts.items() if value not in (None, "")},
        resource={key: value for key, value in resource.items() if value},
    )


def log_span(endpoint: Endpoint, worker: str, line: LogLine, now_ns: int) -> Told:
    """A line of a worker's system log."""
    at_ns = now_ns if line.at_ns is None else line.at_ns
    span_id = _id(endpoint.id, worker, "log", line.cursor, str(line.at_ns), line.text)
    attributes: dict[str, Value] = {Key.PLATFORM_LINE: line.text}
    return Told(SpanName.PLATFORM_LOG, endpoint, at_ns, at_ns, span_id, worker=worker, attributes=attributes)


def message_of(spans: Iterable[Told]) -> ExportTraceServiceRequest:
    """The spans as one OTLP message, as if a client had sent them."""
    message = ExportTraceServiceRequest()
    for told in spans:
        part = message.resource_spans.add()
        resource: dict[str, Value] = {
            Key.CLOUD_PROVIDER: "runpod",
            Key.FAAS_NAME: told.endpoint.id,
            Key.SERVICE_NAME: told.endpoint.name or told.endpoint.id,
            **({Key.SERVICE_INSTANCE_ID: told.worker} if told.worker else {}),
            **told.resource,
        }
        part.resource.attributes.extend(_pair(key, value) for key, value in resource.items())
        scope = part.scope_spans.add()
        scope.scope.name, scope.scope.version = SCOPE, VERSION
        span = scope.spans.add(name=told.name, trace_id=_digest(told.endpoint.id, "trace")[:16], span_id=told.span_id)
        span.start_time_unix_nano, span.end_time_unix_nano = told.start_ns, max(told.start_ns, told.end_ns)
        span.attributes.extend(_pair(key, value) for key, value in told.attributes.items())
        if told.error:
            span.status.code, span.status.message = Status.STATUS_CODE_ERROR, told.error
    return message


def _pair(key: str, value: Value) -> KeyValue:
    pair = KeyValue(key=key)
    if isinstance(value, str):
        pair.value.string_value = value.encode("utf-8", "replace").decode()
    elif isinstance(value, bool):
        pair.value.bool_value = value
    elif isinstance(value, int):
        pair.value.int_value = value
    elif isinstance(value, float):
        pair.value.double_value = value
    else:
        pair.value.array_value.values.extend(_pair("", item).value for item in value)
    return pair


def _id(*parts: str) -> bytes:
    return _digest(*parts)[:8]


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()
