"""OTLP requests for tests, built with the protocol's own messages."""

from __future__ import annotations

import os
import time
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from sdk_exporter.contract import Key

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
RESOURCE = {Key.SERVICE_INSTANCE_ID: "worker-1", Key.FAAS_NAME: "endpoint-1", Key.BOOT_ID: "b" * 32}


def any_value(value: Any) -> AnyValue:
    """A Python value as OTLP's AnyValue."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=pairs(value)))
    return AnyValue() if value is None else AnyValue(string_value=value)


def pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    """A dict as OTLP attributes."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def span(name: str = "job.run", *, job_id: str | None = "job-1", **fields: Any) -> Span:
    """One span of now; `attributes` is a dict."""
    attributes = dict(fields.pop("attributes", {}))
    if job_id is not None:
        attributes.setdefault(Key.INVOCATION_ID, job_id)
    begin = time.time_ns()
    return Span(
        **{
            "trace_id": os.urandom(16),
            "span_id": os.urandom(8),
            "name": name,
            "start_time_unix_nano": begin,
            "end_time_unix_nano": begin + 5_000_000,
            "attributes": pairs(attributes),
            **fields,
        }
    )


def request_of(*spans: Span, resource: dict[str, Any] | None = None) -> ExportTraceServiceRequest:
    """An export request with these spans of one worker."""
    message = ExportTraceServiceRequest()
    part = message.resource_spans.add()
    part.resource.attributes.extend(pairs(RESOURCE if resource is None else resource))
    scope = part.scope_spans.add()
    scope.scope.name = "stallscope"
    scope.spans.extend(spans)
    return message
