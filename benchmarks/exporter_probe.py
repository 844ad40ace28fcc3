"""One measurement in a fresh process: `exporter_probe.py PROBE SUBJECT COLLECTOR [NUMBER]`. Prints one JSON object.

Run by `exporter.py`. The subject's own defaults hold, apart from where it sends to and what would print or sample.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

ATTRIBUTES: dict[str, Any] = {
    "job.kind": "image", "job.steps": 30, "job.width": 1024, "job.height": 768, "job.seed": 1234567,
    "job.model": "example/large-model", "job.sampler": "euler", "job.scale": 7.5, "job.batch": 1,
    "job.cached": True, "job.queue": "default", "job.region": "eu-1",
}  # fmt: skip
WARM_JOBS = 300

Job = Callable[[int], None]
Close = Callable[[], None]


def nothing() -> None:
    """What there is to close where nothing was opened."""


def bare(collector: str) -> tuple[Job, Close]:
    def job(number: int) -> None:
        dict(ATTRIBUTES, number=number)

    return job, nothing


def stallscope(collector: str) -> tuple[Job, Close]:
    """A job's span as the hooks tell a handler's: a record when it begins and one when it ends."""
    import sdk_exporter

    sdk_exporter.instrument()
    from sdk_exporter import events
    from sdk_exporter.contract import SpanName

    events.end_boot({})

    def job(number: int) -> None:
        attempt = events.Attempt(f"job-{number}")
        events.begin(SpanName.JOB_RUN, ATTRIBUTES, attempt=attempt).end()

    return job, nothing


def stallscope_whole(collector: str) -> tuple[Job, Close]:
    """Everything that is told of a job: claim, hand, run, delivery, release."""
    import sdk_exporter

    sdk_exporter.instrument()
    from sdk_exporter import events, ledger
    from sdk_exporter.contract import SpanName

    events.end_boot({})

    def job(number: int) -> None:
        attempt = ledger.claim(f"job-{number}")
        events.hand(attempt)
        events.point(SpanName.JOB_CLAIMED, attempt=attempt, status="ok")
        events.begin(SpanName.JOB_RUN, ATTRIBUTES, attempt=attempt).end()
        events.begin(SpanName.JOB_DELIVER, {"stallscope.deliver.attempt": 1}, attempt=attempt).end()
        ledger.release(attempt, "delivered")

    return job, nothing


def opentelemetry(collector: str) -> tuple[Job, Close]:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("benchmark")

    def job(number: int) -> None:
        with tracer.start_as_current_span("job.run", attributes=ATTRIBUTES) as span:
            span.set_attribute("job.id", f"job-{number}")

    return job, nothing  # the provider shuts down at exit by itself


def sentry(collector: str) -> tuple[Job, Close]:
    import sentry_sdk

    sentry_sdk.init(dsn=collector.replace("//", "//public@") + "/1", traces_sample_rate=1.0)

    def job(number: int) -> None:
        with sentry_sdk.start_transaction(op="job", name="job.run") as transaction:
            transaction.set_data("job.id", f"job-{number}")
            for key, value in ATTRIBUTES.items():
                transaction.set_data(key, value)

    return job, nothing


def logfire(collector: str) -> tuple[Job, Close]:
    import logfire as client
    from logfire import AdvancedOptions

    token = "_".join(("pylf", "v1", "local", "benchmark"))
    client.configure(
        token=token, console=False, advanced=AdvancedOptions(base_url=collector), inspect_arguments=False, metrics=False
    )

    def job(number: int) -> None:
        with client.span("job.run", job_id=f"job-{number}", **ATTRIBUTES):
            pass

    return job, nothing


SUBJECTS = {
    "bare": bare,
    "stallscope": stallscope,
    "stallscope-whole": stallscope_whole,
    "opentelemetry": opentelemetry,
    "sentry": sentry,
    "logfire": logfire,
}


def resident_mib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def start(subject: str, collector: str, number: int) -> dict[str, float]:
    """Import and init, over an interpreter with `logging` loaded."""
    memory, cpu, wall = resident_mib(), time.process_time(), time.perf_counter()
    SUBJECTS[subject](collector)
    return {
        "ms": (time.perf_counter() - wall) * 1e3,
        "cpu_ms": (time.process_time() - cpu) * 1e3,
        "mib": resident_mib() - memory,
    }


def span(subject: str, collector: str, number: int) -> dict[str, float]:
    """Processor time of the job's own thread, back to back, smallest of five rounds against bursts of other load."""
    job, _ = SUBJECTS[subject](collector)
    for warm in range(WARM_JOBS):
        job(warm)
    rounds = []
    for _ in range(5):
        begun = time.thread_time()
        for number_of in range(number // 5):
            job(number_of)
        rounds.append((time.thread_time() - begun) / (number // 5) * 1e6)
    return {"us": min(rounds)}


def line(subject: str, collector: str, number: int) -> dict[str, float]:
    """Processor time of a printed line, stdout being a file that costs nothing."""
    sys.stdout = stream = open(os.devnull, "w", buffering=1)  # noqa: SIM115 - for the life of the process
    job, _ = SUBJECTS[subject](collector)
    if subject == "logfire":
        import logfire as client

        captured = client.instrument_print()  # held: it ends with its object
        captured.__enter__()
    job(0)
    rounds = []
    for _ in range(5):
        begun = time.thread_time()
        for number_of in range(number // 5):
            print(f"step {number_of} of 5000: loss 0.123", file=None if subject == "logfire" else stream)
        rounds.append((time.thread_time() - begun) / (number // 5) * 1e6)
    return {"us": min(rounds)}


def outage(subject: str, collector: str, number: int) -> dict[str, float]:
    """`number` jobs, 1 ms apart, with nobody to take them. The driver measures the rest of the exit."""
    job, _ = SUBJECTS[subject](collector)
    gc.collect()
    memory, slowest = resident_mib(), 0.0
    for number_of in range(number):
        begun = time.perf_counter()
        job(number_of)
        slowest = max(slowest, time.perf_counter() - begun)
        time.sleep(0.001)
    return {"slowest_ms": slowest * 1e3, "mib": resident_mib() - memory, "ended_at": time.time()}


def latency(subject: str, collector: str, number: int) -> dict[str, float]:
    """Handlers of 10 ms of sleep: the whole, and what the subject adds, by the clock and in processor time. The latter
    does not count the turns of others on a busy machine."""
    job, _ = SUBJECTS[subject](collector)
    for warm in range(20):
        job(warm)
    took, added, added_cpu = [], [], []
    for number_of in range(number):
        begun = time.perf_counter()
        time.sleep(0.010)
        slept, cpu = time.perf_counter(), time.thread_time()
        job(number_of)
        added_cpu.append(time.thread_time() - cpu)
        ended = time.perf_counter()
        added.append(ended - slept)
        took.append(ended - begun)
    return {
        "p50_ms": percentile(took, 0.50) * 1e3,
        "p99_ms": percentile(took, 0.99) * 1e3,
        "added_p99_ms": percentile(added, 0.99) * 1e3,
        "added_cpu_p99_ms": percentile(added_cpu, 0.99) * 1e3,
    }


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def rate(subject: str, collector: str, number: int) -> dict[str, float]:
    """100 jobs a second with a printed line each, until `number` are done."""
    job, _ = SUBJECTS[subject](collector)
    for number_of in range(200):  # whatever loads lazily is loaded now
        job(number_of)
        time.sleep(0.005)
    time.sleep(1.0)
    print("measure", file=sys.stderr, flush=True)
    due = time.monotonic()
    cpu = time.process_time()
    for number_of in range(number):
        job(number_of)
        print("a line of output", file=sys.stderr, flush=True)
        due += 0.010
        time.sleep(max(0.0, due - time.monotonic()))
    cpu = time.process_time() - cpu
    print("measured", file=sys.stderr, flush=True)
    time.sleep(1.0)
    return {"worker_percent": cpu / (number / 100) * 100}


PROBES = {"start": start, "span": span, "line": line, "outage": outage, "latency": latency, "rate": rate}


def main() -> None:
    probe, subject, collector, number = sys.argv[1:]
    logging.getLogger().setLevel(logging.CRITICAL)
    told = sys.stdout
    answer = PROBES[probe](subject, collector, int(number))
    told.write("\n" + json.dumps(answer) + "\n")
    told.flush()


if __name__ == "__main__":
    main()
