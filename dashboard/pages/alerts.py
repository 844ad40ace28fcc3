"""What is wrong now: alerts with what became of telling people, and the findings behind them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.alerts.listing import list_alerts
from collector.app import db_of
from collector.auth import OperateTenant, ReadTenant, may_operate
from collector.errors import BadInput
from collector.watch.ledger import act, list_findings
from dashboard import forms, render, urls
from dashboard.contexts import AlertsPage
from dashboard.pages._rows import paged
from dashboard.site import clock, form_of, site_of

DAY: Final = timedelta(days=1)
SNOOZE: Final = timedelta(hours=4)
FINDINGS: Final = 100


async def alerts_page(request: Request, tenant: ReadTenant) -> Response:
    """`/alerts`."""
    page = await _alerts(request, tenant)
    response = render.html("alerts.html", page)
    return forms.remembered(response, request, page.form_secret) if page.form_secret else response


async def act_on_alert(request: Request, tenant: OperateTenant) -> Response:
    """The form of one alert or finding sent in: acknowledge, snooze for a while, or reopen."""
    fields = await form_of(request)
    forms.checked(request, fields)
    action, now = fields.get("action", ""), clock()
    if action not in ("acknowledge", "snooze", "reopen"):
        raise BadInput("action: none of acknowledge, snooze, reopen")
    until = now + SNOOZE if action == "snooze" else None
    await act(db_of(request), tenant, fields.get("key", ""), action, now, until=until)
    return RedirectResponse("/alerts", 303)


async def alerts_json(request: Request, tenant: ReadTenant) -> Response:
    """`/alerts.json`."""
    page = await _alerts(request, tenant)
    return render.json({"items": page.alerts, "next_cursor": page.next_cursor, "findings": page.findings})


async def _alerts(request: Request, tenant: str) -> AlertsPage:
    cursor = request.query_params.get("cursor") or None
    twins = (("JSON", urls.listing("/alerts.json", {"cursor": cursor})),)
    site = site_of(request, "Alerts", "Alerts", twins=twins)
    db, since = db_of(request), site.now - DAY
    alerts, findings = await asyncio.gather(
        list_alerts(db, tenant, since, site.now, cursor=cursor),
        list_findings(db, tenant, since, site.now, limit=FINDINGS),
    )
    return AlertsPage(
        site=site,
        alerts=tuple(alerts.items),
        findings=tuple(findings.items),
        more_findings=findings.next_cursor is not None,
        next_cursor=alerts.next_cursor,
        next_url=paged("/alerts", {}, alerts.next_cursor),
        first_url="/alerts" if cursor else None,
        form_secret=forms.secret_for(request) if may_operate(request) else "",
    )
