"""How long the pages take over a large store: `python benchmarks/pages.py [--requests 1000000] [--keep DIR]`.

Goals, at 1 million requests and 10 million spans on a ClickHouse server, 95th percentile of the server's own time:
failure page 100 ms, list with filters 200 ms, text search over a day 1 s, overview 300 ms; a page without its log tail
150 KB at most.

The store is filled by the engine itself (INSERT SELECT) from a few requests that the real diagnosis has read: rows are
those of real requests with other ids and times. `--keep` leaves the store there, and a later run with the same number
of requests uses it again.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import httpx
from pydantic import SecretStr

from collector import asgi, migrate
from collector.answers import diagnosed, first_look, job_row
from collector.clickhouse import Database
from collector.queries.job import JobSpans
from collector.queries.stored import JobRow, ms_of
from collector.rows import SpanEvent, SpanRow
from collector.settings import Settings
from dashboard import urls
from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from clickhouse_server import ClickHouseServer

DAYS: Final = 7
ENDPOINTS: Final = 20
WORKERS: Final = 500
INSERT_SECONDS: Final = 1800
SLICE: Final = 200_000
JOB = "template-job"
WORKER = "template-worker"
BOOT = "template-boot"
ENDPOINT = "template-endpoint"
TAIL_LINE = "INFO 11-02 10:00:00 [loggers.py:123] Engine 000: Avg generation throughput: 41.5 tokens/s\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB."
# Of 100 requests in a row: which end in what.
MIX: Final = (("completed", 92), ("handler_failed", 4), ("prestart_failed", 2), ("worker_killed", 1), ("stopped", 1))


@dataclass(frozen=True, slots=True)
class Goal:
    """One page: what is measured, the goal in milliseconds, and the addresses asked for, in turn."""

    name: str
    milliseconds: float
    paths: Sequence[str]


# ------------------------------------------------------------------------------------------------- requests to copy


def template(kind: str, start_ns: int) -> list[SpanRow]:
    """The ten records of one request that ended as `kind`, around `start_ns`."""
    job = {Key.INVOCATION_ID: JOB}
    log = {Key.LOG_TAIL: TAIL_LINE * 40 + f"Traceback (most recent call last):\n{OOM}\n", Key.LOG_SCOPE: "job"}
    failure = {Key.ERROR_TYPE: "torch.OutOfMemoryError", Key.LOG_COMPLETE: True, **log}
    exception = SpanEvent(
        EXCEPTION_EVENT,
        start_ns + 3_000_000_000,
        {Key.EXCEPTION_TYPE: "torch.OutOfMemoryError", Key.EXCEPTION_MESSAGE: OOM.partition(": ")[2]},
    )
    told = [
        _span(SpanName.CALLER_REQUEST, start_ns, -0.5, 3.4, job),
        _span(SpanName.JOB_CLAIMED, start_ns, 0, 0, {**job, Key.CLAIM_WAIT_SECONDS: 0.4}),
        _span(f"{SpanName.JOB_RUN}.started", start_ns, 0.1, 0.1, job),
        _span("llm.prefill", start_ns, 0.2, 0.5, {**job, "gen_ai.usage.input_tokens": 812}),
        _span("llm.decode", start_ns, 0.5, 2.9, {**job, "gen_ai.usage.output_tokens": 240}),
    ]
    run = _span(SpanName.JOB_RUN, start_ns, 0.1, 3.0, {**job, Key.HANDLER_KIND: "sync"})
    delivered = {**job, Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True}
    deliver = _span(SpanName.JOB_DELIVER, start_ns, 3.0, 3.1, delivered)
    if kind == "completed":
        told += [run, deliver]
    elif kind == "handler_failed":
        told += [replace(run, status="error", attributes={**run.attributes, **failure}, events=[exception]), deliver]
    elif kind == "prestart_failed":
        told = [
            *told[:2],
            _span(SpanName.JOB_GATED, start_ns, 0, 3.0, job),
            replace(
                _span(SpanName.PRESTART, start_ns, -1, 3.0, {**failure, Key.LOG_SCOPE: "worker"}),
                job_id="",
                status="error",
                events=[exception],
            ),
            deliver,
        ]
    elif kind == "worker_killed":
        death = {Key.DEATH_SIGNAL: "SIGKILL", Key.DEATH_OOM_KILL: True, Key.DEATH_JOBS_IN_HAND: [JOB]}
        told.append(replace(_span(SpanName.DEATH, start_ns, 2.0, 2.0, death), job_id=""))
    else:
        told.append(_span(SpanName.JOB_STOP, start_ns, 1.0, 1.1, {**job, "stallscope.stop.outcome": "stopped"}))
        told.append(replace(run, end_ns=start_ns + 1_100_000_000))
    ages = {Key.HEARTBEAT_PROCESS: 0.1, Key.HEARTBEAT_LOOP: 0.1, Key.HEARTBEAT_PROGRESS: 0.2}
    channel = {Key.CHANNEL_STATE: "ok", Key.CHANNEL_POLLS: 12, Key.CHANNEL_EMPTY: 12, Key.CHANNEL_FAILURES: 0}
    reports = [
        _span(SpanName.HEARTBEAT, start_ns, 0.0, 0.0, ages),
        _span(SpanName.HEARTBEAT, start_ns, 1.5, 1.5, ages),
        _span(SpanName.STOP_CHANNEL, start_ns, -59.0, 1.0, channel),
        _span(SpanName.JOB_TAKE, start_ns, -59.0, 1.0, channel),
    ]
    return told + [replace(report, job_id="") for report in reports][: 10 - len(told)]


def _span(name: str, start_ns: int, start: float, end: float, attributes: dict[str, object]) -> SpanRow:
    resource = {
        Key.SERVICE_INSTANCE_ID: WORKER,
        Key.FAAS_NAME: ENDPOINT,
        Key.BOOT_ID: BOOT,
        Key.HOST_NAME: "host-7",
        Key.HW_MODEL: "NVIDIA L4",
        Key.HW_DRIVER_VERSION: "570.86",
        Key.SERVICE_VERSION: "v12",
        Key.SDK_NAME: "runpod",
        Key.SDK_VERSION: "1.12.0",
    }
    return SpanRow(
        tenant="default",
        arrived_ms=(start_ns + int(end * 1e9)) // 1_000_000 + 400,
        start_ns=start_ns + int(start * 1e9),
        end_ns=start_ns + int(end * 1e9),
        trace_id=uuid.uuid4().hex,
        span_id=uuid.uuid4().hex[:16],
        parent_id="",
        job_id=JOB,
        endpoint_id=ENDPOINT,
        worker_id=WORKER,
        boot_id=BOOT,
        name=name,
        kind=1,
        status="unset",
        status_message="",
        attributes=attributes,  # type: ignore[arg-type]  # plain values, all of them
        resource=dict(resource),
        scope="stallscope",
    )


# ------------------------------------------------------------------------------------------------- filling the store

_STRIDE_NS = DAYS * 86_400 * 1_000_000_000

# What of a copied row is another's: `n` is the number of the request, `age_ns` how far it lies before the newest.
_WITH = f"""
WITH lower(hex(sipHash128(n))) AS id, concat(substring(id, 1, 8), '-', substring(id, 9, 4), '-u1') AS job,
     concat('w', leftPad(toString(n % {WORKERS}), 4, '0')) AS worker,
     concat('endpoint-', toString(n % {ENDPOINTS})) AS endpoint,
     toInt64({{requests:UInt64}} - 1 - n) * intDiv({_STRIDE_NS}, {{requests:UInt64}}) AS age_ns,
     intDiv(start_ns - age_ns, 86400000000000) AS day,
     lower(hex(sipHash128(worker, day))) AS boot"""

_OTHERS = {
    "arrived_ms": "arrived_ms - intDiv(age_ns, 1000000)",
    "start_ns": "start_ns - age_ns",
    "end_ns": "end_ns - age_ns",
    "trace_id": "id",
    "span_id": "lower(hex(sipHash64(n, span_id)))",
    "job_id": f"if(job_id = '{JOB}', job, '')",
    "endpoint_id": "endpoint",
    "worker_id": "worker",
    "boot_id": "boot",
    "attributes": f"replaceOne(attributes, '{JOB}', job)",
    "resource": f"replaceOne(replaceOne(resource, '{WORKER}', worker), 'host-7', concat('host-', toString(n % 40)))",
}


async def fill(db: Database, requests: int, now: datetime) -> None:
    """`requests` requests over the last week, ten records each."""
    newest = now - timedelta(minutes=5)
    start_ns = ms_of(newest) * 1_000_000
    await db.command("CREATE OR REPLACE TABLE template_spans AS spans ENGINE = Memory")
    await db.command("CREATE OR REPLACE TABLE template_jobs AS jobs ENGINE = Memory")
    first = 0
    for kind, share in MIX:
        spans = template(kind, start_ns)
        result = diagnosed("default", first_look(JOB, JobSpans(spans, cut=False), now), None)
        assert result.answer.verdict.code == kind, (kind, result.answer.verdict)
        row = job_row(result, JobSpans(spans, cut=False), None, now)
        for table, rows in (("template_spans", spans), ("template_jobs", [row])):
            await db.command(f"TRUNCATE TABLE {table}")
            await db.insert(table, rows, token=uuid.uuid4().hex)
        await _copied(db, "spans", _columns(SpanRow, _OTHERS), first, share, requests)
        await _copied(db, "jobs", _columns(JobRow, _other_job(start_ns)), first, share, requests)
        first += share
        print(f"  {kind}: filled", file=sys.stderr)
    for table in ("template_spans", "template_jobs"):
        await db.command(f"DROP TABLE {table}")


def _other_job(start_ns: int) -> dict[str, str]:
    replaced = "replaceAll(replaceAll({}, '{}', job), '{}', worker)"
    return {
        "job_id": "job",
        "version": "version - intDiv(age_ns, 1000)",
        "endpoint_id": "endpoint",
        "worker_ids": "[worker]",
        "boot_ids": "[boot]",
        "first_ns": "first_ns - age_ns",
        "last_ns": "last_ns - age_ns",
        "digested_ms": "digested_ms - intDiv(age_ns, 1000000)",
        "updated_ms": "updated_ms - intDiv(age_ns, 1000000)",
        "host": "concat('host-', toString(n % 40))",
        "image": "concat('registry.example/llm:', toString(n % 3))",
        "fingerprint": "if(fingerprint = '', '', concat(substring(fingerprint, 1, 12), toString(n % 50)))",
        "search_text": replaced.format("search_text", JOB, WORKER),
        "document": f"replaceOne({replaced.format('document', JOB, WORKER)}, '{ENDPOINT}', endpoint)",
    }


def _columns(row: type, others: dict[str, str]) -> tuple[str, str]:
    names = [field.name for field in dataclasses.fields(row)]
    return ", ".join(names), ", ".join(f"{others[name]} AS new_{name}" if name in others else name for name in names)


async def _copied(db: Database, table: str, columns: tuple[str, str], first: int, share: int, requests: int) -> None:
    names, values = columns
    source = "start_ns" if table == "spans" else "first_ns AS start_ns"
    # A column's own alias would be seen by the expressions of the others: the template is read in a query of its own.
    sql = f"""
INSERT INTO {table} ({names})
{_WITH}
SELECT {values}
FROM (SELECT *, {source if table == "jobs" else "1 AS unused"} FROM template_{table}) AS template
CROSS JOIN (SELECT number AS n FROM numbers({{from:UInt64}}, {{slice:UInt64}})
            WHERE number % 100 >= {{first:UInt32}} AND number % 100 < {{first:UInt32}} + {{share:UInt32}}) AS numbers
SETTINGS max_partitions_per_insert_block = 1000, max_insert_threads = 1, max_block_size = 20000,
         min_insert_block_size_rows = 200000, min_insert_block_size_bytes = 268435456
"""  # noqa: S608  names of our own
    for begin in range(0, requests, SLICE):
        slice = {"from": begin, "slice": min(SLICE, requests - begin)}
        await db.command(sql, {"requests": requests, "first": first, "share": share, **slice}, seconds=INSERT_SECONDS)


# ------------------------------------------------------------------------------------------------------ measuring


async def goals(db: Database, now: datetime, rounds: int) -> list[Goal]:
    """What is asked for, `rounds` different addresses of each kind."""
    failed = await db.query(
        "SELECT job_id, endpoint_id, worker_ids[1] AS worker, fingerprint FROM job_times"
        " WHERE fingerprint != '' ORDER BY sipHash64(job_id) LIMIT {most:UInt32}",
        {"most": rounds},
    )
    day = {"since": "24h"}
    endpoints = [f"endpoint-{number % ENDPOINTS}" for number in range(rounds)]
    states = ("failed", "lost", "completed", "stopped")
    listings = [
        urls.listing("/jobs", {"endpoint": endpoint, "state": states[number % 4], **(day if number % 2 else {})})
        for number, endpoint in enumerate(endpoints)
    ]
    words = ("CUDA out of memory", "host-7 said nothing of the kind", "Engine 000: Avg generation", "SIGKILL")
    searches = [urls.listing("/jobs", {"q": words[number % 4], **day}) for number in range(rounds)]
    return [
        Goal("failure page", 100, [urls.page("jobs", row["job_id"]) for row in failed]),
        Goal("list with filters", 200, listings),
        Goal("text search over a day", 1000, searches),
        Goal("overview", 300, ["/"] * rounds),
        Goal("groups", 300, ["/groups"] * rounds),
        Goal("one group", 300, [urls.page("groups", row["fingerprint"]) for row in failed]),
        Goal("one endpoint", 500, [urls.page("endpoints", name) for name in endpoints]),
        Goal("one worker", 500, [urls.page("workers", row["worker"]) for row in failed]),
    ]


async def measure(settings: Settings, asked: Sequence[Goal]) -> bool:
    """Print a row for each goal; whether all were met. The pages alone are served: no digest runs beside them."""
    app = asgi.dashboard_only(settings)
    met = True
    print(f"{'page':24} {'goal ms':>8} {'p50 ms':>8} {'p95 ms':>8} {'most KB':>8}")
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as client:
            for goal in asked:
                took, sizes = [], []
                await client.get(goal.paths[0])  # connections, templates and caches of the engine are warm
                for path in goal.paths:
                    began = time.perf_counter()
                    response = await client.get(path, headers={"accept": "text/html"})
                    took.append((time.perf_counter() - began) * 1000)
                    sizes.append(len(response.content))
                    assert response.status_code == 200, (path, response.status_code, response.text[:500])
                p95 = statistics.quantiles(took, n=20)[-1]
                met = met and p95 <= goal.milliseconds
                late = " " if p95 <= goal.milliseconds else "!"
                print(
                    f"{late}{goal.name:23} {goal.milliseconds:8.0f} {statistics.median(took):8.0f} {p95:8.0f}"
                    f" {max(sizes) / 1000:8.0f}",
                    flush=True,
                )
    return met


async def run(folder: Path, requests: int, rounds: int) -> bool:
    """Fill the store where it is empty, and measure."""
    server = ClickHouseServer(folder, users={"bench": {"password": "bench"}}, log_level="warning")
    with server:
        url = f"clickhouse://bench:bench@127.0.0.1:{server.http_port}/pages"
        settings = Settings(database_url=SecretStr(url), insert_seconds=INSERT_SECONDS, query_seconds=60)
        db = await Database.open(settings)
        try:
            await migrate.apply(db, retention_days=60)
            now = datetime.now(timezone.utc)
            stored = (await db.query("SELECT count() AS n FROM jobs"))[0]["n"]
            if stored != requests:
                assert not stored, f"{folder} holds {stored} requests"
                began = time.monotonic()
                await fill(db, requests, now)
                print(f"filled in {time.monotonic() - began:.0f} s", file=sys.stderr)
            numbers = await db.query(
                "SELECT (SELECT count() FROM jobs) AS jobs, (SELECT count() FROM spans) AS spans, version() AS version"
            )
            load = os.getloadavg()[0]
            print("{jobs:,} requests, {spans:,} spans, ClickHouse {version}".format(**numbers[0]), end=", ")
            print(f"{os.cpu_count()} cores, load {load:.1f}")
            return await measure(settings, await goals(db, now, rounds))
        finally:
            await db.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, help="10,000 is enough for a quick look")
    parser.add_argument("--rounds", type=int, default=60, help="addresses asked for, of each kind")
    parser.add_argument("--keep", type=Path, help="folder in which the store stays")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary) / "store"
        return 0 if asyncio.run(run(folder, options.requests, options.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
