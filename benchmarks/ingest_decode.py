"""How many spans a CPU-second reads: `python benchmarks/ingest_decode.py`. One process, no store.

The unit of work is that of `ingest_load`. Rows: medians of the repetitions, with the slowest and the fastest; a warm-up
comes first.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable

from ingest_load import request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.decode import span_rows
from collector.rows import json_text

BATCHES, SPANS, REPETITIONS = 40, 512, 5


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
    messages = [request(number, SPANS, chance) for number in range(BATCHES)]
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
