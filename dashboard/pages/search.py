"""The one search box: a job id, an address or a log line, pasted as it is."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.answers import answer_of_job
from collector.app import db_of
from collector.auth import ReadTenant
from collector.errors import NotFound
from dashboard import urls
from dashboard.site import clock

IDS_TRIED: Final = 3
ID_CHARACTERS: Final = 1024
SEARCH_CHARACTERS: Final = 256  # what the store's search takes

_ADDRESS: Final = re.compile(r"https?://\S+", re.IGNORECASE)
_IN_A_PATH: Final = re.compile(r"/(?:jobs|status|cancel|stream|retry)/([^/?#\s]+)")
_UUID: Final = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:-[a-z]\d+)?\b", re.IGNORECASE
)


async def search_page(request: Request, tenant: ReadTenant) -> Response:
    """`/search?q=`: to the request that was named, or to the list of those that hold these words."""
    pasted = request.query_params.get("q", "").strip()
    if not pasted:
        return RedirectResponse("/jobs", 303)
    for job_id in ids_in(pasted):
        try:
            answer = await answer_of_job(db_of(request), tenant, job_id, clock())
        except NotFound:
            continue
        return RedirectResponse(urls.page("jobs", answer.job_id), 303)
    return RedirectResponse(urls.listing("/jobs", {"q": words_of(pasted)}), 303)


def ids_in(pasted: str) -> list[str]:
    """Job ids that the text may name, likeliest first: the whole of it, the end of an address, an id in a log line."""
    named = [unquote(found) for address in _ADDRESS.findall(pasted) for found in _IN_A_PATH.findall(address)]
    whole = [] if _ADDRESS.match(pasted) or len(pasted) > ID_CHARACTERS else [pasted]
    found = dict.fromkeys([*whole, *named, *_UUID.findall(pasted)])
    return [job_id for job_id in found if len(job_id) <= ID_CHARACTERS][:IDS_TRIED]


def words_of(pasted: str) -> str:
    """The longest part that the store can search for: one line, without the colours of a terminal."""
    lines = [re.sub(r"\x1b\[[0-9;:]*m", "", line).strip() for line in pasted.splitlines()]
    return max(lines, key=len, default="")[:SEARCH_CHARACTERS].strip()
