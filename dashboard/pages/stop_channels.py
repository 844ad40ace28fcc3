"""Whether workers can be told to stop a request: the newest report of each stop channel."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from fastapi import Request, Response

from collector import queries
from collector.app import db_of
from collector.auth import ReadTenant
from collector.queries.charts import stop_channel_strips
from collector.watch.ledger import list_findings
from dashboard import render, urls
from dashboard.contexts import StopChannelsPage
from dashboard.pages._rows import paged
from dashboard.site import site_of

DAY: Final = timedelta(days=1)


async def stop_channels_page(request: Request, tenant: ReadTenant) -> Response:
    """`/stop-channels`."""
    return render.html("stop_channels.html", await _channels(request, tenant))


async def stop_channels_json(request: Request, tenant: ReadTenant) -> Response:
    """`/stop-channels.json`."""
    page = await _channels(request, tenant)
    return render.json({"items": page.channels, "next_cursor": page.next_cursor, "findings": page.findings})


async def _channels(request: Request, tenant: str) -> StopChannelsPage:
    cursor = request.query_params.get("cursor") or None
    twins = (("JSON", urls.listing("/stop-channels.json", {"cursor": cursor})),)
    site = site_of(request, "Stop channels", "Stop channels", twins=twins)
    db, since = db_of(request), site.now - DAY
    found, wrong = await asyncio.gather(
        queries.stop_channels(db, tenant, since, cursor=cursor),
        list_findings(db, tenant, since, site.now, state="open", limit=queries.LIMIT_MAX),
    )
    workers = [channel.worker_id for channel in found.items]
    return StopChannelsPage(
        site=site,
        findings=tuple(one for one in wrong.items if one.code.startswith("stop_channel_")),
        channels=tuple(found.items),
        strips=await stop_channel_strips(db, tenant, workers, since, site.now),
        next_cursor=found.next_cursor,
        next_url=paged("/stop-channels", {}, found.next_cursor),
        first_url="/stop-channels" if cursor else None,
    )
