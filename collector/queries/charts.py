"""Numbers for charts: failures over time, phase times of an endpoint, stop channels by worker, causes by host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from collector.clickhouse import Database
from collector.queries.fleet import BAD_STATES
from collector.queries.stored import ms_of, ns_of, time_of_ns
from sdk_exporter.contract import Key, SpanName

BUCKETS: Final = 24
SERIES: Final = 6
"""More verdicts than this are one series, `other`: a reader cannot tell more apart."""
HOSTS: Final = 12
CAUSES: Final = 8
RECORDS_READ: Final = 200_000
"""Newest records of an endpoint that phase times are counted from: a busy endpoint's chart may begin later."""
WORKERS: Final = 20

Measure = Literal["queue", "cold start", "run"]


@dataclass(frozen=True, slots=True)
class Series:
    """One verdict in each stretch of time, oldest first."""

    name: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Half, and 95 in 100, of what was measured in one stretch of time, in seconds; None where nothing was."""

    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One host: how often each cause was seen on it, in the order of `HeatMap.causes`."""

    host: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Failures by host and cause, the most frequent first; the rest is counted as left out."""

    causes: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Strip:
    """The worst state of a worker's stop channel in each stretch, oldest first; empty where it sent no report."""

    worker_id: str
    states: tuple[str, ...]


_FAILURES: Final = """
SELECT code, intDiv(first_ns - {since_ns:Int64}, {step_ns:Int64}) AS bucket, count() AS seen
FROM job_times FINAL
WHERE tenant = {tenant:String} AND first_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64}
  AND state IN {bad_states:Array(String)} AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
GROUP BY code, bucket
"""


async def failures_over_time(
    db: Database, tenant: str, since: datetime, until: datetime, *, endpoint: str = ""
) -> tuple[Series, ...]:
    """Failed, lost and stalled requests by verdict, the most frequent first."""
    parameters = {**_window(tenant, since, until), "endpoint": endpoint, "bad_states": list(BAD_STATES)}
    counts: dict[str, list[int]] = {}
    for row in await db.query(_FAILURES, parameters):
        counts.setdefault(str(row["code"]), [0] * BUCKETS)[min(int(row["bucket"]), BUCKETS - 1)] += int(row["seen"])
    ordered = sorted(counts.items(), key=lambda item: (-sum(item[1]), item[0]))
    told = ordered if len(ordered) <= SERIES else ordered[: SERIES - 1]
    rest = [sum(column) for column in zip(*(numbers for _, numbers in ordered[len(told) :]), strict=True)]
    return tuple(Series(code, tuple(numbers)) for code, numbers in told) + (
        (Series("other", tuple(rest)),) if rest else ()
    )


_PHASES: Final = """
SELECT measure.1 AS name, intDiv(at_ns - {since_ns:Int64}, {step_ns:Int64}) AS bucket,
       quantilesExact(0.5, 0.95)(measure.2) AS seconds
FROM (
    SELECT max(start_ns) AS at_ns,
           arrayJoin(arrayConcat(
               groupArrayIf(('run', (end_ns - start_ns) / 1e9), name = {run:String}),
               groupArrayIf(('cold start', (end_ns - start_ns) / 1e9), name = {boot:String}),
               if(countIf(name = {sent:String}) > 0 AND countIf(name = {claimed:String}) > 0,
                  [('queue', (minIf(start_ns, name = {claimed:String}) - minIf(start_ns, name = {sent:String})) / 1e9)],
                  [])
           )) AS measure
    FROM (
        SELECT job_id, span_id, name, start_ns, end_ns
        FROM spans
        WHERE tenant = {tenant:String} AND endpoint_id = {endpoint:String} AND status != 'error'
          AND name IN {names:Array(String)} AND start_ns >= {since_ns:Int64} AND start_ns < {until_ns:Int64}
        ORDER BY tenant DESC, endpoint_id DESC, start_ns DESC
        LIMIT {most:UInt32}
    )
    GROUP BY if(job_id = '', span_id, job_id)
)
WHERE measure.2 >= 0
GROUP BY name, bucket
"""


async def phase_times(
    db: Database, tenant: str, endpoint: str, since: datetime, until: datetime
) -> dict[Measure, tuple[Quantiles, ...]]:
    """How long requests of an endpoint waited, its workers started and its handlers ran, where that went well."""
    parameters = {
        **_window(tenant, since, until),
        "endpoint": endpoint,
        "run": SpanName.JOB_RUN,
        "boot": SpanName.BOOT,
        "sent": SpanName.CALLER_REQUEST,
        "claimed": SpanName.JOB_CLAIMED,
        "names": [SpanName.JOB_RUN, SpanName.BOOT, SpanName.CALLER_REQUEST, SpanName.JOB_CLAIMED],
        "most": RECORDS_READ,
    }
    found = {
        (str(row["name"]), min(int(row["bucket"]), BUCKETS - 1)): Quantiles(*(float(one) for one in row["seconds"]))
        for row in await db.query(_PHASES, parameters)
    }
    measures: tuple[Measure, ...] = ("queue", "cold start", "run")
    nothing = Quantiles(None, None)
    return {
        measure: tuple(found.get((measure, bucket), nothing) for bucket in range(BUCKETS))
        for measure in measures
        if any(name == measure for name, _ in found)
    }


_HEAT: Final = """
SELECT host, cause, count() AS seen
FROM job_times FINAL
WHERE tenant = {tenant:String} AND first_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64}
  AND state IN {bad_states:Array(String)} AND host != ''
  AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
GROUP BY host, cause
ORDER BY seen DESC, host, cause
"""


async def causes_by_host(db: Database, tenant: str, since: datetime, until: datetime, *, endpoint: str = "") -> HeatMap:
    """Where which cause is seen: one bad host is a row that differs from the others."""
    parameters = {**_window(tenant, since, until), "endpoint": endpoint, "bad_states": list(BAD_STATES)}
    seen = {(str(row["host"]), str(row["cause"])): int(row["seen"]) for row in await db.query(_HEAT, parameters)}
    hosts = _most([(host, count) for (host, _), count in seen.items()], HOSTS)
    causes = _most([(cause, count) for (_, cause), count in seen.items()], CAUSES)
    rows = tuple(HeatRow(host, tuple(seen.get((host, cause), 0) for cause in causes)) for host in hosts)
    return HeatMap(causes, rows, sum(seen.values()) - sum(sum(row.counts) for row in rows))


def _most(counts: Sequence[tuple[str, int]], most: int) -> tuple[str, ...]:
    total: dict[str, int] = {}
    for name, count in counts:
        total[name] = total.get(name, 0) + count
    return tuple(sorted(total, key=lambda name: (-total[name], name))[:most])


# From best to worst: of several reports in one stretch the worst is shown.
_WORST: Final = ("ok", "disabled", "spinning", "violating", "failing")

_STRIPS: Final = """
SELECT worker_id, bucket, groupUniqArray(state) AS states
FROM (
    SELECT worker_id, intDiv(end_ns - {since_ns:Int64}, {step_ns:Int64}) AS bucket,
           JSONExtractString(attributes, {state_key:String}) AS state
    FROM spans
    WHERE tenant = {tenant:String} AND arrived_ms >= {since_ms:Int64} AND name = {stop_channel:String}
      AND worker_id IN {workers:Array(String)} AND end_ns >= {since_ns:Int64} AND end_ns < {until_ns:Int64}
)
GROUP BY worker_id, bucket
"""


async def stop_channel_strips(
    db: Database, tenant: str, workers: Sequence[str], since: datetime, until: datetime
) -> tuple[Strip, ...]:
    """How the stop channels of these workers were, in the order given; of the first `WORKERS` of them."""
    asked = list(workers[:WORKERS])
    if not asked:
        return ()
    parameters = {
        **_window(tenant, since, until),
        "since_ms": ms_of(since),
        "workers": asked,
        "stop_channel": SpanName.STOP_CHANNEL,
        "state_key": Key.CHANNEL_STATE,
    }
    worst: dict[tuple[str, int], str] = {}
    for row in await db.query(_STRIPS, parameters):
        known = [state for state in _WORST if state in row["states"]]
        worst[(str(row["worker_id"]), min(int(row["bucket"]), BUCKETS - 1))] = known[-1] if known else "unknown"
    return tuple(Strip(worker, tuple(worst.get((worker, bucket), "") for bucket in range(BUCKETS))) for worker in asked)


def bucket_starts(since: datetime, until: datetime) -> tuple[datetime, ...]:
    """When each stretch of a chart begins."""
    step_ns = _step_ns(since, until)
    return tuple(time_of_ns(ns_of(since) + number * step_ns) for number in range(BUCKETS))


def _step_ns(since: datetime, until: datetime) -> int:
    return max((ns_of(until) - ns_of(since)) // BUCKETS, 1)


def _window(tenant: str, since: datetime, until: datetime) -> dict[str, str | int]:
    return {
        "tenant": tenant,
        "since_ns": ns_of(since),
        "until_ns": ns_of(until),
        "step_ns": _step_ns(since, until),
    }
