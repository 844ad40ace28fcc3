"""How many spans a CPU-second reads: `python benchmarks/ingest_decode.py`. One process, no store.

The unit of work: 5 spans a job with 12 attributes each and 15 of the resource, 5 % of the jobs failed with an exception
event and a tail of 2 to 16 KiB. Ids differ from span to span, words repeat, as from real workers. Rows: medians of the
repetitions, with the slowest and the fastest; a warm-up comes first.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import sys
import time
from collections.abc import Callable

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.decode import span_rows
from collector.rows import json_text
from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName

BATCHES, SPANS, REPETITIONS = 40, 512, 5
NAMES = (SpanName.JOB_CLAIMED, SpanName.JOB_GATED, SpanName.JOB_RUN, SpanName.JOB_DELIVER, "infer")
LINE = "2026-03-01 12:00:{:02} INFO engine.py:{} step {} of 400, {:.1f} tokens/s, 41.2 GiB allocated on cuda:0\n"


def pair(key: str, value: str | int | float | bool) -> KeyValue:
    """One attribute."""
    kind = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}[type(value)]
    return KeyValue(key=key, value=AnyValue(**{kind: value}))


def tail(chance: random.Random) -> str:
    """The last output of a worker, 2 to 16 KiB."""
    size = chance.randrange(2_048, 16_384)
    lines = [LINE.format(n % 60, chance.randrange(999), n, chance.random() * 90) for n in range(size // len(LINE))]
    return "".join(lines)[-size:] + "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB\n"


def batch(number: int, chance: random.Random) -> ExportTraceServiceRequest:
    """A request of one worker."""
    message = ExportTraceServiceRequest()
    part = message.resource_spans.add()
    part.resource.attributes.extend(
        [pair(f"resource.attribute.{one}", f"value {one} of worker {number % 50}") for one in range(12)]
        + [pair(Key.SERVICE_INSTANCE_ID, f"worker-{number % 50}"), pair(Key.FAAS_NAME, "endpoint-1")]
        + [pair(Key.BOOT_ID, hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest())]
    )
    scope = part.scope_spans.add()
    scope.scope.name = "stallscope"
    began = 1_760_000_000_000_000_000 + number * 10**9
    for place in range(SPANS):
        failed = place % 100 == 2
        span = scope.spans.add(
            trace_id=chance.randbytes(16),
            span_id=chance.randbytes(8),
            parent_span_id=chance.randbytes(8),
            name=NAMES[place % 5],
            start_time_unix_nano=began + place,
            end_time_unix_nano=began + place + 10**6,
        )
        job = f"{chance.getrandbits(64):016x}-u1"
        span.attributes.extend(
            [pair(Key.INVOCATION_ID, job), pair("request.id", f"req-{chance.getrandbits(48):012x}")]
            + [pair(f"word.{one}", f"one of {one * 7} words") for one in range(4)]
            + [pair("count", place), pair("bytes", chance.getrandbits(40)), pair("ratio", chance.random())]
            + [pair("on", True), pair("model", "meta-llama/Llama-3-8B-Instruct"), pair("stage", NAMES[place % 5])]
        )
        if failed:
            span.status.code = Status.StatusCode.STATUS_CODE_ERROR
            exception = [pair(Key.EXCEPTION_TYPE, "RuntimeError"), pair(Key.EXCEPTION_MESSAGE, "CUDA out of memory")]
            span.events.append(Span.Event(name=EXCEPTION_EVENT, time_unix_nano=began, attributes=exception))
            span.attributes.append(pair(Key.LOG_TAIL, tail(chance)))
    return message


def spans_per_second(work: Callable[[], object]) -> tuple[float, float, float]:
    """(median, slowest, fastest) spans per CPU-second of `work`, which reads all batches."""
    work()
    found = []
    for _ in range(REPETITIONS):
        started = time.process_time()
        work()
        found.append(BATCHES * SPANS / (time.process_time() - started))
    return statistics.median(found), min(found), max(found)


def main() -> int:
    """Print the table."""
    chance = random.Random(7)
    messages = [batch(number, chance) for number in range(BATCHES)]
    bodies = [message.SerializeToString() for message in messages]
    rows = [span_rows(message, "default", 1)[0] for message in messages]

    def read(body: bytes) -> None:
        span_rows(ExportTraceServiceRequest.FromString(body), "default", 1)

    ways: dict[str, Callable[[], object]] = {
        "protobuf alone": lambda: [ExportTraceServiceRequest.FromString(body) for body in bodies],
        "decode.span_rows alone": lambda: [span_rows(message, "default", 1) for message in messages],
        "both": lambda: [read(body) for body in bodies],
        "rows to JSON texts": lambda: [
            json_text(column) for some in rows for row in some for column in (row.attributes, row.resource, row.events)
        ],
    }
    print(f"{BATCHES} batches of {SPANS} spans, {sum(map(len, bodies)) / BATCHES / SPANS:.0f} bytes a span")
    print("| way | spans per CPU-second (slowest..fastest) |\n|---|---|")
    for name, work in ways.items():
        median, slowest, fastest = spans_per_second(work)
        print(f"| {name} | {median:,.0f} ({slowest:,.0f}..{fastest:,.0f}) |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
