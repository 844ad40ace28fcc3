"""What is usual for an endpoint: how long each phase takes when it goes well, and the newest request that went well."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from collector.clickhouse import Database
from collector.diagnosis.answer import PhaseName
from collector.queries.stored import ns_of, time_of_ns
from collector.rows import Attributes
from sdk_exporter.contract import SpanName

LOOKED_BACK: Final = timedelta(days=7)
"""What was usual longer ago is another release's."""
RECORDS_READ: Final = 5_000
"""Newest records of an endpoint that its usual times are counted from: a thousand requests or so."""
USUAL_FROM: Final = 5
"""Fewer than this are no habit."""
RUNS_READ: Final = 50
"""Newest runs without an error among which the last good request is looked for."""

_PHASES: Final[dict[str, PhaseName]] = {
    SpanName.BOOT: "boot",
    SpanName.PRESTART: "prestart",
    SpanName.JOB_GATED: "gated",
    SpanName.JOB_RUN: "run",
    SpanName.JOB_DELIVER: "deliver",
}


@dataclass(frozen=True, slots=True)
class Usual:
    """How long a phase of an endpoint's requests takes: half of them at most `seconds_p50`, 95 in 100 `seconds_p95`."""

    phase: PhaseName
    seconds_p50: float
    seconds_p95: float
    count: int


@dataclass(frozen=True, slots=True)
class GoodRequest:
    """A request that completed, and what its worker told of itself."""

    job_id: str
    at: datetime
    resource: Attributes


# Copies of a record are not merged here: one replayed twice moves no quantile. The key of the table begins with tenant,
# endpoint and start, so the newest records of an endpoint are read from the end, and no further than the limit.
_NEWEST: Final = """
SELECT job_id, span_id, name, start_ns, end_ns
FROM spans
WHERE tenant = {tenant:String} AND endpoint_id = {endpoint:String} AND status != 'error'
  AND name IN {names:Array(String)} AND start_ns >= {since_ns:Int64} AND start_ns < {until_ns:Int64}
ORDER BY tenant DESC, endpoint_id DESC, start_ns DESC
LIMIT {most:UInt32}
"""

_USUAL: Final = f"""
SELECT told.1 AS name, quantilesExact(0.5, 0.95)(told.2) AS seconds, count() AS seen
FROM (
    SELECT arrayJoin(arrayConcat(
               groupArray((name, (end_ns - start_ns) / 1e9)),
               if(sent_ns > 0 AND claimed_ns > 0, [('queued', (claimed_ns - sent_ns) / 1e9)], []),
               if(claimed_ns > 0 AND run_ns > 0, [('claimed', (run_ns - claimed_ns) / 1e9)], [])
           )) AS told,
           minIf(start_ns, name = {{sent:String}}) AS sent_ns, minIf(start_ns, name = {{claimed:String}}) AS claimed_ns,
           minIf(start_ns, name = {{run:String}}) AS run_ns
    FROM ({_NEWEST})
    GROUP BY if(job_id = '', span_id, job_id)
    HAVING countIf(name = {{stop:String}}) = 0
)
WHERE told.2 >= 0
GROUP BY name
"""  # noqa: S608  what is put in is a text of this module


async def usual_phases(db: Database, tenant: str, endpoint: str, until: datetime) -> dict[PhaseName, Usual]:
    """Of an endpoint's newest records before `until`, without errors and cancelled requests. A phase that was seldom
    seen is absent."""
    names = [*_PHASES, SpanName.JOB_CLAIMED, SpanName.CALLER_REQUEST, SpanName.JOB_STOP]
    parameters = {
        **_looked_back(tenant, endpoint, until),
        "names": names,
        "most": RECORDS_READ,
        "claimed": SpanName.JOB_CLAIMED,
        "sent": SpanName.CALLER_REQUEST,
        "run": SpanName.JOB_RUN,
        "stop": SpanName.JOB_STOP,
    }
    rows = await db.query(_USUAL, parameters)
    found = (_usual(row) for row in rows)
    return {one.phase: one for one in found if one is not None and one.count >= USUAL_FROM}


def _usual(row: dict[str, Any]) -> Usual | None:
    waits: dict[str, PhaseName] = {"queued": "queued", "claimed": "claimed"}
    phase = _PHASES.get(str(row["name"])) or waits.get(str(row["name"]))
    if phase is None:
        return None
    p50, p95 = (float(seconds) for seconds in row["seconds"])
    return Usual(phase, p50, p95, int(row["seen"]))


_GOOD_RUNS: Final = """
SELECT job_id, start_ns, resource
FROM spans
WHERE tenant = {tenant:String} AND endpoint_id = {endpoint:String} AND status != 'error'
  AND name = {run:String} AND start_ns >= {since_ns:Int64} AND start_ns < {until_ns:Int64}
  AND job_id != '' AND job_id != {but:String}
ORDER BY tenant DESC, endpoint_id DESC, start_ns DESC
LIMIT {most:UInt32}
"""

_COMPLETED: Final = """
SELECT job_id
FROM jobs
WHERE tenant = {tenant:String} AND job_id IN {job_ids:Array(String)}
GROUP BY job_id
HAVING argMax(state, version) = 'completed'
"""


async def last_good(db: Database, tenant: str, endpoint: str, until: datetime, *, but: str) -> GoodRequest | None:
    """The newest request of an endpoint that completed and began before `until`, other than `but`."""
    parameters = {**_looked_back(tenant, endpoint, until), "run": SpanName.JOB_RUN, "but": but, "most": RUNS_READ}
    runs = await db.query(_GOOD_RUNS, parameters)
    completed = await _completed(db, tenant, {str(run["job_id"]) for run in runs})
    newest = next((run for run in runs if run["job_id"] in completed), None)
    if newest is None:
        return None
    return GoodRequest(str(newest["job_id"]), time_of_ns(int(newest["start_ns"])), json.loads(newest["resource"]))


async def _completed(db: Database, tenant: str, job_ids: Collection[str]) -> set[str]:
    if not job_ids:
        return set()
    rows = await db.query(_COMPLETED, {"tenant": tenant, "job_ids": sorted(job_ids)})
    return {str(row["job_id"]) for row in rows}


_RESOURCE: Final = """
SELECT resource
FROM spans
WHERE tenant = {tenant:String} AND worker_id = {worker:String} AND boot_id = {boot:String}
ORDER BY arrived_ms DESC
LIMIT 1
"""


async def resource_of(db: Database, tenant: str, worker: str, boot: str) -> Attributes:
    """What this boot of a worker told of itself last; empty where nothing of it is stored."""
    rows = await db.query(_RESOURCE, {"tenant": tenant, "worker": worker, "boot": boot})
    found: Attributes = json.loads(rows[0]["resource"]) if rows else {}
    return found


def _looked_back(tenant: str, endpoint: str, until: datetime) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "endpoint": endpoint,
        "since_ns": ns_of(until - LOOKED_BACK),
        "until_ns": ns_of(until),
    }
