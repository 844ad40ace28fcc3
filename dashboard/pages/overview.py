"""The front page: one search box, what failed last, and how requests ended in the last day."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from fastapi import Request, Response

from collector import queries
from collector.app import db_of
from collector.auth import ReadTenant
from collector.clickhouse import Database
from collector.queries import JobFilter
from dashboard import render
from dashboard.contexts import JobRow, OverviewPage
from dashboard.pages._rows import day_of_failures, job_rows, tallies
from dashboard.site import site_of

DAY: Final = timedelta(days=1)
BAD_STATES: Final = ("failed", "stalled", "lost")
NEWEST: Final = 8
ENDPOINTS: Final = 20


async def overview_page(request: Request, tenant: ReadTenant) -> Response:
    """`/`."""
    return render.html("overview.html", await _overview(request, tenant))


async def overview_json(request: Request, tenant: ReadTenant) -> Response:
    """`/overview.json`."""
    return render.json(await _overview(request, tenant))


async def _overview(request: Request, tenant: str) -> OverviewPage:
    db, site = db_of(request), site_of(request, "Overview", "Overview", twins=(("JSON", "/overview.json"),))
    since = site.now - DAY
    counts, newest, endpoints, anything, (failures, heat) = await asyncio.gather(
        queries.overview(db, tenant, since),
        _newest_bad(db, tenant),
        queries.endpoints(db, tenant, since, limit=ENDPOINTS),
        queries.list_jobs(db, tenant, JobFilter(), limit=1),
        day_of_failures(db, tenant, since, site.now),
    )
    return OverviewPage(
        site=site,
        counts=counts,
        newest=newest,
        verdicts=tallies(counts.by_verdict, "verdict", {"since": "24h"}),
        causes=tallies(counts.by_cause, "cause", {"since": "24h"}),
        failures=failures,
        heat=heat,
        endpoints=tuple(endpoints.items),
        more_endpoints=endpoints.next_cursor is not None,
        empty=not anything.items,
    )


async def _newest_bad(db: Database, tenant: str) -> tuple[JobRow, ...]:
    lists = await asyncio.gather(
        *(queries.list_jobs(db, tenant, JobFilter(state=state), limit=NEWEST) for state in BAD_STATES)
    )
    rows = job_rows(answer for found in lists for answer in found.items)
    return tuple(sorted(rows, key=lambda row: row.at.timestamp() if row.at else 0.0, reverse=True)[:NEWEST])
