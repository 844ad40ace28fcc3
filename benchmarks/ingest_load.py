"""What the ingest benchmarks share: batches of spans as workers send them, a client that costs little, CPU readings.

The unit of work: 5 spans a job with 12 attributes each and 15 of the resource, 5 % of the jobs failed with an exception
event and a tail of 2 to 16 KiB. Ids differ from span to span, words repeat, as from real workers.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName

SPANS_PER_JOB: Final = 5
FAILED_OF_100_JOBS: Final = 5
NAMES: Final = (SpanName.JOB_CLAIMED, SpanName.JOB_GATED, SpanName.JOB_RUN, SpanName.JOB_DELIVER, "infer")
LINE: Final = "2026-03-01 12:00:{:02} INFO engine.py:{} step {} of 400, {:.1f} tokens/s, 41.2 GiB allocated on cuda:0\n"
AGAIN_SECONDS: Final = 0.2
TICKS: Final = os.sysconf("SC_CLK_TCK")


def pair(key: str, value: str | int | float | bool) -> KeyValue:
    """One attribute."""
    kind = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def tail(chance: random.Random) -> str:
    """The last output of a worker, 2 to 16 KiB."""
    size = chance.randrange(2_048, 16_384)
    lines = [LINE.format(n % 60, chance.randrange(999), n, chance.random() * 90) for n in range(size // len(LINE))]
    return "".join(lines)[-size:] + "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB\n"


@dataclass(slots=True)
class Batch:
    """A request of one worker, and the places in its bytes that another request would have different."""

    body: bytearray
    spans: int
    ids: list[tuple[int, int]] = field(default_factory=list)  # (offset, bytes) of trace, span and parent ids
    jobs: list[tuple[int, str]] = field(default_factory=list)  # (offset, job id)

    def renewed(self, chance: random.Random) -> bytes:
        """The same with ids that nobody has sent."""
        body, of_a_trace = self.body, chance.randbytes(16)
        for place, (offset, size) in enumerate(self.ids):
            if place % (3 * SPANS_PER_JOB) == 0:
                of_a_trace = chance.randbytes(16)
            body[offset : offset + size] = of_a_trace if size == 16 else chance.randbytes(size)
        new: dict[str, bytes] = {}
        for offset, job_id in self.jobs:
            if job_id not in new:
                new[job_id] = b"%016x-u1" % chance.getrandbits(64)
            body[offset : offset + len(job_id)] = new[job_id]
        return bytes(body)


def batch(number: int, spans: int, chance: random.Random) -> Batch:
    """A batch with its places."""
    message = request(number, spans, chance)
    body = bytearray(message.SerializeToString())
    made = Batch(body, spans)
    position = 0
    for span in message.resource_spans[0].scope_spans[0].spans:
        for identity in (span.trace_id, span.span_id, span.parent_span_id):
            position = body.index(identity, position)
            made.ids.append((position, len(identity)))
        job_id = span.attributes[0].value.string_value
        position = body.index(job_id.encode(), position)
        made.jobs.append((position, job_id))
    return made


def request(number: int, spans: int, chance: random.Random) -> ExportTraceServiceRequest:
    """A request of one worker with so many spans."""
    message = ExportTraceServiceRequest()
    part = message.resource_spans.add()
    part.resource.attributes.extend(
        [pair(f"resource.attribute.{one}", f"value {one} of worker {number % 50}") for one in range(12)]
        + [pair(Key.SERVICE_INSTANCE_ID, f"worker-{number % 50}"), pair(Key.FAAS_NAME, "endpoint-1")]
        + [pair(Key.BOOT_ID, hashlib.md5(str(number % 50).encode(), usedforsecurity=False).hexdigest())]
    )
    scope = part.scope_spans.add()
    scope.scope.name = "stallscope"
    began = time.time_ns() + number * 10**9
    job, trace_id = "", b""
    for place in range(spans):
        if place % SPANS_PER_JOB == 0:
            job, trace_id = f"{chance.getrandbits(64):016x}-u1", chance.randbytes(16)
            failed = chance.random() * 100 < FAILED_OF_100_JOBS
        span = scope.spans.add(
            trace_id=trace_id,
            span_id=chance.randbytes(8),
            parent_span_id=chance.randbytes(8),
            name=NAMES[place % len(NAMES)],
            start_time_unix_nano=began + place * 10**6 + chance.randrange(10**6),
            end_time_unix_nano=began + (place + 1) * 10**6 + chance.randrange(10**6),
        )
        span.attributes.extend(
            [pair(Key.INVOCATION_ID, job), pair("request.id", f"req-{chance.getrandbits(48):012x}")]
            + [pair(f"word.{one}", f"one of {one * 7} words") for one in range(4)]
            + [pair("count", place), pair("bytes", chance.getrandbits(40)), pair("ratio", chance.random())]
            + [pair("on", True), pair("model", "meta-llama/Llama-3-8B-Instruct"), pair("stage", span.name)]
        )
        if failed and span.name == SpanName.JOB_RUN:
            span.status.code = Status.StatusCode.STATUS_CODE_ERROR
            exception = [pair(Key.EXCEPTION_TYPE, "RuntimeError"), pair(Key.EXCEPTION_MESSAGE, "CUDA out of memory")]
            span.events.append(Span.Event(name=EXCEPTION_EVENT, time_unix_nano=began, attributes=exception))
            span.attributes.append(pair(Key.LOG_TAIL, tail(chance)))
    return message


# ------------------------------------------------------------------------------------------------------- the client


@dataclass(slots=True)
class Answers:
    """What a run of the client saw."""

    seconds: float = 0.0
    acked_spans: int = 0
    latencies: list[float] = field(default_factory=list)  # seconds, of accepted requests
    statuses: dict[int, int] = field(default_factory=dict)

    def percentile(self, share: float) -> float:
        """Seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Client(asyncio.Protocol):
    """One connection that posts bodies one after the other. No HTTP library: it would cost as much as what it asks."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answered: asyncio.Future[int] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered and not self._answered.done():
            self._answered.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r", 1)[0] or 0)
        if len(self._received) >= end + 4 + length and self._answered and not self._answered.done():
            del self._received[: end + 4 + length]
            self._answered.set_result(int(head.split(b" ", 2)[1]))

    async def post(self, body: bytes) -> int:
        """The status of the answer. Raises ConnectionError."""
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(
            b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        return await self._answered

    def close(self) -> None:
        """Hang up."""
        if self._transport:
            self._transport.close()


async def send_all(port: int, bodies: Sequence[tuple[bytes, int]], connections: int) -> Answers:
    """Post (body, spans) over so many connections, as fast as they are answered; again what was answered with 503."""
    waiting, answers = iter(bodies), Answers()
    began = time.perf_counter()
    await asyncio.gather(*(_send(port, waiting, answers) for _ in range(connections)))
    answers.seconds = time.perf_counter() - began
    return answers


async def _send(port: int, waiting: Iterator[tuple[bytes, int]], answers: Answers) -> None:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    for body, spans in waiting:
        began = time.perf_counter()
        while (status := await client.post(body)) == 503:
            answers.statuses[status] = answers.statuses.get(status, 0) + 1
            await asyncio.sleep(AGAIN_SECONDS)
        answers.statuses[status] = answers.statuses.get(status, 0) + 1
        if status == 200:
            answers.latencies.append(time.perf_counter() - began)
            answers.acked_spans += spans
    client.close()


# --------------------------------------------------------------------------------------------------------- readings


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_memory_mib(pid: int) -> float:
    """Highest resident memory since `forget_peak`."""
    return _status_mib(pid, "VmHWM:")


def memory_mib(pid: int) -> float:
    """Resident memory now."""
    return _status_mib(pid, "VmRSS:")


def forget_peak(pid: int) -> None:
    """Begin a new measurement of `peak_memory_mib`."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


def _status_mib(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition(name)[2].split()[0]) / 1024
