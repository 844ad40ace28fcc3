"""What a small body can cost: bounded in time and memory, whatever was packed into it."""

from __future__ import annotations

import asyncio
import gzip
import resource
import threading
import time

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_bytes import pairs, request_of, span
from starlette.requests import Request

from collector import decode, ingest, otlp, staging
from collector.errors import BadInput, Overloaded, TooLarge
from collector.metrics import Metrics
from sdk_exporter.contract import Key

LIMIT = 64 << 20
PATIENCE_SECONDS = 20
"""What takes a fraction of a second when bounded, and minutes when not."""


def share() -> otlp.Share:
    return otlp.Share(otlp.InFlight(256 << 20, Metrics()))


def test_a_gzip_body_of_countless_empty_members_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(BadInput, match="members"):
        otlp.inflate(otlp.Body(gzip.compress(b"") * 200_000, "gzip", is_json=False), LIMIT, share())
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_a_gzip_body_of_several_members_and_pieces_is_whole() -> None:
    parts = [bytes([number]) * (3 << 20) for number in range(4)]
    packed = b"".join(gzip.compress(part, compresslevel=0) for part in parts)
    assert otlp.inflate(otlp.Body(packed, "gzip", is_json=False), LIMIT, share()) == b"".join(parts)


@pytest.mark.parametrize(
    "kind",
    [ExportTraceServiceRequest, ExportLogsServiceRequest, ExportMetricsServiceRequest],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("level", [1, 2, 3])
def test_countless_empty_parts_of_a_request_are_refused_before_anyone_walks_them(
    kind: type[ExportTraceServiceRequest], level: int
) -> None:
    fields = (b"\x0a", b"\x12", b"\x12")[:level]  # resource_… = 1, scope_… = 2, spans | log_records | metrics = 2
    body = (fields[-1] + b"\0") * 60_000
    for field in reversed(fields[:-1]):
        body = field + length(body) + body
    with pytest.raises(TooLarge, match="in one request is 50000"):
        otlp.parse(otlp.Body(body, "identity", is_json=False), kind, LIMIT, share())


def length(body: bytes) -> bytes:
    """The length of a field as a varint."""
    left, out = len(body), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def test_json_of_countless_objects_is_refused_before_they_are_made() -> None:
    body = b'{"resourceSpans":[' + b"{}," * (4 << 20) + b"{}]}"
    began = time.monotonic()
    with pytest.raises(TooLarge, match="objects and arrays"):
        otlp.parse(otlp.Body(body, "identity", is_json=True), ExportTraceServiceRequest, LIMIT, share())
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_of_countless_attributes_the_first_thousands_are_looked_at() -> None:
    message = request_of(span(attributes={f"k{number}": number for number in range(300)} | {"stallscope.x": "kept"}))
    one = message.resource_spans[0].scope_spans[0].spans[0]
    one.attributes.extend(pairs({"": ""}) * (decode.ATTRIBUTES_READ + 1))
    one.attributes.extend(pairs({"stallscope.late": "not looked at"}))
    [row], _ = decode.span_rows(message, "default", 1)
    assert row.attributes["stallscope.x"] == "kept"
    assert "stallscope.late" not in row.attributes


async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "BODY_SECONDS", 0.2)

    async def never() -> dict[str, object]:
        await asyncio.sleep(PATIENCE_SECONDS)
        return {"type": "http.request", "body": b"x", "more_body": True}

    headers = [(b"content-type", b"application/x-protobuf")]
    request = Request({"type": "http", "method": "POST", "path": "/v1/traces", "headers": headers}, never)  # type: ignore[arg-type]
    began = time.monotonic()
    with pytest.raises(Overloaded, match="did not arrive"):
        await otlp.read_body(request, LIMIT, share())
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


async def test_large_bodies_are_read_few_at_a_time_and_beside_what_readers_use() -> None:
    names: list[str] = []
    running: list[int] = []

    def work() -> None:
        running.append(1)
        names.append(threading.current_thread().name)
        time.sleep(0.01)
        assert len(running) <= ingest.DECODERS
        running.pop()

    body = otlp.Body(bytes(ingest.INLINE_BYTES + 1), "identity", is_json=False)
    await asyncio.gather(*(ingest.beside(body, work) for _ in range(20)))
    assert len(names) == 20
    assert all(name.startswith("decode") for name in names)


async def test_a_sender_that_hangs_up_is_bad_input_and_no_fault_of_ours() -> None:
    """A worker that is killed while it sends must not fill the server's log with traces."""
    told = iter([{"type": "http.request", "body": b"\x0a", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, object]:
        return next(told)

    scope = {"type": "http", "method": "POST", "path": "/v1/traces", "query_string": b""}
    headers = [(b"content-type", otlp.PROTOBUF.encode())]
    with pytest.raises(BadInput, match="connection ended"):
        await otlp.read_body(Request({**scope, "headers": headers}, receive), LIMIT, share())


def test_a_body_of_countless_tiny_messages_takes_no_memory() -> None:
    attributes = b"\x4a\x00" * (24 << 20)
    body = attributes
    for _ in range(3):
        body = b"\x0a" + length(body) + body if body is attributes else b"\x12" + length(body) + body
    began = peak_bytes()
    with pytest.raises(TooLarge, match="5 or less"):
        otlp.parse(otlp.Body(body, "identity", is_json=False), ExportTraceServiceRequest, LIMIT, share())
    assert peak_bytes() - began < 300 << 20, "and not 1.5 GB"


def peak_bytes() -> int:
    """Most memory that this process has ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_telemetry_is_far_from_the_bound_of_tiny_messages() -> None:
    ordinary = {f"attribute.{number}": number % 2 or f"value {number}" for number in range(20)}
    body = request_of(*(span(attributes=ordinary) for _ in range(2_000))).SerializeToString()
    tiny = sum(byte < 6 for byte in body)
    assert tiny / len(body) * LIMIT < otlp.TINY_FIELDS


def test_text_that_looks_like_secrets_everywhere_is_refused_before_it_costs_minutes() -> None:
    message = request_of(*(span(attributes={str(n): "token=" * 4_000 for n in range(20)}) for _ in range(120)))
    with pytest.raises(TooLarge, match="may hold secrets"):
        staging.stage(message, "default", 1)
    small = request_of(span(attributes={"note": "token=abc"}))
    assert staging.stage(small, "default", 1).spans == 1, "each request has its own bound"


def test_only_what_may_hold_secrets_counts_against_that_bound() -> None:
    tail = "2026-03-01 12:00:00 INFO step 12 of 400, 31.5 it/s\n" * 20_000
    message = request_of(*(span(attributes={Key.LOG_TAIL: tail}) for _ in range(30)))
    assert staging.stage(message, "default", 1).spans == 30
