"""Failures, the same ones counted once."""

from __future__ import annotations

from fastapi import Request, Response

from collector import queries
from collector.app import db_of
from collector.auth import ReadTenant
from collector.queries.group_actions import standings
from dashboard import render, urls
from dashboard.contexts import GroupsPage
from dashboard.pages._rows import paged
from dashboard.site import site_of


async def groups_page(request: Request, tenant: ReadTenant) -> Response:
    """`/groups`."""
    return render.html("groups.html", await _groups(request, tenant))


async def groups_json(request: Request, tenant: ReadTenant) -> Response:
    """`/groups.json`."""
    page = await _groups(request, tenant)
    return render.json({"items": page.groups, "next_cursor": page.next_cursor, "standings": page.standings})


async def _groups(request: Request, tenant: str) -> GroupsPage:
    cursor = request.query_params.get("cursor") or None
    endpoint = request.query_params.get("endpoint") or None
    written = {"endpoint": endpoint}
    twins = (("JSON", urls.listing("/groups.json", {**written, "cursor": cursor})),)
    site = site_of(request, "Groups", "Groups", twins=twins)
    found = await queries.groups(db_of(request), tenant, site.now, endpoint=endpoint, cursor=cursor)
    return GroupsPage(
        site=site,
        groups=tuple(found.items),
        standings=await standings(db_of(request), tenant, found.items),
        next_cursor=found.next_cursor,
        next_url=paged("/groups", written, found.next_cursor),
        first_url=urls.listing("/groups", written) if cursor else None,
    )
