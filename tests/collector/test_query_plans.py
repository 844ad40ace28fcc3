"""How the main questions find their rows: by which keys and indexes, and how little of the store they touch.

Each question is asked as pages and digest ask it, over a store of some size, and its plan (`EXPLAIN indexes = 1`) is
compared: a question that begins to read everything is then a difference here and not a slow page.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from collector import migrate, queries
from collector.clickhouse import Database
from collector.diagnosis import answer_of
from collector.diagnosis.evidence import evidence_of
from collector.errors import StoreRefused, StoreUnavailable
from collector.queries import JobFilter
from collector.queries.beside import Asked, beside, siblings
from collector.queries.job import spans_of_job
from collector.queries.stored import document_of, ns_of
from collector.settings import Settings
from sdk_exporter.contract import SpanName

NOW = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
SPANS, JOBS = 150_000, 60_000
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Watched(Database):
    """The store, with a note of each question."""

    asked: list[tuple[str, dict[str, Any]]]

    async def query(self, sql: str, parameters: Mapping[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
        self.asked.append((sql, dict(parameters or {})))
        return await super().query(sql, parameters, **more)


@dataclass(frozen=True, slots=True)
class Read:
    """One table read by a question: what narrowed it, and which share of its granules was left."""

    table: str
    by: frozenset[str] = field(default_factory=frozenset)
    share: float = 1.0


@pytest.fixture
def database_url(embedded_path: Path) -> str:
    """One engine is enough: it plans as the server does, from the same sources."""
    return f"chdb://{embedded_path}?database=plans"


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Patient ones: the machine may be busy."""
    return Settings(database_url=SecretStr(database_url), query_seconds=120)


@pytest.fixture
async def db(settings: Settings) -> AsyncIterator[Watched]:
    """A store of a day: 20 endpoints, 400 workers, requests of one second each."""
    db = Watched(settings)
    db.asked = []
    await db.connect()
    await migrate.apply(db, retention_days=14)
    if not await db.query("SELECT 1 FROM spans LIMIT 1"):
        await _fill(db)
    db.asked.clear()
    yield db
    await db.close()


_SPANS = """
INSERT INTO spans (tenant, arrived_ms, start_ns, end_ns, trace_id, span_id, job_id, endpoint_id, worker_id, boot_id,
                   name, kind, status, attributes, resource, events, links)
SELECT 'default', intDiv(at_ns, 1000000), at_ns, at_ns, hex(MD5(toString(number))), hex(MD5(toString(number))),
       if(number % 3 = 0, concat('job-', toString(intDiv(number, 3))), ''), concat('ep-', toString(number % 20)),
       concat('w-', toString(number % 400)), hex(MD5(toString(number % 400))),
       {names:Array(String)}[number % 3 + 1], 1, 'unset', '{}', '{}', '[]', '[]'
FROM (SELECT number, {now_ns:Int64} - toInt64(number) * {step_ns:Int64} AS at_ns FROM numbers({rows:UInt32}))
"""
_JOBS = """
INSERT INTO jobs (tenant, job_id, version, endpoint_id, worker_ids, state, is_final, code, cause, fingerprint, first_ns,
                  last_ns, digested_ms, updated_ms, host, document)
SELECT 'default', hex(MD5(toString(number))), number, concat('ep-', toString(number % 20)),
       [concat('w-', toString(number % 400))], if(number % 30 = 0, 'failed', 'completed'), true,
       if(number % 30 = 0, 'handler_failed', 'completed'), 'unknown',
       if(number % 30 = 0, concat('2:', toString(number % 300)), ''), at_ns, at_ns, intDiv(at_ns, 1000000),
       intDiv(at_ns, 1000000), concat('host-', toString(number % 50)), {document:String}
FROM (SELECT number, {now_ns:Int64} - toInt64(number) * {step_ns:Int64} AS at_ns FROM numbers({rows:UInt32}))
"""


async def _fill(db: Database) -> None:
    document = document_of(answer_of(evidence_of("any", [], NOW), tenant="default"))
    names = [SpanName.JOB_RUN, SpanName.HEARTBEAT, SpanName.STOP_CHANNEL]
    for sql, rows, more in ((_SPANS, SPANS, {"names": names}), (_JOBS, JOBS, {"document": document})):
        step_ns = DAY // timedelta(microseconds=1) * 1000 // rows
        await db.command(sql, {"now_ns": ns_of(NOW), "step_ns": step_ns, "rows": rows, **more}, seconds=300)


def reads(plan: str) -> list[Read]:
    """The tables of a plan that hold what a question is about, in its order."""
    found = []
    for part in re.split(r"ReadFromMergeTree \(", plan)[1:]:
        table = part.split(")", 1)[0].rpartition(".")[2]
        keys = re.findall(r"^\s*[^\w\n]*Keys:\s*\n((?:^[^\n:]*\n)+?)(?=^[^\n]*:)", part, re.M)
        by = {key.strip(" │└─├") for block in keys for key in block.splitlines()}
        by |= set(re.findall(r"Name: (\w+)", part))
        granules = [(int(left), int(of)) for left, of in re.findall(r"Granules: (\d+)/(\d+)", part)]
        share = granules[-1][0] / granules[0][1] if granules and granules[0][1] else 1.0
        found.append(Read(table, frozenset(by), share))
    return found


Question = Callable[[Database], Awaitable[object]]
ASKED = Asked("job-5", "ep-3", "2:3", NOW - 2 * HOUR, NOW - 2 * HOUR, starts_until_ns=ns_of(NOW - HOUR))

OWN = "by_job tenant"
OF_BOOTS = "by_boot by_worker tenant"
OF_WORKER = "arrived_ms by_worker tenant"
IN_TIME = "first_ns tenant"

QUESTIONS: dict[str, tuple[Question, list[tuple[str, str, float]]]] = {
    "one request by its id, with its worker's records": (
        lambda db: spans_of_job(db, "default", "job-500"),
        [
            ("spans", OWN, 0.1),
            ("spans", OF_BOOTS, 0.2),
            ("spans", OF_BOOTS, 0.2),
            ("spans", "endpoint_id start_ns tenant", 0.2),
        ],
    ),
    "newest failures of an endpoint by verdict": (
        lambda db: queries.list_jobs(
            db, "default", JobFilter(endpoint="ep-0", verdict="handler_failed", since=NOW - HOUR)
        ),
        [("job_times", IN_TIME, 0.2), ("jobs", "job_id tenant", 1.0), ("job_times", "tenant", 1.0)],
    ),
    "the counts of the last hour": (
        lambda db: queries.overview(db, "default", NOW - HOUR),
        [("job_times", IN_TIME, 0.2)],
    ),
    "a group, and what it is compared with": (
        lambda db: queries.group(db, "default", "2:0", NOW),
        [("job_times", "tenant", 1.0), ("job_times", IN_TIME, 1.0), ("job_times", IN_TIME, 1.0)],
    ),
    "requests on the same worker": (
        lambda db: siblings(db, "default", [("w-3", "ECCBC87E4B5CE2FE28308FD9F2A7BAF3")]),
        [("spans", OF_BOOTS, 0.2)],
    ),
    "what happened to others": (
        lambda db: beside(db, "default", [ASKED], NOW, {}),
        [
            ("job_times", IN_TIME, 1.0),
            ("job_times", IN_TIME, 1.0),
            ("spans", "endpoint_id start_ns tenant", 0.2),
        ],
    ),
    "a worker's life": (
        lambda db: queries.workers(db, "default", NOW - HOUR, worker="w-3"),
        [("spans", OF_WORKER, 0.2)],
    ),
    "a worker's stop channel": (
        lambda db: queries.stop_channels(db, "default", NOW - HOUR, worker="w-3"),
        [("spans", OF_WORKER, 0.2)],
    ),
}
"""For each the tables that it reads (but histories, which are asked for by request ids), by which keys and indexes, and
the largest share of their granules. A share of 1 is of a store that is no older than the days that are asked for."""


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_is_answered_from_keys_and_indexes(db: Watched, name: str) -> None:
    ask, expected = QUESTIONS[name]
    await ask(db)
    asked, db.asked = db.asked, []
    plans = [await db.query(f"EXPLAIN indexes = 1 {sql}", parameters) for sql, parameters in asked]
    found = [read for plan in plans for read in reads("\n".join(str(row["explain"]) for row in plan))]
    found = sorted((read for read in found if read.table != "verdict_history"), key=lambda read: read.table)
    assert sorted((read.table, " ".join(sorted(read.by))) for read in found) == sorted(one[:2] for one in expected)
    most = {(table, by): share for table, by, share in expected}
    assert all(read.share <= most[read.table, " ".join(sorted(read.by))] for read in found), found


async def test_every_question_has_a_bound_of_time_and_rows(db: Watched) -> None:
    """What the engine is told: no question runs for ever, and one that finds too much is an error and no cut."""
    with pytest.raises(StoreUnavailable):
        await db.query("SELECT sleep(3)", seconds=1)
    with pytest.raises(StoreRefused):
        await db.query("SELECT number FROM numbers(101)", max_rows=100)
