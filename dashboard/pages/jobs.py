"""The list of requests, newest first. Its filters live in the address, so that a link shows the same."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import datetime
from typing import Final, get_args

from fastapi import Request, Response

from collector import queries
from collector.app import db_of
from collector.auth import ReadTenant
from collector.diagnosis.answer import State
from collector.diagnosis.verdicts import VERDICTS
from collector.errors import BadInput
from collector.queries import JobFilter
from dashboard import render, urls
from dashboard.contexts import Filters, JobRow, JobsPage
from dashboard.filters import moment, rfc3339
from dashboard.pages._rows import job_rows, paged
from dashboard.site import site_of

COLUMNS: Final = (
    "job_id", "state", "final", "verdict", "cause", "fault", "confidence", "endpoint_id", "worker_ids", "at",
    "sentence", "root_cause_line",
)  # fmt: skip
STATES: Final[tuple[str, ...]] = get_args(State)


async def jobs_page(request: Request, tenant: ReadTenant) -> Response:
    """`/jobs`."""
    return render.html("jobs.html", await _jobs(request, tenant))


async def jobs_json(request: Request, tenant: ReadTenant) -> Response:
    """`/jobs.json`: the API's list, of the same query."""
    page = await _jobs(request, tenant)
    return render.json({"items": page.rows, "next_cursor": page.next_cursor})


async def jobs_csv(request: Request, tenant: ReadTenant) -> Response:
    """`/jobs.csv`: the same page of the list, a row each."""
    page = await _jobs(request, tenant)
    next_url = page.next_url.replace("/jobs?", "/jobs.csv?", 1) if page.next_url else None
    return render.csv(COLUMNS, (_row(row) for row in page.rows), next_url=next_url)


def _row(row: JobRow) -> tuple[object, ...]:
    answer, verdict = row.answer, row.answer.verdict
    at = rfc3339(row.at) if row.at else ""
    return (
        answer.job_id, answer.state, answer.final, verdict.code, verdict.cause, verdict.fault, verdict.confidence,
        answer.endpoint_id, " ".join(answer.worker_ids), at, verdict.sentence, row.line,
    )  # fmt: skip


async def _jobs(request: Request, tenant: str) -> JobsPage:
    filters, cursor, limit = filters_of(request), request.query_params.get("cursor") or None, limit_of(request)
    written = {**asdict(filters), "limit": limit if limit != queries.LIMIT_DEFAULT else None}
    asked_again = {**written, "cursor": cursor}
    twins = (("JSON", urls.listing("/jobs.json", asked_again)), ("CSV", urls.listing("/jobs.csv", asked_again)))
    site = site_of(request, "Requests", "Requests", twins=twins, search=filters.q)
    found = await queries.list_jobs(db_of(request), tenant, asked(filters, site.now), cursor=cursor, limit=limit)
    return JobsPage(
        site=site,
        filters=filters,
        rows=job_rows(found.items),
        next_cursor=found.next_cursor,
        next_url=paged("/jobs", written, found.next_cursor),
        first_url=urls.listing("/jobs", written) if cursor else None,
        states=STATES,
        verdicts=tuple(VERDICTS),
        narrowed=filters != Filters(),
    )


def filters_of(request: Request) -> Filters:
    """The filters in the address. What is no filter is left alone."""
    written = request.query_params
    return Filters(**{field.name: written.get(field.name, "").strip() for field in fields(Filters)})


def asked(filters: Filters, now: datetime) -> JobFilter:
    """The filters as the store is asked. Raises BadInput for a time that cannot be read."""
    return JobFilter(
        endpoint=filters.endpoint or None,
        worker=filters.worker or None,
        state=filters.state or None,
        verdict=filters.verdict or None,
        cause=filters.cause or None,
        fingerprint=filters.fingerprint or None,
        fault=filters.fault or None,
        since=moment(filters.since, now, "since"),
        until=moment(filters.until, now, "until"),
        q=filters.q or None,
    )


def limit_of(request: Request) -> int:
    """How many to show. Raises BadInput."""
    written = request.query_params.get("limit", "")
    if not written:
        return queries.LIMIT_DEFAULT
    if not written.isascii() or not written.isdigit() or len(written) > 6:
        raise BadInput(f"limit: not a number between 1 and {queries.LIMIT_MAX}")
    return int(written)
