"""Same failure, grouped: how often, since when, where, and what stands out about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from collector.clickhouse import Database
from collector.diagnosis.standing_out import Returned, StandsOut, Tally, new_in, returned, stands_out
from collector.queries import cursor as cursors
from collector.queries.pages import LIMIT_DEFAULT, Page, checked_limit, page_of
from collector.queries.stored import ns_of, time_of_ns
from collector.queries.tallies import stretches, tallies

TREND_BUCKETS: Final = 24
TREND_WINDOW: Final = timedelta(days=1)
ENDPOINTS_SHOWN: Final = 20
COMPARED: Final = timedelta(days=7)
COMPARED_AFTER: Final = timedelta(days=1)
"""Requests from so long before the last sighting until so long after it are compared."""
LOOKED_BACK: Final = timedelta(days=30)
"""Before the last sighting: over this time a failure can have gone and come back."""
MARGIN: Final = timedelta(milliseconds=1)
"""Times are cut to their microseconds: the last sighting itself must not be left out."""


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
class Change:
    """The image, release or SDK version that brought a failure: requests with others went well before `since`."""

    dimension: str  # image | release | sdk
    value: str
    count: int
    total: int
    total_before: int
    since: datetime  # its first request


@dataclass(frozen=True, slots=True)
class Regression:
    """A failure that had gone for a day or more, over requests that would have shown it, and came back."""

    gone_since: datetime
    back_at: datetime
    requests_between: int


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """One failure, and what is to know of it.

    `stands_out` is empty where nothing does, or where there are too few requests to tell; `new_in` and `regressed` are
    None where that cannot be said.
    """

    summary: GroupSummary
    stands_out: tuple[StandsOut, ...]
    new_in: Change | None = None
    regressed: Regression | None = None


_GROUPS = """
SELECT fingerprint, argMax(code, first_ns) AS code, argMax(cause, first_ns) AS cause, argMax(title, first_ns) AS title,
       argMax(sentence, first_ns) AS sentence, argMax(root_line, first_ns) AS root_line, count() AS jobs,
       min(first_ns) AS first_seen_ns, max(first_ns) AS last_seen_ns, argMax(job_id, first_ns) AS newest_job_id,
       arraySort(groupUniqArrayIf({endpoints:UInt32})(endpoint_id, endpoint_id != '')) AS endpoints,
       sumForEach(arrayMap(
           bucket -> first_ns >= {trend_ns:Int64} + bucket * {bucket_ns:Int64}
                 AND first_ns < {trend_ns:Int64} + (bucket + 1) * {bucket_ns:Int64},
           range({buckets:UInt32}))) AS trend
FROM job_times FINAL
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
    return await _detail(db, tenant, _summary(rows[0]))


async def _detail(db: Database, tenant: str, summary: GroupSummary) -> GroupDetail:
    """Compared with the other requests of the endpoints where it was seen."""
    until, endpoints, fingerprint = summary.last_seen, summary.endpoints, summary.fingerprint
    if not endpoints:
        return GroupDetail(summary, ())
    compared, hours = await asyncio.gather(
        tallies(db, tenant, endpoints, [fingerprint], until - COMPARED, until + COMPARED_AFTER),
        stretches(db, tenant, endpoints, fingerprint, until - LOOKED_BACK, until + MARGIN),
    )
    return GroupDetail(
        summary,
        stands_out(compared[fingerprint]),
        _change(compared[fingerprint]),
        _regression(returned(hours)),
    )


def _change(compared: Sequence[Tally]) -> Change | None:
    for dimension in ("image", "release", "sdk"):
        if found := new_in(compared, dimension):
            since = time_of_ns(found.since_ns)
            return Change(found.dimension, found.value, found.count, found.total, found.total_before, since)
    return None


def _regression(found: Returned | None) -> Regression | None:
    if found is None:
        return None
    return Regression(time_of_ns(found.gone_ns), time_of_ns(found.back_ns), found.requests_between)


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
