"""The page of an error. A query that failed is never shown as an empty result."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.app import Problem, raw_path_tail
from dashboard import render
from dashboard.contexts import ErrorPage, Site
from dashboard.site import secured, site_of

HEADINGS: Final = {
    "never_seen": "Nothing was ever received about this request",
    "past_retention": "This request is past retention",
    "not_found": "There is no such page",
    "store_unavailable": "The store did not answer",
    "store_refused": "The store refused the query",
    "auth_error": "You are not allowed to see this",
    "bad_input": "This address cannot be read",
    "too_large": "That is too large",
    "overloaded": "The server has too much in hand",
    "rate_limited": "Too often",
}

ADVICE: Final = {
    "never_seen": (
        "Compare the id letter by letter: it is the id that the platform returned, often ending in `-u1` or `-e1`.",
        "A worker reports a request when it claims it. One that is still queued, or whose worker runs without the"
        " exporter, is not known here.",
        "See `/status` whether this server works, and which tenant you read.",
    ),
    "past_retention": (
        "Its last verdict is remembered; its records were deleted at the age that `STALLSCOPE_RETENTION_DAYS` sets.",
        "Raise that setting to keep records of later requests longer.",
    ),
    "store_unavailable": (
        "Try again in a few seconds: nothing that was acknowledged is lost.",
        "If it stays so, see `/status`, and whether ClickHouse runs and can be reached from here.",
    ),
    "store_refused": ("This is a bug of Stallscope. The server's log has the statement.",),
    "bad_input": ("Correct the address, or begin with the whole list at `/jobs`.",),
}

FAILED_QUERY: Final = "The query failed, so nothing is known about what would stand here. It is not an empty result. "


def error_page(request: Request, problem: Problem) -> Response:
    """The page, or the way to the sign-in where a token is all that is missing."""
    if problem.status == 401:
        here = "/" + raw_path_tail(request, "/") + (f"?{request.url.query}" if request.url.query else "")
        return secured(RedirectResponse(f"/login?next={quote(here, safe='')}", 303))
    page = error_view(problem, site_of(request, HEADINGS.get(problem.code, problem.title)), _again(request, problem))
    return secured(render.html("error.html", page, status=problem.status))


def error_view(problem: Problem, site: Site, retry_url: str | None) -> ErrorPage:
    """The error as the page shows it. Pure."""
    failed = FAILED_QUERY if problem.code in ("store_unavailable", "store_refused") else ""
    return ErrorPage(
        site=site,
        status=problem.status,
        code=problem.code,
        heading=HEADINGS.get(problem.code, problem.title),
        detail=failed + (_sentence(problem.detail) if problem.status == 404 else problem.detail),
        advice=ADVICE.get(problem.code, ()),
        retry_url=retry_url,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _again(request: Request, problem: Problem) -> str | None:
    """The same address, where asking again can help and asking changes nothing."""
    if not problem.retryable or request.method != "GET":
        return None
    return "?" + request.url.query  # relative: the browser keeps the path as it was written
