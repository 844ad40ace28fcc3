"""Same failure, grouped: how often, since when, where, and what stands out about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from collector.clickhouse import Database
from collector.queries import cursor as cursors
from collector.queries.pages import LIMIT_DEFAULT, Page, checked_limit, page_of
from collector.queries.stored import ns_of, time_of_ns

TREND_BUCKETS: Final = 24
TREND_WINDOW: Final = timedelta(days=1)
ENDPOINTS_SHOWN: Final = 20
STANDS_OUT_JOBS: Final = 3
"""Fewer requests than this have everything in common by chance."""
STANDS_OUT_SHARE: Final = 0.5
STANDS_OUT_RATIO: Final = 2.0
VALUES_READ: Final = 500


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One failure. `trend` counts requests in 24 equal stretches of the last day, oldest first."""

    fingerprint: str
    code: str
    cause: str
    title: str
    sentence: str  # of the newest request
    root_line: str | None
    count: int
    first_seen: datetime
    last_seen: datetime
    newest_job_id: str
    endpoints: tuple[str, ...]  # at most 20
    trend: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StandsOut:
    """A value that requests of a group share more often than the endpoint's other requests do."""

    dimension: str  # host | gpu | driver | image | release
    value: str
    count: int
    share: float
    share_elsewhere: float


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One failure, and what stands out about it (empty where nothing does, or where there are too few to tell)."""

    summary: GroupSummary
    stands_out: tuple[StandsOut, ...]


_GROUPS = """
SELECT fingerprint, argMax(code, first_ns) AS code, argMax(cause, first_ns) AS cause, argMax(title, first_ns) AS title,
       argMax(sentence, first_ns) AS sentence, argMax(root_line, first_ns) AS root_line, count() AS jobs,
       min(first_ns) AS first_seen_ns, max(first_ns) AS last_seen_ns, argMax(job_id, first_ns) AS newest_job_id,
       arraySort(groupUniqArrayIf({endpoints:UInt32})(endpoint_id, endpoint_id != '')) AS endpoints,
       sumForEach(arrayMap(
           bucket -> first_ns >= {trend_ns:Int64} + bucket * {bucket_ns:Int64}
                 AND first_ns < {trend_ns:Int64} + (bucket + 1) * {bucket_ns:Int64},
           range({buckets:UInt32}))) AS trend
FROM jobs FINAL
WHERE tenant = {tenant:String} AND fingerprint != ''
  AND ({fingerprint:String} = '' OR fingerprint = {fingerprint:String})
  AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
GROUP BY fingerprint
HAVING (last_seen_ns, fingerprint) < ({before_ns:Int64}, {before_id:String})
ORDER BY last_seen_ns DESC, fingerprint DESC
LIMIT {limit:UInt32}
"""


async def groups(
    db: Database,
    tenant: str,
    now: datetime,
    *,
    endpoint: str | None = None,
    cursor: str | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Page[GroupSummary]:
    """Failures, the one seen last first. Raises BadInput naming `limit` or `cursor`."""
    rows = await _rows(db, tenant, now, "", endpoint or "", cursors.read(cursor), checked_limit(limit) + 1)
    return page_of(rows, limit, _summary, lambda row: (int(row["last_seen_ns"]), str(row["fingerprint"])))


async def group(db: Database, tenant: str, fingerprint: str, now: datetime) -> GroupDetail | None:
    """One failure; None where no stored request has this fingerprint."""
    rows = await _rows(db, tenant, now, fingerprint, "", cursors.START, 1) if fingerprint else []
    if not rows:
        return None
    return GroupDetail(_summary(rows[0]), await _stands_out(db, tenant, fingerprint))


async def _rows(
    db: Database, tenant: str, now: datetime, fingerprint: str, endpoint: str, before: cursors.Place, limit: int
) -> list[dict[str, Any]]:
    parameters = {
        "tenant": tenant,
        "fingerprint": fingerprint,
        "endpoint": endpoint,
        "endpoints": ENDPOINTS_SHOWN,
        "buckets": TREND_BUCKETS,
        "trend_ns": ns_of(now - TREND_WINDOW),
        "bucket_ns": TREND_WINDOW // timedelta(microseconds=1) * 1000 // TREND_BUCKETS,
        "before_ns": before.first_ns,
        "before_id": before.job_id,
        "limit": limit,
    }
    return await db.query(_GROUPS, parameters, max_rows=limit)


def _summary(row: dict[str, Any]) -> GroupSummary:
    return GroupSummary(
        fingerprint=str(row["fingerprint"]),
        code=str(row["code"]),
        cause=str(row["cause"]),
        title=str(row["title"]),
        sentence=str(row["sentence"]),
        root_line=str(row["root_line"]) or None,
        count=int(row["jobs"]),
        first_seen=time_of_ns(int(row["first_seen_ns"])),
        last_seen=time_of_ns(int(row["last_seen_ns"])),
        newest_job_id=str(row["newest_job_id"]),
        endpoints=tuple(str(endpoint) for endpoint in row["endpoints"]),
        trend=tuple(int(count) for count in row["trend"]),
    )


_STANDS_OUT = """
SELECT dimension, value, inside, outside, sum(inside) OVER (PARTITION BY dimension) AS all_inside,
       sum(outside) OVER (PARTITION BY dimension) AS all_outside
FROM (
    SELECT pair.1 AS dimension, pair.2 AS value, countIf(fingerprint = {fingerprint:String}) AS inside,
           countIf(fingerprint != {fingerprint:String}) AS outside
    FROM jobs FINAL
    ARRAY JOIN [('host', host), ('gpu', gpu), ('driver', driver), ('image', image), ('release', release)] AS pair
    WHERE tenant = {tenant:String} AND pair.2 != ''
    GROUP BY dimension, value
)
ORDER BY inside DESC, dimension, value
LIMIT {most:UInt32}
"""


async def _stands_out(db: Database, tenant: str, fingerprint: str) -> tuple[StandsOut, ...]:
    parameters = {"tenant": tenant, "fingerprint": fingerprint, "most": VALUES_READ}
    rows = await db.query(_STANDS_OUT, parameters, max_rows=VALUES_READ)
    compared = (
        StandsOut(
            dimension=str(row["dimension"]),
            value=str(row["value"]),
            count=int(row["inside"]),
            share=int(row["inside"]) / max(int(row["all_inside"]), 1),
            share_elsewhere=int(row["outside"]) / max(int(row["all_outside"]), 1),
        )
        for row in rows
        if int(row["all_outside"])  # with nothing to compare with, nothing stands out
    )
    return tuple(
        value
        for value in compared
        if value.count >= STANDS_OUT_JOBS
        and value.share >= STANDS_OUT_SHARE
        and value.share >= STANDS_OUT_RATIO * value.share_elsewhere
    )
