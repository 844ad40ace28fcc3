"""What is wrong now: alerts with what became of telling people, and the findings behind them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from fastapi import Request, Response

from collector.alerts.listing import list_alerts
from collector.app import db_of
from collector.auth import ReadTenant
from collector.watch.ledger import list_findings
from dashboard import render, urls
from dashboard.contexts import AlertsPage
from dashboard.pages._rows import paged
from dashboard.site import site_of

DAY: Final = timedelta(days=1)
FINDINGS: Final = 100


async def alerts_page(request: Request, tenant: ReadTenant) -> Response:
    """`/alerts`."""
    return render.html("alerts.html", await _alerts(request, tenant))


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
    )
