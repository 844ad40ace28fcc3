"""What the store knows of each worker boot in the last half hour, for all tenants in two questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector.clickhouse import Database
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

WINDOW_MS: Final = 30 * 60_000
"""Records older than this, by arrival, are not looked at: a worker says everything again within a minute."""
ENDS_MS: Final = 86_400_000
"""But for how it ended, or that it wanted to: that is said once."""
BOOTS_MAX: Final = 50_000
REPORTS_MAX: Final = 60
"""Newest reports of one channel that are read; one that flaps sends up to 30 a minute."""


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot of one worker. Times by arrival are the collector's clock (ms); `_ns` are the worker's own clock.

    0 stands for "never". `lag`: arrival minus the beat's own time, ms.
    """

    tenant: str
    endpoint_id: str
    worker_id: str
    boot_id: str
    first_ms: int
    last_ms: int
    beats: int
    first_beat_ms: int
    last_beat_ms: int
    last_beat_ns: int
    least_lag_ms: int
    most_lag_ms: int
    jobs: tuple[str, ...]  # in hand at the newest beat
    death_ms: int
    death_ns: int
    exit_words: str
    shutdown_ms: int
    shutdown_began_ms: int
    boot_told: bool
    started: bool  # reached start()
    unbounded: bool  # a prestart phase without any bound
    job_records: int

    @property
    def gone(self) -> bool:
        """It said itself that it ends, or its recorder did."""
        return self.death_ms > 0 or self.shutdown_ms > 0

    def beating(self, now_ms: int, within_ms: int) -> bool:
        """Whether a beat arrived lately and nobody told of an end."""
        return not self.gone and now_ms - self.last_beat_ms <= within_ms


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a poll channel. None: not told."""

    at_ns: int
    state: str
    polls: int | None
    failures: int | None
    consecutive_failures: int | None
    last_ok_age_seconds: float | None
    violation: str
    hold_seconds: float | None
    rate_per_second: float | None
    http_status: int | None
    content_type: str
    span_id: str
    error_type: str = ""
    unanswered_seconds: float | None = None  # told where no poll is answered, or none is made, although one could be
    is_polling: bool | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """The reports of one poll channel of one boot, oldest first."""

    tenant: str
    worker_id: str
    boot_id: str
    name: str  # stop_channel | job_take
    reports: tuple[Report, ...]


_BOOTS = """
SELECT tenant, worker_id, boot_id, argMax(endpoint_id, arrived_ms) AS endpoint,
       min(arrived_ms) AS first_ms, max(arrived_ms) AS last_ms,
       countIf(beat) AS beats, minIf(arrived_ms, beat) AS first_beat_ms, maxIf(arrived_ms, beat) AS last_beat_ms,
       maxIf(end_ns, beat) AS last_beat_ns, minIf(lag, beat) AS least_lag_ms, maxIf(lag, beat) AS most_lag_ms,
       argMaxIf(JSONExtract(attributes, {jobs_key:String}, 'Array(String)'), end_ns, beat) AS jobs,
       maxIf(arrived_ms, name = {death:String}) AS death_ms, maxIf(end_ns, name = {death:String}) AS death_ns,
       anyIf(JSONExtract(attributes, {exit_key:String}, 'Nullable(Int64)'), name = {death:String}) AS exit_code,
       anyIf(JSONExtractString(attributes, {signal_key:String}), name = {death:String}) AS signal,
       maxIf(arrived_ms, startsWith(name, {shutdown:String})) AS shutdown_ms,
       minIf(arrived_ms, startsWith(name, {shutdown:String})) AS shutdown_began_ms,
       countIf(startsWith(name, {boot:String})) AS boot_told,
       countIf(name = {boot:String} AND status != 'error') AS started,
       countIf(startsWith(name, {prestart:String})) AS prestarts,
       countIf(startsWith(name, {prestart:String}) AND JSONHas(attributes, {timeout_key:String})) AS bounded,
       countIf(job_id != '') AS job_records
FROM (
    SELECT tenant, worker_id, boot_id, endpoint_id, arrived_ms, end_ns, name, status, attributes, job_id,
           name = {heartbeat:String} AS beat, arrived_ms - intDiv(end_ns, 1000000) AS lag
    FROM spans
    WHERE arrived_ms >= {ends_since_ms:Int64} AND worker_id != '' AND name IN {names:Array(String)}
      AND (arrived_ms >= {since_ms:Int64} OR name IN {ends:Array(String)})
)
GROUP BY tenant, worker_id, boot_id
HAVING last_ms >= {since_ms:Int64}
"""


async def boots(db: Database, now_ms: int) -> list[Boot]:
    """Every worker boot heard of in the window. Raises StoreUnavailable, also where there are more than 50,000."""
    both = [SpanName.BOOT, SpanName.PRESTART, SpanName.SHUTDOWN, SpanName.JOB_RUN]
    names = [SpanName.HEARTBEAT, SpanName.DEATH, SpanName.JOB_CLAIMED, *both, *(name + STARTED_SUFFIX for name in both)]
    parameters = {
        "since_ms": now_ms - WINDOW_MS,
        "ends_since_ms": now_ms - ENDS_MS,
        "names": names,
        "ends": [SpanName.DEATH, SpanName.SHUTDOWN, SpanName.SHUTDOWN + STARTED_SUFFIX],
        "heartbeat": SpanName.HEARTBEAT,
        "death": SpanName.DEATH,
        "shutdown": SpanName.SHUTDOWN,
        "boot": SpanName.BOOT,
        "prestart": SpanName.PRESTART,
        "jobs_key": Key.HEARTBEAT_JOBS,
        "exit_key": Key.EXIT_CODE,
        "signal_key": Key.DEATH_SIGNAL,
        "timeout_key": Key.PRESTART_TIMEOUT_SECONDS,
    }
    return [_boot(row) for row in await db.query(_BOOTS, parameters, max_rows=BOOTS_MAX)]


def _boot(row: dict[str, Any]) -> Boot:
    exit_code, signal = row["exit_code"], str(row["signal"])
    return Boot(
        tenant=str(row["tenant"]),
        endpoint_id=str(row["endpoint"]),
        worker_id=str(row["worker_id"]),
        boot_id=str(row["boot_id"]),
        first_ms=int(row["first_ms"]),
        last_ms=int(row["last_ms"]),
        beats=int(row["beats"]),
        first_beat_ms=int(row["first_beat_ms"]),
        last_beat_ms=int(row["last_beat_ms"]),
        last_beat_ns=int(row["last_beat_ns"]),
        least_lag_ms=int(row["least_lag_ms"]),
        most_lag_ms=int(row["most_lag_ms"]),
        jobs=tuple(str(job) for job in row["jobs"]),
        death_ms=int(row["death_ms"]),
        death_ns=int(row["death_ns"]),
        exit_words=signal or ("" if exit_code is None else f"exit code {int(exit_code)}"),
        shutdown_ms=int(row["shutdown_ms"]),
        shutdown_began_ms=int(row["shutdown_began_ms"]),
        boot_told=int(row["boot_told"]) > 0,
        started=int(row["started"]) > 0,
        unbounded=int(row["prestarts"]) > 0 and not row["bounded"],
        job_records=int(row["job_records"]),
    )


# Of a value that has another type than the contract's, JSONExtract makes NULL: it counts as not told.
_CHANNELS = """
SELECT tenant, worker_id, boot_id, name,
       arraySlice(arraySort(groupArray((
           end_ns, span_id,
           JSONExtractString(attributes, {state_key:String}),
           JSONExtract(attributes, {polls_key:String}, 'Nullable(Int64)'),
           JSONExtract(attributes, {failures_key:String}, 'Nullable(Int64)'),
           JSONExtract(attributes, {consecutive_key:String}, 'Nullable(Int64)'),
           JSONExtract(attributes, {age_key:String}, 'Nullable(Float64)'),
           JSONExtractString(attributes, {violation_key:String}),
           JSONExtract(attributes, {hold_key:String}, 'Nullable(Float64)'),
           JSONExtract(attributes, {rate_key:String}, 'Nullable(Float64)'),
           JSONExtract(attributes, {status_key:String}, 'Nullable(Int64)'),
           if(JSONType(attributes, {content_type_key:String}) = 'Array',
              JSONExtractString(attributes, {content_type_key:String}, 1),
              JSONExtractString(attributes, {content_type_key:String})),
           JSONExtractString(attributes, {error_key:String}),
           JSONExtract(attributes, {unanswered_key:String}, 'Nullable(Float64)'),
           JSONExtract(attributes, {polling_key:String}, 'Nullable(Bool)')
       ))), -{most:Int32}) AS reports
FROM spans
WHERE arrived_ms >= {since_ms:Int64} AND worker_id != '' AND name IN {names:Array(String)}
GROUP BY tenant, worker_id, boot_id, name
"""


async def channels(db: Database, now_ms: int) -> list[Channel]:
    """The newest reports of every poll channel in the window."""
    parameters = {
        "since_ms": now_ms - WINDOW_MS,
        "names": [SpanName.STOP_CHANNEL, SpanName.JOB_TAKE],
        "most": REPORTS_MAX,
        "state_key": Key.CHANNEL_STATE,
        "polls_key": Key.CHANNEL_POLLS,
        "failures_key": Key.CHANNEL_FAILURES,
        "consecutive_key": Key.CHANNEL_CONSECUTIVE_FAILURES,
        "age_key": Key.CHANNEL_LAST_OK_AGE_SECONDS,
        "violation_key": Key.CHANNEL_VIOLATION,
        "hold_key": Key.CHANNEL_HOLD_SECONDS_P50,
        "rate_key": Key.CHANNEL_RATE_PER_SECOND,
        "status_key": Key.HTTP_STATUS,
        "content_type_key": Key.HTTP_CONTENT_TYPE,  # a string of older exporters, an array of newer ones
        "error_key": Key.ERROR_TYPE,
        "unanswered_key": Key.CHANNEL_UNANSWERED_SECONDS,
        "polling_key": Key.CHANNEL_POLLING,
    }
    rows = await db.query(_CHANNELS, parameters, max_rows=2 * BOOTS_MAX)
    return [
        Channel(
            tenant=str(row["tenant"]),
            worker_id=str(row["worker_id"]),
            boot_id=str(row["boot_id"]),
            name=str(row["name"]),
            reports=tuple(_report(told) for told in row["reports"]),
        )
        for row in rows
    ]


def _report(told: Sequence[Any]) -> Report:
    at_ns, span_id, state, polls, failures, consecutive, age, violation, *more = told
    hold, rate, status, content_type, error, unanswered, is_polling = more
    return Report(
        at_ns=int(at_ns),
        state=str(state),
        polls=polls,
        failures=failures,
        consecutive_failures=consecutive,
        last_ok_age_seconds=age,
        violation=str(violation),
        hold_seconds=hold,
        rate_per_second=rate,
        http_status=status,
        content_type=str(content_type),
        span_id=str(span_id),
        error_type=str(error),
        unanswered_seconds=unanswered,
        is_polling=is_polling,
    )


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A request that the platform cancelled and that its worker still runs."""

    tenant: str
    endpoint_id: str
    job_id: str
    worker_ids: tuple[str, ...]
    seconds_since_cancel: float  # at `updated_ms`
    updated_ms: int


_CANCELLED = """
SELECT tenant, job_id, argMax(jobs.endpoint_id, version) AS endpoint, argMax(jobs.worker_ids, version) AS workers,
       argMax(jobs.updated_ms, version) AS written_ms, argMax(is_final, version) AS ended,
       argMax(JSONExtract(document, 'wasted', 'seconds_since_cancel', 'Nullable(Float64)'), version) AS seconds
FROM jobs
WHERE jobs.updated_ms >= {since_ms:Int64} AND (tenant, job_id) IN (
    SELECT tenant, job_id FROM jobs WHERE updated_ms >= {since_ms:Int64} AND NOT is_final
      AND JSONExtract(document, 'wasted', 'seconds_since_cancel', 'Nullable(Float64)') IS NOT NULL
)
GROUP BY tenant, job_id
HAVING NOT ended AND seconds IS NOT NULL
LIMIT {most:UInt32}
"""
CANCELLED_MAX: Final = 5000


async def cancelled(db: Database, now_ms: int) -> list[Cancelled]:
    """Open requests that were cancelled, as last diagnosed."""
    parameters = {"since_ms": now_ms - WINDOW_MS, "most": CANCELLED_MAX}
    return [
        Cancelled(
            tenant=str(row["tenant"]),
            endpoint_id=str(row["endpoint"]),
            job_id=str(row["job_id"]),
            worker_ids=tuple(str(worker) for worker in row["workers"]),
            seconds_since_cancel=float(row["seconds"]),
            updated_ms=int(row["written_ms"]),
        )
        for row in await db.query(_CANCELLED, parameters, max_rows=CANCELLED_MAX)
    ]
