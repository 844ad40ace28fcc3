"""Alerts: not part of this version, and the page says so rather than showing an empty list."""

from __future__ import annotations

from fastapi import Request, Response

from collector.auth import ReadTenant
from dashboard import render
from dashboard.contexts import NotBuiltPage
from dashboard.site import site_of

EXPLANATION = (
    "This version sends no alerts and keeps no findings, so there is no list to show: an empty one would read as"
    " “all is well”. Failures are listed under Requests, the same ones counted once under Groups."
)


async def alerts_page(request: Request, tenant: ReadTenant) -> Response:
    """`/alerts`: 501."""
    page = NotBuiltPage(site=site_of(request, "Alerts"), heading="Alerts are not built yet", explanation=EXPLANATION)
    return render.html("not_built.html", page, status=501)


async def alerts_json(request: Request, tenant: ReadTenant) -> Response:
    """`/alerts.json`: 501."""
    return render.json(
        {"title": "Not built yet", "status": 501, "detail": EXPLANATION, "code": "not_built"}, status=501
    )
