"""How long it takes to diagnose 1,000 stored requests again: `python benchmarks/rediagnose.py`. Goal: 10 s.

Six in ten failed with the tail of a public case, 16 KiB each, two in ten lost their worker, two in ten went well. Each
has records of claim, run and delivery, its worker's boot and a minute of heartbeats. The store is embedded, in a
folder of its own. What is timed is `stallscope rediagnose` without its start: reading, diagnosing, looking at what
happened beside, and writing every row anew.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from diagnose import CASES, TAIL_BYTES, filled
from pydantic import SecretStr

from collector import migrate
from collector.clickhouse import Database
from collector.diagnosis.records import nanoseconds
from collector.digest import JOBS_A_ROUND, Digest
from collector.rediagnosis import rediagnose
from collector.rows import SpanRow
from collector.settings import Settings
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

JOBS = 1_000
WORKERS = 50
GOAL_SECONDS = 10.0


def span(job: str, worker: int, name: str, at: datetime, status: str = "ok", **told: Any) -> SpanRow:
    resource_told = {Key.HOST_NAME: f"host-{worker % 7}", Key.CONTAINER_IMAGE_NAME: f"acme:{worker % 3}"}
    return SpanRow(
        tenant="default", arrived_ms=nanoseconds(at) // 1_000_000, start_ns=nanoseconds(at), end_ns=nanoseconds(at),
        trace_id=uuid.uuid4().hex, span_id=uuid.uuid4().hex[:16], parent_id="", job_id=job,
        endpoint_id=f"ep-{worker % 5}", worker_id=f"w-{worker}", boot_id=f"{worker:032x}", name=name, kind=1,
        status=status, status_message="", attributes=dict(told), resource=dict(resource_told),
    )  # fmt: skip


def requests(tails: list[str], now: datetime) -> list[SpanRow]:
    spans = [span("", n, SpanName.BOOT, now - timedelta(hours=2)) for n in range(WORKERS)]
    for number in range(JOBS):
        job, worker, at = f"job-{number}", number % WORKERS, now - timedelta(seconds=3 * number + 60)
        spans += [span(job, worker, SpanName.JOB_CLAIMED, at)]
        spans += [span("", worker, SpanName.HEARTBEAT, at + timedelta(seconds=15 * beat)) for beat in range(4)]
        if number % 10 < 2:
            spans += [span(job, worker, SpanName.JOB_RUN + STARTED_SUFFIX, at, **{Key.SPAN_ID: uuid.uuid4().hex[:16]})]
            death = {Key.DEATH_SIGNAL: "SIGKILL", Key.DEATH_JOBS_IN_HAND: [job]}
            spans += [span("", worker, SpanName.DEATH, at + timedelta(seconds=2), "error", **death)]
            continue
        failed = number % 10 < 8
        told = {Key.LOG_TAIL: filled(tails[number % len(tails)], TAIL_BYTES), Key.LOG_SCOPE: "job"} if failed else {}
        spans += [span(job, worker, SpanName.JOB_RUN, at, "error" if failed else "ok", **told)]
        spans += [span(job, worker, SpanName.JOB_DELIVER, at, **{Key.HTTP_STATUS: 200})]
    return spans


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(folder: str) -> tuple[float, float, int]:
    settings = Settings(database_url=SecretStr(f"chdb://{folder}/store"))
    db = await Database.open(settings)
    try:
        await migrate.apply(db, retention_days=settings.retention_days)
        now = datetime.now(timezone.utc)
        tails = [json.loads(path.read_text())["log_tail"] for path in sorted(CASES.glob("*.json"))]
        await db.insert("spans", requests(tails, now), token=uuid.uuid4().hex)
        digest = Digest()
        for _ in range(JOBS // JOBS_A_ROUND + 1):
            await digest.round(db, settings, now, open_too=False)
        wall, used = time.monotonic(), processor_seconds()
        done = await rediagnose(db, settings, now - timedelta(days=1), now)
        return time.monotonic() - wall, processor_seconds() - used, done.diagnosed
    finally:
        await db.close()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        wall, used, diagnosed = asyncio.run(measured(folder))
    print(f"{diagnosed} requests diagnosed again in {wall:.1f} s, {used:.1f} s of processor (goal {GOAL_SECONDS:g} s)")
    return 0 if diagnosed == JOBS and wall <= GOAL_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
