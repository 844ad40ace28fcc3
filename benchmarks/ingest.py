"""Our collector and rotel (a Rust OTLP collector, PyPI) into the same ClickHouse server, alternated in one run:
`python benchmarks/ingest.py [--quick]`. The embedded engine stands in the same table.

CPU per stored span is of collector and ClickHouse together until all is stored and two seconds of merges are over; it
is the figure that a busy machine disturbs least. Linux only (/proc). Needs the extra `bench` and the tests' ClickHouse
server (`make parts`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import clickhouse_connect
import httpx
import ingest_load as load
import rotel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from clickhouse_server import ClickHouseServer

USER, PASSWORD = "bench", "only-for-benchmarks"
SETTLE_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 120.0
SHAPES: Final = ((512, 24), (50, 16))
"""(spans of a batch, connections)."""
SUBJECTS: Final = ("rotel", "stallscope", "stallscope+journal", "embedded")
ROTEL_TABLE: Final = """
CREATE TABLE otel_traces (
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)), TraceId String CODEC(ZSTD(1)), SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)), TraceState String CODEC(ZSTD(1)), SpanName LowCardinality(String),
    SpanKind LowCardinality(String), ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)), ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)), SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(ZSTD(1)), StatusCode LowCardinality(String), StatusMessage String CODEC(ZSTD(1)),
    Events Nested (
        Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)
    ),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)),
    INDEX trace TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX resource_keys mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX resource_values mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX span_keys mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX span_values mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX duration Duration TYPE minmax GRANULARITY 1
) ENGINE = MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))
"""
"""The columns, codecs and indices that OpenTelemetry's own exporter makes."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(slots=True)
class Running:
    """One collector that takes OTLP/HTTP on `port`."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    database: str
    table: str
    clickhouse: ClickHouseServer | None  # None: the engine is in the process itself
    path: Path | None = None

    def cpu(self) -> tuple[float, float]:
        """Seconds of (collector, ClickHouse) so far."""
        server = self.clickhouse.process.pid if self.clickhouse and self.clickhouse.process else 0
        return load.cpu_seconds(self.process.pid), load.cpu_seconds(server) if server else 0.0

    def count(self) -> int:
        """Rows stored. Of the embedded engine its own metrics tell: no second process can ask it."""
        if self.clickhouse is None:
            text = httpx.get(f"http://127.0.0.1:{self.port}/metrics").text
            found = [line for line in text.splitlines() if line.startswith("stallscope_spans_stored_total ")]
            return int(float(found[0].split()[1]))
        return int(self._ask(f"SELECT count() FROM {self.table}"))  # noqa: S608 (a constant)

    def bytes_per_span(self) -> float:
        """On disk after all merges, indices included."""
        if self.clickhouse is None:
            return float("nan")
        self._ask(f"OPTIMIZE TABLE {self.table} FINAL")
        return float(
            self._ask(
                "SELECT sum(bytes_on_disk) / sum(rows) FROM system.parts"  # noqa: S608 (names made here)
                f" WHERE active AND database = '{self.database}' AND table = '{self.table}'"
            )
        )

    def parts(self) -> int:
        """Most active parts of one partition."""
        parts = "SELECT count() AS parts FROM system.parts WHERE active AND database = currentDatabase()"
        return int(self._ask(f"SELECT max(parts) FROM ({parts} AND table = '{self.table}' GROUP BY partition)"))  # noqa: S608

    def _ask(self, sql: str) -> str:
        assert self.clickhouse is not None
        answer = httpx.post(
            self.clickhouse.url, params={"database": self.database}, content=sql, auth=(USER, PASSWORD), timeout=60
        )
        return answer.raise_for_status().text.strip() or "0"

    def visible(self, job_id: str) -> bool:
        """Whether a query finds the job that was sent."""
        column = "job_id" if self.table == "spans" else "SpanAttributes['faas.invocation_id']"
        return int(self._ask(f"SELECT count() FROM {self.table} WHERE {column} = '{job_id}'")) > 0  # noqa: S608


@contextmanager
def running(name: str, clickhouse: ClickHouseServer, folder: Path) -> Iterator[Running]:
    """A collector with a database of its own."""
    database, port = f"b{uuid.uuid4().hex[:8]}", free_port()
    client = clickhouse_connect.get_client(port=clickhouse.http_port, username=USER, password=PASSWORD)
    client.command(f"CREATE DATABASE {database}")
    if name == "rotel":
        client.database = database
        client.command(ROTEL_TABLE)
    client.close()
    table = "otel_traces" if name == "rotel" else "spans"
    command, environment = _command(name, clickhouse, database, port, folder)
    log = (folder / f"{name}.log").open("ab")
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
    try:
        subject = Running(name, port, process, database, table, None if name == "embedded" else clickhouse)
        _wait_for(port, process, folder / f"{name}.log")
        yield subject
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def _command(
    name: str, clickhouse: ClickHouseServer, database: str, port: int, folder: Path
) -> tuple[list[str], dict[str, str]]:
    if name == "rotel":
        agent = Path(rotel.__file__).parent / "rotel-agent"
        command = [str(agent), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}"]
        command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--exporter", "clickhouse"]
        command += ["--clickhouse-exporter-endpoint", clickhouse.url, "--clickhouse-exporter-database", database]
        return [*command, "--clickhouse-exporter-user", USER, "--clickhouse-exporter-password", PASSWORD], {}
    url = f"clickhouse://{USER}:{PASSWORD}@127.0.0.1:{clickhouse.http_port}/{database}"
    environment = {"STALLSCOPE_DATABASE_URL": url}
    if name == "embedded":
        environment["STALLSCOPE_DATABASE_URL"] = f"chdb://{folder / database}"
    if name == "stallscope+journal":
        environment["STALLSCOPE_JOURNAL_DIR"] = str(folder / f"journal-{database}")
    return [sys.executable, str(Path(__file__).with_name("ingest_server.py")), str(port)], environment


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"it did not start: {log.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.05)


# ----------------------------------------------------------------------------------------------------- measurements


@dataclass(slots=True)
class Figures:
    """Of one repetition."""

    collector_us: float  # CPU a stored span
    clickhouse_us: float
    acked_per_second: float
    stored_per_second: float
    ack_p50_ms: float
    ack_p99_ms: float
    peak_mib: float

    @property
    def per_cpu_second(self) -> float:
        """Stored spans per CPU-second of both."""
        return 1e6 / (self.collector_us + self.clickhouse_us)


@dataclass(slots=True)
class Found:
    """All repetitions of a subject in one shape."""

    repetitions: list[Figures] = field(default_factory=list)

    def median(self, name: str) -> float:
        return statistics.median(getattr(one, name) for one in self.repetitions)

    def range(self, name: str) -> str:
        values = [getattr(one, name) for one in self.repetitions]
        return f"{min(values):,.0f}..{max(values):,.0f}"


def repetition(
    subject: Running, batches: list[load.Batch], rounds: int, connections: int, chance: random.Random
) -> Figures:
    """Send everything, wait until it is stored, read the meters. Raises AssertionError where a span is missing."""
    bodies = [(one.renewed(chance), one.spans) for _ in range(rounds) for one in batches]
    spans = sum(count for _, count in bodies)
    before, cpu_before = subject.count(), subject.cpu()
    load.forget_peak(subject.process.pid)
    began = time.perf_counter()
    answers = asyncio.run(load.send_all(subject.port, bodies, connections))
    assert answers.acked_spans == spans, f"{subject.name} answered {answers.statuses}"
    until = time.monotonic() + PATIENCE_SECONDS
    while subject.count() < before + spans:
        assert time.monotonic() < until, f"{subject.name}: {before + spans - subject.count()} acked spans not stored"
        time.sleep(0.02)
    stored = time.perf_counter() - began
    time.sleep(SETTLE_SECONDS)
    collector, clickhouse = (
        (after - before) * 1e6 / spans for after, before in zip(subject.cpu(), cpu_before, strict=True)
    )
    return Figures(
        collector,
        clickhouse,
        spans / answers.seconds,
        spans / stored,
        answers.percentile(0.5) * 1e3,
        answers.percentile(0.99) * 1e3,
        load.peak_memory_mib(subject.process.pid),
    )


@dataclass(slots=True)
class Latency:
    """One connection with batches of 50 spans."""

    ack: load.Answers = field(default_factory=load.Answers)
    visible: load.Answers = field(default_factory=load.Answers)  # seconds from the answer to a query that finds it


async def latency(subject: Running, requests: int, chance: random.Random) -> Latency:
    """Ack and ack → visible, one request at a time."""
    found, one = Latency(), load.batch(0, 50, chance)
    _, client = await asyncio.get_running_loop().create_connection(load.Client, "127.0.0.1", subject.port)
    for _ in range(requests):
        body = one.renewed(chance)
        offset, job_id = one.jobs[0]
        began = time.perf_counter()
        assert await client.post(body) == 200
        acked = time.perf_counter()
        found.ack.latencies.append(acked - began)
        if subject.clickhouse is not None:
            job = body[offset : offset + len(job_id)].decode()
            while not subject.visible(job):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.002)
            found.visible.latencies.append(time.perf_counter() - acked)
    client.close()
    return found


HEAD: Final = (
    "| batch x connections | subject | spans per CPU-s (min..max) | x rotel | collector + ClickHouse us | acked/s"
    " | stored/s | x rotel | ack p50 / p99 ms | peak MiB |\n|---|---|---|---|---|---|---|---|---|---|"
)


def table(found: dict[tuple[int, int], dict[str, Found]]) -> Iterator[str]:
    """The rows of all shapes."""
    yield HEAD
    for (spans, connections), subjects in found.items():
        base = subjects.get("rotel")
        for name, one in subjects.items():
            cells = [
                f"{spans} x {connections}",
                name,
                f"{one.median('per_cpu_second'):,.0f} ({one.range('per_cpu_second')})",
                f"{one.median('per_cpu_second') / base.median('per_cpu_second'):.2f}" if base else "",
                f"{one.median('collector_us'):.1f} + {one.median('clickhouse_us'):.1f}",
                f"{one.median('acked_per_second'):,.0f}",
                f"{one.median('stored_per_second'):,.0f}",
                f"{one.median('stored_per_second') / base.median('stored_per_second'):.2f}" if base else "",
                f"{one.median('ack_p50_ms'):.1f} / {one.median('ack_p99_ms'):.1f}",
                f"{one.median('peak_mib'):.0f}",
            ]
            yield f"| {' | '.join(cells)} |"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="3 repetitions of 25,000 spans in place of 5 of 100,000")
    parser.add_argument("--subjects", default=",".join(SUBJECTS))
    parser.add_argument("--shapes", default=",".join(f"{spans}x{lines}" for spans, lines in SHAPES))
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    repetitions, total = (3, 25_000) if options.quick else (5, 100_000)
    chance = random.Random(7)
    versions = f"Python {platform.python_version()}, rotel {version('rotel')}"
    print(f"{versions}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ingest-")))
        users = {USER: {"password": PASSWORD}}
        clickhouse = stack.enter_context(ClickHouseServer(folder / "clickhouse", users=users, log_level="warning"))
        subjects = [stack.enter_context(running(name, clickhouse, folder)) for name in options.subjects.split(",")]
        found: dict[tuple[int, int], dict[str, Found]] = {}
        for spans, connections in shapes:
            batches = [load.batch(number, spans, chance) for number in range(max(connections, 12_000 // spans))]
            rounds = max(1, total // (spans * len(batches)))
            of_shape = found[spans, connections] = {subject.name: Found() for subject in subjects}
            for number in range(-1, repetitions):  # the first warms up
                for subject in subjects:
                    figures = repetition(subject, batches, rounds if number >= 0 else 1, connections, chance)
                    if number >= 0:
                        of_shape[subject.name].repetitions.append(figures)
        print("\n".join(table(found)))
        print("\n| one connection, 50 spans | ack p50 / p99 ms | visible after ack p50 / p99 ms | disk B/span |")
        print("|---|---|---|---|")
        for subject in subjects:
            seen = asyncio.run(latency(subject, 50 if options.quick else 200, chance))
            print(
                f"| {subject.name} | {seen.ack.percentile(0.5) * 1e3:.1f} / {seen.ack.percentile(0.99) * 1e3:.1f}"
                f" | {seen.visible.percentile(0.5) * 1e3:.1f} / {seen.visible.percentile(0.99) * 1e3:.1f}"
                f" | {subject.bytes_per_span():.1f} |",
                flush=True,
            )
        print(f"load {os.getloadavg()[0]:.1f} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
