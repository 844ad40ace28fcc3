"""One worker: whether it lives, what it runs on, whether it can be told to stop, and its requests."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from fastapi import Request, Response

from collector import queries
from collector.app import db_of, settings_of
from collector.auth import ReadTenant
from collector.errors import NotFound
from collector.queries import JobFilter
from collector.queries.charts import stop_channel_strips
from dashboard import render, urls
from dashboard.contexts import WorkerPage
from dashboard.pages._rows import job_rows
from dashboard.site import site_of, target_of

ROWS: Final = 20
DAY: Final = timedelta(days=1)


async def worker_page(request: Request, tenant: ReadTenant) -> Response:
    """`/workers/{id}`, and its twin `.json`."""
    target = target_of(request, "/workers/")
    twins = (("JSON", urls.page("workers", target.id, "json")),)
    site = site_of(request, f"Worker {target.id[:60]}", twins=twins)
    if not target.id:
        raise NotFound("An address of a worker ends in its id.")
    db, since = db_of(request), site.now - timedelta(days=settings_of(request).retention_days)
    summaries, channels, jobs, strips = await asyncio.gather(
        queries.workers(db, tenant, since, worker=target.id, limit=1),
        queries.stop_channels(db, tenant, since, worker=target.id, limit=1),
        queries.list_jobs(db, tenant, JobFilter(worker=target.id), limit=ROWS),
        stop_channel_strips(db, tenant, [target.id], site.now - DAY, site.now),
    )
    if not summaries.items and not jobs.items:
        raise NotFound("Nothing stored is about a worker of this id.")
    page = WorkerPage(
        site=site,
        id=target.id,
        summary=summaries.items[0] if summaries.items else None,
        channel=channels.items[0] if channels.items else None,
        strips=tuple(strip for strip in strips if any(strip.states)),
        rows=job_rows(jobs.items),
        more_url=urls.listing("/jobs", {"worker": target.id}) if jobs.next_cursor else None,
    )
    return render.html("worker.html", page) if target.form == "html" else render.json(page)
