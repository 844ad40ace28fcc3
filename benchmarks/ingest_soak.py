"""Twice the load that the collector can take, then half of it for long: `python benchmarks/ingest_soak.py`.

Overload: the peak is measured first; then twice as many spans a second are offered over 200 connections for five
minutes. Goodput must stay at 90 % of the peak, the answers 200, 429 or 503, and memory bounded. Soak: half of the peak
for twenty minutes; memory, threads, open files and parts of a partition must not grow. Needs what `ingest.py` needs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ingest_load as load
from ingest import PASSWORD, USER, ClickHouseServer, Running, running

SPANS: Final = 512
PEAK_CONNECTIONS, MOST_CONNECTIONS = 24, 200
GIVE_UP_SECONDS: Final = 10.0
"""An exporter's own time limit: a later answer counts for nothing."""
GOODPUT_SHARE: Final = 0.9
GROWTH_MIB: Final = 32.0
PARTS_MOST: Final = 150
FAIR_ANSWERS: Final = {200, 429, 503}


@dataclass(frozen=True, slots=True)
class Sample:
    """What the collector and its table are like at one moment."""

    memory_mib: float
    threads: int
    files: int
    parts: int

    @classmethod
    def of(cls, subject: Running) -> Sample:
        """Now."""
        process = Path(f"/proc/{subject.process.pid}")
        threads = (process / "status").read_text(encoding="utf-8").partition("Threads:")[2].split()[0]
        files = len(list((process / "fd").iterdir()))
        return cls(load.memory_mib(subject.process.pid), int(threads), files, subject.parts())


async def offer(port: int, batches: list[load.Batch], rate: float, seconds: float, connections: int) -> load.Answers:
    """Offer `rate` spans a second, whether answers come or not: a request that no connection is free for is not made
    up for later."""
    answers, chance = load.Answers(), random.Random(3)
    until, due = time.monotonic() + seconds, time.monotonic()

    async def one_connection() -> None:
        nonlocal due
        client: load.Client | None = None
        while (now := time.monotonic()) < until:
            due = max(due, now - 1.0) + SPANS / rate
            if due > now:
                await asyncio.sleep(due - now)
            began = time.monotonic()
            try:
                if client is None:
                    _, client = await asyncio.get_running_loop().create_connection(load.Client, "127.0.0.1", port)
                status = await asyncio.wait_for(client.post(chance.choice(batches).renewed(chance)), GIVE_UP_SECONDS)
            except (asyncio.TimeoutError, OSError):
                status = 0
                if client is not None:
                    client.close()
                client = None
            answers.statuses[status] = answers.statuses.get(status, 0) + 1
            if status == 200:
                answers.acked_spans += SPANS
                answers.latencies.append(time.monotonic() - began)
            elif status in (429, 503):
                await asyncio.sleep(0.5)

    began = time.monotonic()
    await asyncio.gather(*(one_connection() for _ in range(connections)))
    answers.seconds = time.monotonic() - began
    return answers


def overload(subject: Running, batches: list[load.Batch], seconds: float) -> tuple[float, list[str]]:
    """(peak, complaints)."""
    asyncio.run(offer(subject.port, batches, 1e9, 3, PEAK_CONNECTIONS))  # warms up
    at_peak = asyncio.run(offer(subject.port, batches, 1e9, max(10.0, seconds / 5), PEAK_CONNECTIONS))
    peak = at_peak.acked_spans / at_peak.seconds
    load.forget_peak(subject.process.pid)
    over = asyncio.run(offer(subject.port, batches, 2 * peak, seconds, MOST_CONNECTIONS))
    goodput, memory = over.acked_spans / over.seconds, load.peak_memory_mib(subject.process.pid)
    print(
        f"{subject.name}: peak {peak:,.0f} spans/s; offered twice as many over {MOST_CONNECTIONS} connections for"
        f" {over.seconds:.0f} s: goodput {goodput:,.0f} ({goodput / peak:.0%}), answers {over.statuses},"
        f" ack p50 {over.percentile(0.5) * 1e3:,.0f}, p99 {over.percentile(0.99) * 1e3:,.0f} ms, {memory:.0f} MiB",
        flush=True,
    )
    complaints = [f"goodput is {goodput / peak:.0%} of the peak"] if goodput < GOODPUT_SHARE * peak else []
    if not set(over.statuses) <= FAIR_ANSWERS:
        complaints.append(f"answers were {over.statuses}; 0 is none within {GIVE_UP_SECONDS:g} s")
    return peak, complaints


def soak(subject: Running, batches: list[load.Batch], rate: float, seconds: float) -> list[str]:
    """Complaints. The first tenth of the time does not count: caches fill."""
    samples: list[Sample] = []
    acked, steps = 0, 10
    for _ in range(steps):
        acked += asyncio.run(offer(subject.port, batches, rate, seconds / steps, PEAK_CONNECTIONS)).acked_spans
        samples.append(Sample.of(subject))
        print(f"{subject.name}: {acked:,} spans, {samples[-1]}", flush=True)
    first, last, complaints = samples[1], samples[-1], []
    if last.memory_mib > first.memory_mib + GROWTH_MIB:
        complaints.append(f"memory grew from {first.memory_mib:.0f} to {last.memory_mib:.0f} MiB")
    if last.threads > first.threads or last.files > first.files + 5:
        complaints.append(f"threads or files grew: {first} to {last}")
    if max(sample.parts for sample in samples) > PARTS_MOST:
        complaints.append(f"a partition had {max(sample.parts for sample in samples)} parts")
    return complaints


def main() -> int:
    """Run both on both; 1 where anything is to complain of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--overload-seconds", type=float, default=300)
    parser.add_argument("--soak-seconds", type=float, default=1200)
    parser.add_argument("--subjects", default="stallscope,stallscope+journal")
    options = parser.parse_args()
    chance, complaints = random.Random(7), list[str]()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ingest-")))
        users = {USER: {"password": PASSWORD}}
        clickhouse = stack.enter_context(ClickHouseServer(folder / "clickhouse", users=users, log_level="warning"))
        batches = [load.batch(number, SPANS, chance) for number in range(PEAK_CONNECTIONS)]
        for name in options.subjects.split(","):
            with running(name, clickhouse, folder) as subject:
                peak, found = overload(subject, batches, options.overload_seconds)
                complaints += found + soak(subject, batches, peak / 2, options.soak_seconds)
    print("\n".join(complaints) or "nothing to complain of")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
