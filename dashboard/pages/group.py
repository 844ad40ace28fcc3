"""One failure, wherever it was seen: since when, how often, and what stands out."""

from __future__ import annotations

import asyncio

from fastapi import Request, Response

from collector import queries
from collector.app import db_of
from collector.auth import ReadTenant
from collector.errors import NotFound
from collector.queries import JobFilter
from dashboard import render, urls
from dashboard.contexts import GroupPage
from dashboard.pages._rows import job_rows
from dashboard.site import site_of, target_of

ROWS = 20


async def group_page(request: Request, tenant: ReadTenant) -> Response:
    """`/groups/{fingerprint}`, and its twin `.json`."""
    target = target_of(request, "/groups/")
    twins = (("JSON", urls.page("groups", target.id, "json")),)
    site = site_of(request, f"Group {target.id[:60]}", "Groups", twins=twins)
    db, narrowed = db_of(request), JobFilter(fingerprint=target.id)
    detail, jobs = await asyncio.gather(
        queries.group(db, tenant, target.id, site.now), queries.list_jobs(db, tenant, narrowed, limit=ROWS)
    )
    if detail is None:
        raise NotFound("No stored request has this failure.")
    page = GroupPage(
        site=site,
        group=detail.summary,
        stands_out=detail.stands_out,
        rows=job_rows(jobs.items),
        more_url=urls.listing("/jobs", {"fingerprint": target.id}) if jobs.next_cursor else None,
    )
    return render.html("group.html", page) if target.form == "html" else render.json(page)
