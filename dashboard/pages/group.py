"""One failure, wherever it was seen: since when, how often, what stands out, and what people said about it."""

from __future__ import annotations

import asyncio
from typing import Final, get_args

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector import queries
from collector.app import db_of
from collector.auth import OperateTenant, ReadTenant, may_operate, secret_of, short_name
from collector.errors import BadInput, NotFound
from collector.queries import JobFilter
from collector.queries.group_actions import GroupAction, Standing, said_about, say, standings
from dashboard import forms, render, urls
from dashboard.contexts import GroupPage
from dashboard.pages._rows import job_rows
from dashboard.site import clock, form_of, site_of, target_of

ROWS: Final = 20
HTML_ALONE: Final[tuple[urls.Form, ...]] = ("html",)
ACTIONS: Final[tuple[GroupAction, ...]] = get_args(GroupAction)


async def group_page(request: Request, tenant: ReadTenant) -> Response:
    """`/groups/{fingerprint}`, and its twin `.json`."""
    target = target_of(request, "/groups/")
    twins = (("JSON", urls.page("groups", target.id, "json")),)
    site = site_of(request, f"Group {target.id[:60]}", "Groups", twins=twins)
    db, narrowed = db_of(request), JobFilter(fingerprint=target.id)
    detail, jobs, told = await asyncio.gather(
        queries.group(db, tenant, target.id, site.now),
        queries.list_jobs(db, tenant, narrowed, limit=ROWS),
        said_about(db, tenant, target.id),
    )
    if detail is None:
        raise NotFound("No stored request has this failure.")
    secret = forms.secret_for(request) if may_operate(request) else ""
    page = GroupPage(
        site=site,
        group=detail.summary,
        standing=(await standings(db, tenant, [detail.summary])).get(target.id, Standing()),
        told=told,
        stands_out=detail.stands_out,
        new_in=detail.new_in,
        regressed=detail.regressed,
        rows=job_rows(jobs.items),
        more_url=urls.listing("/jobs", {"fingerprint": target.id}) if jobs.next_cursor else None,
        form_secret=secret,
    )
    if target.form == "json":
        return render.json(page)
    response = render.html("group.html", page)
    return forms.remembered(response, request, secret) if secret else response


async def act_on_group(request: Request, tenant: OperateTenant) -> Response:
    """The form of `/groups/{fingerprint}` sent in: resolve, reopen, or a note."""
    target, fields = target_of(request, "/groups/", HTML_ALONE), await form_of(request)
    forms.checked(request, fields)
    action = next((action for action in ACTIONS if action == fields.get("action")), None)
    if action is None:
        raise BadInput(f"action: none of {', '.join(ACTIONS)}")
    db = db_of(request)
    if not await queries.counts_of_groups(db, tenant, [target.id]):
        raise NotFound("No stored request has this failure.")
    who = short_name(secret_of(request))
    await say(db, tenant, target.id, action, clock(), who=who, note=fields.get("note", ""))
    return RedirectResponse(urls.page("groups", target.id) + "#said", 303)
