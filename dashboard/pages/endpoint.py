"""One endpoint: how its requests ended in the last day, its failures and its workers."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Final

from fastapi import Request, Response

from collector import queries
from collector.app import db_of
from collector.auth import ReadTenant
from collector.clickhouse import Database
from collector.errors import NotFound
from collector.queries import EndpointSummary, GroupSummary, JobFilter, JobList, Overview, Page, WorkerSummary
from collector.queries.charts import bucket_starts, phase_times
from dashboard import charts, render, urls
from dashboard.contexts import EndpointPage
from dashboard.pages._rows import day_of_failures, job_rows, tallies
from dashboard.site import site_of, target_of

DAY: Final = timedelta(days=1)
ROWS: Final = 15
GROUPS: Final = 8
WORKERS: Final = 50


async def endpoint_page(request: Request, tenant: ReadTenant) -> Response:
    """`/endpoints/{id}`, and its twin `.json`."""
    target = target_of(request, "/endpoints/")
    twins = (("JSON", urls.page("endpoints", target.id, "json")),)
    site = site_of(request, f"Endpoint {target.id[:60]}", twins=twins)
    if not target.id:
        raise NotFound("An address of an endpoint ends in its id.")
    db, since = db_of(request), site.now - DAY
    (failures, heat), times, (summaries, counts, groups, workers, jobs) = await asyncio.gather(
        day_of_failures(db, tenant, since, site.now, target.id),
        phase_times(db, tenant, target.id, since, site.now),
        _numbers(db, tenant, target.id, since, site.now),
    )
    if not summaries.items and not jobs.items:
        raise NotFound("Nothing stored is about an endpoint of this id.")
    narrowed = {"endpoint": target.id, "since": "24h"}
    page = EndpointPage(
        site=site,
        id=target.id,
        summary=summaries.items[0] if summaries.items else None,
        verdicts=tallies(counts.by_verdict, "verdict", narrowed),
        causes=tallies(counts.by_cause, "cause", narrowed),
        failures=failures,
        times=charts.lines(times, bucket_starts(since, site.now)),
        heat=heat,
        groups=tuple(groups.items),
        workers=tuple(workers.items),
        more_workers=workers.next_cursor is not None,
        rows=job_rows(jobs.items),
        more_url=urls.listing("/jobs", {"endpoint": target.id}) if jobs.next_cursor else None,
    )
    return render.html("endpoint.html", page) if target.form == "html" else render.json(page)


async def _numbers(
    db: Database, tenant: str, endpoint: str, since: datetime, now: datetime
) -> tuple[Page[EndpointSummary], Overview, Page[GroupSummary], Page[WorkerSummary], JobList]:
    return await asyncio.gather(
        queries.endpoints(db, tenant, since, endpoint=endpoint, limit=1),
        queries.overview(db, tenant, since, endpoint=endpoint),
        queries.groups(db, tenant, now, endpoint=endpoint, limit=GROUPS),
        queries.workers(db, tenant, since, endpoint=endpoint, limit=WORKERS),
        queries.list_jobs(db, tenant, JobFilter(endpoint=endpoint), limit=ROWS),
    )
