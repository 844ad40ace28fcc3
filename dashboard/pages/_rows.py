"""Pieces that several pages are made of: requests in a list, numbers with bars, the next page's address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime

from collector.clickhouse import Database
from collector.diagnosis.answer import Answer
from collector.queries import charts as queries_charts
from dashboard import charts, urls, wording
from dashboard.contexts import Heat, JobRow, StackChart, Tally
from dashboard.tail_view import root_cause


def job_row(answer: Answer) -> JobRow:
    """A request as a list shows it."""
    root = root_cause(answer.verdict)
    return JobRow(answer, wording.TONES[answer.state], newest_time(answer), root.text if root else None)


def job_rows(answers: Iterable[Answer]) -> tuple[JobRow, ...]:
    """Requests as a list shows them."""
    return tuple(job_row(answer) for answer in answers)


def newest_time(answer: Answer) -> datetime | None:
    """When it was claimed last, or else the newest time that its verdict or history tells."""
    claims = [attempt.claimed_at for attempt in answer.attempts if attempt.claimed_at]
    told = [item.at for item in answer.verdict.evidence if item.at] + [revision.at for revision in answer.history]
    return max(claims or told, default=None)


def tallies(counts: Mapping[str, int], filter: str, fixed: Mapping[str, str | int | None]) -> tuple[Tally, ...]:
    """Counts with the address of the list behind each, most frequent first. `fixed` holds the list's other filters."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    most = max(counts.values(), default=0)
    return tuple(
        Tally(name, count, urls.listing("/jobs", {**fixed, filter: name}), round(count / most * 100, 1))
        for name, count in ordered
    )


async def day_of_failures(
    db: Database, tenant: str, since: datetime, until: datetime, endpoint: str = ""
) -> tuple[StackChart | None, Heat]:
    """Charts of what failed in a day: by verdict over time, and by host and cause."""
    series, found = await asyncio.gather(
        queries_charts.failures_over_time(db, tenant, since, until, endpoint=endpoint),
        queries_charts.causes_by_host(db, tenant, since, until, endpoint=endpoint),
    )
    starts = queries_charts.bucket_starts(since, until)
    return charts.stack(series, starts), Heat(found.causes, charts.heat(found), found.left_out)


def paged(path: str, filters: Mapping[str, str | int | None], cursor: str | None) -> str | None:
    """The address of the page that `cursor` begins."""
    return urls.listing(path, {**filters, "cursor": cursor}) if cursor else None
