"""The one search box: a job id, an address or a log line, pasted as it is."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from typing import Final

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector import queries
from collector.answers import answer_of_job
from collector.app import db_of, settings_of
from collector.auth import ReadTenant
from collector.clickhouse import Database
from collector.errors import NotFound
from collector.queries import JobFilter
from dashboard import urls
from dashboard.site import clock
from sdk_exporter.redaction import redact

IDS_TRIED: Final = 3
ID_CHARACTERS: Final = 1024
SEARCH_CHARACTERS: Final = 256  # what the store's search takes
PASTED_CHARACTERS: Final = 16_384

_ADDRESS: Final = re.compile(r"https?://\S+", re.IGNORECASE)
_JOB_IN_A_PATH: Final = re.compile(r"/(?:jobs|status|cancel|stream|retry)/([^/?#\s]+)")
_OWN_PAGE: Final = re.compile(r"https?://[^/\s]+/(workers|endpoints|groups)/([^/?#\s]+)$", re.IGNORECASE)
_ENDPOINT_IN_A_PATH: Final = re.compile(r"/(?:v2|serverless/(?:user/)?endpoint)/([A-Za-z0-9_-]+)(?:[/?#]|$)")
_NAMED: Final = re.compile(r"""["']?(?:job_?id|request_?id|requestId|jobId|id)["']?\s*[:=]\s*["']?([\w.-]{8,})""")
_UUID: Final = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:-[a-z]\d+)?\b", re.IGNORECASE
)
# What stands before the text of a line and is another each time: a time, a level, a container's name in brackets.
_PREFIX: Final = re.compile(
    r"^(?:\s*(?:\[[^\]]{1,40}\]|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|\d\d:\d\d:\d\d[.,\d]*|"
    r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b)\s*[:|-]?\s*)+"
)


async def search_page(request: Request, tenant: ReadTenant) -> Response:
    """`/search?q=`: to what was named, or to the list of requests that hold these words."""
    pasted = request.query_params.get("q", "").strip()[:PASTED_CHARACTERS]
    if not pasted:
        return RedirectResponse("/jobs", 303)
    db, now = db_of(request), clock()
    since = now - timedelta(days=settings_of(request).retention_days)
    found = own_page(pasted) or await _job(db, tenant, pasted, now) or await _other(db, tenant, pasted, since)
    return RedirectResponse(found or await _words(db, tenant, pasted), 303)


async def _job(db: Database, tenant: str, pasted: str, now: datetime) -> str | None:
    for job_id in ids_in(pasted):
        try:
            answer = await answer_of_job(db, tenant, job_id, now)
        except NotFound:
            continue
        return urls.page("jobs", answer.job_id)
    return None


async def _other(db: Database, tenant: str, pasted: str, since: datetime) -> str | None:
    """A worker, an endpoint or a group of this name."""
    named = endpoint_in(pasted) or pasted
    if len(named) > ID_CHARACTERS or len(named.split()) != 1:
        return None
    workers, endpoints, groups = await asyncio.gather(
        queries.workers(db, tenant, since, worker=named, limit=1),
        queries.endpoints(db, tenant, since, endpoint=named, limit=1),
        queries.counts_of_groups(db, tenant, [named]),
    )
    for kind, found in (("workers", workers.items), ("endpoints", endpoints.items), ("groups", groups)):
        if found:
            return urls.page(kind, named)
    return None


async def _words(db: Database, tenant: str, pasted: str) -> str:
    """The list of requests that hold the line; where none does, those that hold it without what changes each time."""
    line = words_of(pasted)
    bare = _PREFIX.sub("", line)
    if bare and bare != line and not (await queries.list_jobs(db, tenant, JobFilter(q=line), limit=1)).items:
        line = bare
    return urls.listing("/jobs", {"q": line})


def own_page(pasted: str) -> str | None:
    """The path of a page of this site about something else than a request, where its whole address was pasted."""
    found = _OWN_PAGE.match(pasted)
    return f"/{found[1].lower()}/{found[2]}" if found else None


def endpoint_in(pasted: str) -> str | None:
    """The endpoint that an address of the platform names."""
    found = _ENDPOINT_IN_A_PATH.search(pasted) if _ADDRESS.match(pasted) else None
    return found[1] if found else None


def ids_in(pasted: str) -> list[str]:
    """Job ids that the text may name, likeliest first: the whole of it, the end of an address, an id in a log line."""
    named = [urls.target(found).id for address in _ADDRESS.findall(pasted) for found in _JOB_IN_A_PATH.findall(address)]
    whole = [] if _ADDRESS.match(pasted) or len(pasted) > ID_CHARACTERS else [pasted]
    found = dict.fromkeys([*whole, *named, *_UUID.findall(pasted), *_NAMED.findall(pasted)])
    return [job_id for job_id in found if len(job_id) <= ID_CHARACTERS][:IDS_TRIED]


def words_of(pasted: str) -> str:
    """The longest part that the store can search for: one line, without the colours of a terminal, and with its secrets
    replaced as they are where it was stored."""
    lines = [re.sub(r"\x1b\[[0-9;:]*m", "", line).strip() for line in redact(pasted).splitlines()]
    return max(lines, key=len, default="")[:SEARCH_CHARACTERS].strip()
