"""Endpoints, workers and their stop channels, and the counts of the overview."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from collector.clickhouse import Database
from collector.queries import cursor as cursors
from collector.queries.pages import LIMIT_DEFAULT, Page, checked_limit, page_of
from collector.queries.stored import Hardware, hardware_of, ms_of, ns_of, time_of_ns
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from sdk_exporter.contract import Key, SpanName

BAD_STATES: Final = ("failed", "lost", "stalled")
OPEN_STATES: Final = ("queued", "claimed", "running", "stalled")


@dataclass(frozen=True, slots=True)
class EndpointSummary:
    """One endpoint: its requests by outcome, and how many workers were heard of."""

    endpoint_id: str
    jobs: int
    open: int
    failed: int  # failed, lost or stalled
    workers: int
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """One worker. `died_at` is None while its newest boot is not known to be dead: silence is no death."""

    worker_id: str
    endpoint_id: str | None
    boot_id: str | None  # the newest
    boots: int
    jobs: int
    first_seen: datetime
    last_seen: datetime
    last_heartbeat: datetime | None
    died_at: datetime | None
    hardware: Hardware


@dataclass(frozen=True, slots=True)
class StopChannel:
    """The newest report of a worker's stop channel. None: the report does not tell."""

    worker_id: str
    endpoint_id: str | None
    boot_id: str | None
    at: datetime
    state: str
    polls: int | None
    empty: int | None
    failures: int | None
    consecutive_failures: int | None
    last_ok_age_seconds: float | None
    violation: str | None
    hold_seconds_p50: float | None
    rate_per_second: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """Requests whose first record came at or after `since`, counted by the words of their answers."""

    since: datetime
    jobs: int
    by_state: dict[str, int]
    by_verdict: dict[str, int]
    by_cause: dict[str, int]  # of failures only
    open: int
    failed: int


_ENDPOINTS = """
SELECT endpoint_id, sum(seen) AS jobs, sum(unfinished) AS open, sum(bad) AS failed, sum(heard) AS workers,
       max(end_ns) AS last_ns
FROM (
    SELECT endpoint_id, count() AS seen, countIf(NOT is_final) AS unfinished,
           countIf(state IN {bad_states:Array(String)}) AS bad, 0 AS heard, max(last_ns) AS end_ns
    FROM job_times FINAL
    WHERE tenant = {tenant:String} AND first_ns >= {since_ns:Int64}
      AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
    GROUP BY endpoint_id
    UNION ALL
    SELECT endpoint_id, 0, 0, 0, uniqExactIf(worker_id, worker_id != ''), max(least(spans.end_ns, arrived_ms * 1000000))
    FROM spans
    WHERE tenant = {tenant:String} AND arrived_ms >= {since_ms:Int64}
      AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
    GROUP BY endpoint_id
)
WHERE endpoint_id != ''
GROUP BY endpoint_id
HAVING (last_ns, endpoint_id) < ({before_ns:Int64}, {before_id:String})
ORDER BY last_ns DESC, endpoint_id DESC
LIMIT {limit:UInt32}
"""


async def endpoints(
    db: Database,
    tenant: str,
    since: datetime,
    *,
    endpoint: str | None = None,
    cursor: str | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Page[EndpointSummary]:
    """Endpoints heard of since then, the one heard last first: those without any request too."""
    parameters = {
        **_paged(tenant, since, cursor, limit),
        "since_ns": ns_of(since),
        "endpoint": endpoint or "",
        "bad_states": list(BAD_STATES),
    }
    rows = await db.query(_ENDPOINTS, parameters, max_rows=limit + 1)
    return page_of(rows, limit, _endpoint, lambda row: (int(row["last_ns"]), str(row["endpoint_id"])))


def _endpoint(row: dict[str, Any]) -> EndpointSummary:
    return EndpointSummary(
        endpoint_id=str(row["endpoint_id"]),
        jobs=int(row["jobs"]),
        open=int(row["open"]),
        failed=int(row["failed"]),
        workers=int(row["workers"]),
        last_seen=time_of_ns(int(row["last_ns"])),
    )


_WORKERS = """
SELECT worker_id, argMax(endpoint_id, spans.start_ns) AS endpoint_id, argMax(boot_id, spans.start_ns) AS boot_id,
       uniqExact(spans.boot_id) AS boots, uniqExactIf(job_id, job_id != '') AS jobs, min(spans.start_ns) AS first_ns,
       max(least(spans.end_ns, arrived_ms * 1000000)) AS last_ns,
       maxIf(spans.end_ns, name = {heartbeat:String}) AS heartbeat_ns,
       maxIf(spans.end_ns, name = {death:String}) AS death_ns,
       argMaxIf(spans.boot_id, spans.end_ns, name = {death:String}) AS dead_boot_id,
       argMax(resource, arrived_ms) AS resource
FROM spans
WHERE tenant = {tenant:String} AND arrived_ms >= {since_ms:Int64} AND worker_id != ''
  AND ({worker:String} = '' OR worker_id = {worker:String})
  AND ({endpoint:String} = '' OR spans.endpoint_id = {endpoint:String})
GROUP BY worker_id
HAVING (last_ns, worker_id) < ({before_ns:Int64}, {before_id:String})
ORDER BY last_ns DESC, worker_id DESC
LIMIT {limit:UInt32}
"""


async def workers(
    db: Database,
    tenant: str,
    since: datetime,
    *,
    worker: str | None = None,
    endpoint: str | None = None,
    cursor: str | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Page[WorkerSummary]:
    """Workers heard of since then, the one heard last first; one alone where `worker` names it."""
    parameters = {
        **_paged(tenant, since, cursor, limit),
        "worker": worker or "",
        "endpoint": endpoint or "",
        "heartbeat": SpanName.HEARTBEAT,
        "death": SpanName.DEATH,
    }
    rows = await db.query(_WORKERS, parameters, max_rows=limit + 1)
    return page_of(rows, limit, _worker, lambda row: (int(row["last_ns"]), str(row["worker_id"])))


def _worker(row: dict[str, Any]) -> WorkerSummary:
    heartbeat_ns, death_ns = int(row["heartbeat_ns"]), int(row["death_ns"])
    dead = death_ns > 0 and row["dead_boot_id"] == row["boot_id"]
    return WorkerSummary(
        worker_id=str(row["worker_id"]),
        endpoint_id=str(row["endpoint_id"]) or None,
        boot_id=str(row["boot_id"]) or None,
        boots=int(row["boots"]),
        jobs=int(row["jobs"]),
        first_seen=time_of_ns(int(row["first_ns"])),
        last_seen=time_of_ns(int(row["last_ns"])),
        last_heartbeat=time_of_ns(heartbeat_ns) if heartbeat_ns > 0 else None,
        died_at=time_of_ns(death_ns) if dead else None,
        hardware=hardware_of(json.loads(row["resource"])),
    )


_STOP_CHANNELS = f"""
SELECT * FROM (
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND arrived_ms >= {{since_ms:Int64}} AND worker_id != ''
      AND name = {{stop_channel:String}}
      AND ({{worker:String}} = '' OR worker_id = {{worker:String}})
      AND ({{endpoint:String}} = '' OR endpoint_id = {{endpoint:String}})
    ORDER BY end_ns DESC, arrived_ms DESC
    LIMIT 1 BY worker_id
)
WHERE (end_ns, worker_id) < ({{before_ns:Int64}}, {{before_id:String}})
ORDER BY end_ns DESC, worker_id DESC
LIMIT {{limit:UInt32}}
"""  # noqa: S608  what is put in is our own list of columns


async def stop_channels(
    db: Database,
    tenant: str,
    since: datetime,
    *,
    worker: str | None = None,
    endpoint: str | None = None,
    cursor: str | None = None,
    limit: int = LIMIT_DEFAULT,
) -> Page[StopChannel]:
    """The newest report of each worker's stop channel, the newest first. A worker that sent none is not here."""
    parameters = {
        **_paged(tenant, since, cursor, limit),
        "worker": worker or "",
        "endpoint": endpoint or "",
        "stop_channel": SpanName.STOP_CHANNEL,
    }
    rows = await db.query(_STOP_CHANNELS, parameters, max_rows=limit + 1)
    return page_of(
        rows, limit, lambda row: stop_channel_of(span_row(row)), lambda row: (int(row["end_ns"]), str(row["worker_id"]))
    )


def stop_channel_of(span: SpanRow) -> StopChannel:
    """A `stop_channel` span as a report. Attributes of another type than the contract's count as absent."""
    return StopChannel(
        worker_id=span.worker_id,
        endpoint_id=span.endpoint_id or None,
        boot_id=span.boot_id or None,
        at=time_of_ns(span.end_ns),
        state=_text(span, Key.CHANNEL_STATE) or "unknown",
        polls=_count(span, Key.CHANNEL_POLLS),
        empty=_count(span, Key.CHANNEL_EMPTY),
        failures=_count(span, Key.CHANNEL_FAILURES),
        consecutive_failures=_count(span, Key.CHANNEL_CONSECUTIVE_FAILURES),
        last_ok_age_seconds=_seconds(span, Key.CHANNEL_LAST_OK_AGE_SECONDS),
        violation=_text(span, Key.CHANNEL_VIOLATION),
        hold_seconds_p50=_seconds(span, Key.CHANNEL_HOLD_SECONDS_P50),
        rate_per_second=_seconds(span, Key.CHANNEL_RATE_PER_SECOND),
    )


_OVERVIEW = """
SELECT state, code, if(fingerprint != '', cause, '') AS cause_of_failure, count() AS jobs,
       countIf(NOT is_final) AS open, countIf(state IN {bad_states:Array(String)}) AS failed
FROM job_times FINAL
WHERE tenant = {tenant:String} AND first_ns >= {since_ns:Int64}
  AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
GROUP BY state, code, cause_of_failure
ORDER BY jobs DESC
"""


async def overview(db: Database, tenant: str, since: datetime, *, endpoint: str | None = None) -> Overview:
    """How requests ended since then."""
    parameters = {
        "tenant": tenant,
        "since_ns": ns_of(since),
        "endpoint": endpoint or "",
        "bad_states": list(BAD_STATES),
    }
    rows = await db.query(_OVERVIEW, parameters)
    return Overview(
        since=since,
        jobs=sum(int(row["jobs"]) for row in rows),
        by_state=_summed(rows, "state"),
        by_verdict=_summed(rows, "code"),
        by_cause=_summed(rows, "cause_of_failure"),
        open=sum(int(row["open"]) for row in rows),
        failed=sum(int(row["failed"]) for row in rows),
    )


def _summed(rows: list[dict[str, Any]], by: str) -> dict[str, int]:
    """Requests by one word, the most frequent first; rows without the word are left out."""
    counts: dict[str, int] = {}
    for row in rows:
        if row[by]:
            counts[str(row[by])] = counts.get(str(row[by]), 0) + int(row["jobs"])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _paged(tenant: str, since: datetime, cursor: str | None, limit: int) -> dict[str, Any]:
    before = cursors.read(cursor)
    return {
        "tenant": tenant,
        "since_ms": ms_of(since),
        "before_ns": before.first_ns,
        "before_id": before.job_id,
        "limit": checked_limit(limit) + 1,
    }


def _text(span: SpanRow, key: str) -> str | None:
    value = span.attributes.get(key)
    return value if isinstance(value, str) else None


def _count(span: SpanRow, key: str) -> int | None:
    value = span.attributes.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(span: SpanRow, key: str) -> float | None:
    value = span.attributes.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
