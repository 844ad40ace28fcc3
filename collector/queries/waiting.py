"""Which requests wait for a diagnosis: open ones, those that new records touch, those that a stop left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collector.clickhouse import Database
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

CATCH_UP_SECONDS: Final = 120.0
"""Catching up reads the whole retention where nothing was diagnosed before."""

# Without FINAL, which would merge the whole table every few seconds: rows that were open once, then the newest of each.
_OPEN = """
SELECT tenant, job_id
FROM jobs
WHERE (tenant, job_id) IN (
    SELECT tenant, job_id
    FROM jobs
    WHERE NOT is_final AND digested_ms >= {since_ms:Int64} AND (tenant, job_id) > ({tenant:String}, {job_id:String})
)
GROUP BY tenant, job_id
HAVING NOT argMax(is_final, version)
ORDER BY tenant, job_id
LIMIT {limit:UInt32}
"""


async def open_jobs(db: Database, since_ms: int, *, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
    """Requests of all tenants that are not final, in order of (tenant, job id), those heard of since then."""
    parameters = {"since_ms": since_ms, "tenant": after[0], "job_id": after[1], "limit": limit}
    rows = await db.query(_OPEN, parameters, max_rows=limit)
    return [(str(row["tenant"]), str(row["job_id"])) for row in rows]


_DIAGNOSED = """
SELECT tenant, first_ns, job_id
FROM job_times FINAL
WHERE first_ns >= {since_ns:Int64}
  AND (tenant, first_ns, job_id) > ({tenant:String}, {first_ns:Int64}, {job_id:String})
ORDER BY tenant, first_ns, job_id
LIMIT {limit:UInt32}
"""

Place = tuple[str, int, str]  # tenant, first record's Unix nanoseconds, job id


async def diagnosed_jobs(db: Database, since_ns: int, *, after: Place, limit: int) -> list[Place]:
    """Requests of all tenants that were diagnosed and began since then, in the order of time: those of one hour share
    their workers and most of what is read about them."""
    tenant, first_ns, job_id = after
    parameters = {
        "since_ns": since_ns,
        "tenant": tenant,
        "first_ns": first_ns,
        "job_id": job_id,
        "limit": limit,
    }
    rows = await db.query(_DIAGNOSED, parameters, max_rows=limit)
    return [(str(row["tenant"]), int(row["first_ns"]), str(row["job_id"])) for row in rows]


_OF_BOOTS = """
SELECT job_id
FROM jobs
WHERE tenant = {tenant:String} AND job_id IN (
    SELECT job_id
    FROM jobs
    WHERE tenant = {tenant:String} AND (NOT is_final OR inferred) AND digested_ms >= {since_ms:Int64}
      AND hasAny(boot_ids, {boots:Array(String)})
)
GROUP BY job_id
HAVING argMax(NOT is_final OR inferred, version)
LIMIT {limit:UInt32}
"""


async def jobs_of_boots(db: Database, tenant: str, boots: Sequence[str], since_ms: int, *, limit: int) -> list[str]:
    """Requests of these boots that a record about the worker can still change: open ones, and inferred verdicts."""
    parameters = {"tenant": tenant, "boots": list(boots), "since_ms": since_ms, "limit": limit}
    return [str(row["job_id"]) for row in await db.query(_OF_BOOTS, parameters, max_rows=limit)]


_IN_HAND = """
SELECT DISTINCT arrayJoin(arrayConcat(
           JSONExtract(attributes, {death_key:String}, 'Array(String)'),
           JSONExtract(attributes, {shutdown_key:String}, 'Array(String)'))) AS in_hand
FROM spans
WHERE tenant = {tenant:String} AND job_id = '' AND name IN {names:Array(String)}
  AND worker_id IN {workers:Array(String)} AND boot_id IN {boots:Array(String)}
LIMIT {limit:UInt32}
"""


async def jobs_in_hand(
    db: Database, tenant: str, workers: Sequence[str], boots: Sequence[str], *, limit: int
) -> list[str]:
    """Requests that these boots said they held when they ended: some may have no record of their own."""
    parameters = {
        "tenant": tenant,
        "workers": list(workers),
        "boots": list(boots),
        "names": [SpanName.DEATH, SpanName.SHUTDOWN, SpanName.SHUTDOWN + STARTED_SUFFIX],
        "death_key": Key.DEATH_JOBS_IN_HAND,
        "shutdown_key": Key.SHUTDOWN_JOBS_IN_HAND,
        "limit": limit,
    }
    return [str(row["in_hand"]) for row in await db.query(_IN_HAND, parameters, max_rows=limit)]


_UNDIGESTED = """
SELECT arrived.tenant AS tenant, arrived.job_id AS job_id, arrived.newest_ms > digested.digested_ms AS missed
FROM (
    SELECT tenant, job_id, max(arrived_ms) AS newest_ms
    FROM spans
    WHERE arrived_ms >= {since_ms:Int64} AND job_id != ''
    GROUP BY tenant, job_id
) AS arrived
LEFT JOIN (
    SELECT tenant, job_id, digested_ms FROM jobs FINAL WHERE digested_ms >= {since_ms:Int64}
) AS digested ON arrived.tenant = digested.tenant AND arrived.job_id = digested.job_id
WHERE arrived.newest_ms > digested.digested_ms - {overlap_ms:Int64}
ORDER BY missed DESC, arrived.newest_ms
LIMIT {limit:UInt32}
"""


async def undigested_jobs(db: Database, since_ms: int, *, overlap_ms: int, limit: int) -> list[tuple[str, str, bool]]:
    """(tenant, job id, True) of requests with a record that arrived since then and after their last diagnosis, the
    oldest first; then (…, False) of those where one may have.

    `overlap_ms`: spans are stored a little after they arrived, so one can be older than a diagnosis that missed it.
    """
    parameters = {"since_ms": since_ms, "overlap_ms": overlap_ms, "limit": limit}
    rows = await db.query(_UNDIGESTED, parameters, seconds=CATCH_UP_SECONDS, max_rows=limit)
    return [(str(row["tenant"]), str(row["job_id"]), bool(row["missed"])) for row in rows]


_LAST_DIGESTED = "SELECT max(digested_ms) AS newest_ms FROM jobs"


async def last_digested_ms(db: Database) -> int:
    """Arrival of the newest record that any diagnosis has seen; 0 where there was none."""
    rows = await db.query(_LAST_DIGESTED, max_rows=1)
    return int(rows[0]["newest_ms"]) if rows else 0


_BOOTS_HEARD = """
SELECT DISTINCT tenant, worker_id, boot_id
FROM spans
WHERE arrived_ms >= {since_ms:Int64} AND job_id = '' AND worker_id != ''
LIMIT {limit:UInt32}
"""


async def boots_heard_of(db: Database, since_ms: int, *, limit: int) -> list[tuple[str, str, str]]:
    """(tenant, worker id, boot id) of records about workers that arrived since then."""
    parameters = {"since_ms": since_ms, "limit": limit}
    rows = await db.query(_BOOTS_HEARD, parameters, seconds=CATCH_UP_SECONDS, max_rows=limit)
    return [(str(row["tenant"]), str(row["worker_id"]), str(row["boot_id"])) for row in rows]
