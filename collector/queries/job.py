"""Everything stored about one request: its own spans, and those of the worker boots that claimed it.

Bounded in rows and bytes. What a bound leaves out is told by `cut`: an answer made of the rest must say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from collector.clickhouse import Database
from collector.queries.stored import INT64_MAX, within_int64
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

OWN_SPANS_MAX: Final = 2_000
WORKER_SPANS_MAX: Final = 500
"""Records of one boot that are no reports: boot, prestart, checks, shutdown, death."""
REPORTS_MAX: Final = 1_000
"""Heartbeats and channel reports of one boot within the life of the request, and the newest (four hours of them)."""
NEWEST_REPORTS: Final = 10
"""Reports of each kind and boot that are read however late they are: is the worker still there? As many of those that
carry a log tail: a worker that stands still tells its output once, and goes on with heartbeats without it."""
ENDPOINT_SPANS_MAX: Final = 300
PLATFORM_SPANS_MAX: Final = 200
BYTES_MAX: Final = 32 << 20
"""Attributes, events and resources that one question may bring into memory."""
FAIR_ROWS: Final = 100
"""Rows of each request or boot when many are asked for at once; who has more is asked for again, alone."""
BOOTS_MAX: Final = 50
MARGIN_NS: Final = 120 * 1_000_000_000
"""Reports come every 15 to 60 s, so those around the request lie within two minutes of it."""

_TOLD_FIRST: Final = [
    name + suffix
    for name in (
        SpanName.JOB_CLAIMED,
        SpanName.JOB_GATED,
        SpanName.JOB_RUN,
        SpanName.JOB_DELIVER,
        SpanName.JOB_STOP,
        SpanName.CALLER_REQUEST,
    )
    for suffix in ("", STARTED_SUFFIX)
]
"""Records that no bound may push out: a request can carry thousands of spans of its user's own."""
_OPEN_ENDED: Final = (SpanName.CALLER_REQUEST + STARTED_SUFFIX, SpanName.CALLER_POLL)
"""Records of a request that may be waiting still."""
_REPORTS: Final = (SpanName.HEARTBEAT, SpanName.STOP_CHANNEL, SpanName.JOB_TAKE)
_TELLS_TAIL: Final = f"position(attributes, '\"{Key.LOG_TAIL}\":') > 0"
_PLATFORM: Final = (SpanName.PLATFORM_ENDPOINT, SpanName.PLATFORM_WORKER, SpanName.PLATFORM_LOG)


@dataclass(frozen=True, slots=True)
class JobSpans:
    """What is stored about one request, by start. `cut`: a bound left out some of it."""

    spans: list[SpanRow]
    cut: bool

    @property
    def newest_arrival_ms(self) -> int:
        """When the newest of these arrived; 0 where there is none."""
        return max((span.arrived_ms for span in self.spans), default=0)


Boot = tuple[str, str]  # worker id, boot id


@dataclass(frozen=True, slots=True)
class _Part:
    """Spans by what they belong to (a request, a boot, an endpoint), and of which of these a bound left some out."""

    spans: Mapping[Any, list[SpanRow]]
    cut: frozenset[Any] = frozenset()


def bounded_text(rows: str, by: str, order: str) -> str:
    """A question around `rows`: of each `by`, in `order`, no more than {most} rows and {bytes} bytes, and their number.

    The first row always comes, so that what is there is never taken for absent.
    Of a span told twice the newest copy is read: a replay can land in another partition, where copies never merge.
    """
    return f"""
SELECT {SPAN_COLUMNS}, all_of_them
FROM (
    SELECT *, count() OVER (PARTITION BY {by}) AS all_of_them,
           row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS place,
           sum(length(attributes) + length(resource) + length(events) + length(links))
               OVER (PARTITION BY {by} ORDER BY {order}) AS bytes
    FROM ({rows})
)
WHERE place = 1 OR (bytes <= {{bytes:UInt64}} AND place <= {{most:UInt32}})
"""  # noqa: S608  what is put in are texts of this module


_OWN = bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}, has({{first:Array(String)}}, name) AS told_first,
           name = '{SpanName.LOG_RECORD}' AND status != 'error' AS mere_log
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id IN {{job_ids:Array(String)}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY job_id, span_id
    """,  # noqa: S608
    "job_id",
    "told_first DESC, mere_log, start_ns, span_id",
)

_OF_BOOTS = bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = ''
      AND worker_id IN {{workers:Array(String)}} AND boot_id IN {{boots:Array(String)}}
      AND name NOT IN {{reports:Array(String)}} AND name NOT IN {{platform:Array(String)}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY worker_id, boot_id, span_id
    """,  # noqa: S608
    "worker_id, boot_id",
    "start_ns, span_id",
)

_REPORTS_OF_BOOTS = bounded_text(
    f"""
    SELECT *
    FROM (
        SELECT *, end_ns >= {{from_ns:Int64}} AND start_ns <= {{to_ns:Int64}} AS within,
               row_number() OVER (PARTITION BY worker_id, boot_id, name, {_TELLS_TAIL}
                                  ORDER BY end_ns DESC, span_id) AS newest
        FROM (
            SELECT {SPAN_COLUMNS}
            FROM spans
            WHERE tenant = {{tenant:String}} AND job_id = ''
              AND worker_id IN {{workers:Array(String)}} AND boot_id IN {{boots:Array(String)}}
              AND name IN {{reports:Array(String)}}
            ORDER BY arrived_ms DESC
            LIMIT 1 BY worker_id, boot_id, span_id
        )
    )
    WHERE within OR newest <= {{newest:UInt32}}
    """,  # noqa: S608
    "worker_id, boot_id",
    "newest <= {newest:UInt32} DESC, start_ns DESC, span_id",
)

_OF_ENDPOINTS = bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = '' AND endpoint_id IN {{endpoints:Array(String)}} AND worker_id != ''
      AND name NOT IN {{platform:Array(String)}}
      AND end_ns >= {{from_ns:Int64}} AND start_ns <= {{to_ns:Int64}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY endpoint_id, span_id
    """,  # noqa: S608
    "endpoint_id",
    "start_ns DESC, span_id",
)

_OF_PLATFORM = bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = '' AND endpoint_id IN {{endpoints:Array(String)}}
      AND name IN {{platform:Array(String)}}
      AND end_ns >= {{from_ns:Int64}} AND start_ns <= {{to_ns:Int64}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY endpoint_id, span_id
    """,  # noqa: S608
    "endpoint_id, name",  # lines of logs must not push out what the endpoint as a whole is like
    "start_ns DESC, span_id",
)

_NAMING = """
SELECT DISTINCT worker_id, boot_id, arrayJoin(arrayIntersect(
           arrayConcat(JSONExtract(attributes, {death_key:String}, 'Array(String)'),
                       JSONExtract(attributes, {shutdown_key:String}, 'Array(String)')),
           {job_ids:Array(String)})) AS named
FROM spans
WHERE tenant = {tenant:String} AND job_id = '' AND name IN {names:Array(String)} AND worker_id != ''
LIMIT {most:UInt32}
"""


async def spans_of_job(db: Database, tenant: str, job_id: str) -> JobSpans:
    """What is stored about a request and its workers. No span at all: nothing by this id is stored (any more)."""
    return (await _asked_at_once(db, tenant, [job_id]))[job_id]


async def spans_of_jobs(db: Database, tenant: str, job_ids: Sequence[str]) -> dict[str, JobSpans]:
    """The same for many, in as many questions as for one. Who has more records than its share is asked for alone."""
    found = await _asked_at_once(db, tenant, job_ids)
    if len(job_ids) > 1:
        for job_id in [job_id for job_id, spans in found.items() if spans.cut]:
            found[job_id] = await spans_of_job(db, tenant, job_id)
    return found


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What others than the request itself told, by boot and by endpoint."""

    once: _Part
    reports: _Part
    platform: _Part
    meanwhile: _Part  # of endpoints where a request waits that nobody claimed


async def _asked_at_once(db: Database, tenant: str, job_ids: Sequence[str]) -> dict[str, JobSpans]:
    ask = partial(_bounded, db, tenant)
    own = await ask(_OWN, {"job_ids": list(job_ids), "first": _TOLD_FIRST}, lambda span: span.job_id, len(job_ids))
    boots = await _boots_of(db, tenant, job_ids, own)
    around = await _surroundings(ask, own, boots)
    return {
        job_id: _assembled(own.spans.get(job_id, []), boots[job_id], around, own_cut=job_id in own.cut)
        for job_id in job_ids
    }


async def _surroundings(ask: _Ask, own: _Part, boots: Mapping[str, list[Boot]]) -> _Surroundings:
    from_ns, to_ns = _interval([span for spans in own.spans.values() for span in spans])
    interval = {"from_ns": from_ns, "to_ns": to_ns}
    asked = sorted({boot for found in boots.values() for boot in found})
    endpoints = {job_id: _endpoint_of(spans) for job_id, spans in own.spans.items()}
    unclaimed = {endpoint for job_id, endpoint in endpoints.items() if not boots[job_id]}
    return _Surroundings(
        *await asyncio.gather(
            _of_boots(ask, asked),
            _reports_of(ask, asked, interval),
            # Of a request that waits still the newest is wanted, and that can be hours after its own last record.
            _of_endpoints(
                ask, _OF_PLATFORM, set(endpoints.values()), {**interval, "to_ns": INT64_MAX} if unclaimed else interval
            ),
            _of_endpoints(ask, _OF_ENDPOINTS, unclaimed, {**interval, "to_ns": INT64_MAX}),
        )
    )


def _assembled(own: Sequence[SpanRow], boots: Sequence[Boot], around: _Surroundings, *, own_cut: bool) -> JobSpans:
    """One request's spans out of what was asked for all."""
    endpoint = _endpoint_of(own)
    parts = [*own, *_around(own, around.platform.spans.get(endpoint, ()), boots)]
    for boot in boots:
        parts += around.once.spans.get(boot, ())
        parts += _told_around(own, around.reports.spans.get(boot, ()))
    if not boots:
        parts += _meanwhile(own, around.meanwhile.spans.get(endpoint, ()))
    cut = own_cut or len(boots) >= BOOTS_MAX
    return JobSpans(
        sorted(parts, key=lambda span: (span.start_ns, span.span_id)),
        cut=cut or any(boot in around.once.cut or boot in around.reports.cut for boot in boots),
    )


async def _boots_of(db: Database, tenant: str, job_ids: Sequence[str], own: _Part) -> dict[str, list[Boot]]:
    """The boots that each request was in the hands of: by its own records, else by those of a boot that names it."""
    boots = {
        job_id: sorted({(span.worker_id, span.boot_id) for span in own.spans.get(job_id, ()) if span.worker_id})
        for job_id in job_ids
    }
    homeless = [job_id for job_id, found in boots.items() if not found]
    if homeless:
        most = BOOTS_MAX * len(homeless)
        parameters = {
            "tenant": tenant,
            "job_ids": homeless,
            "names": [SpanName.DEATH, SpanName.SHUTDOWN, SpanName.SHUTDOWN + STARTED_SUFFIX],
            "death_key": Key.DEATH_JOBS_IN_HAND,
            "shutdown_key": Key.SHUTDOWN_JOBS_IN_HAND,
            "most": most,
        }
        for row in await db.query(_NAMING, parameters, max_rows=most):
            boots[str(row["named"])].append((str(row["worker_id"]), str(row["boot_id"])))
    return {job_id: found[:BOOTS_MAX] for job_id, found in boots.items()}


async def _of_boots(ask: _Ask, boots: Sequence[Boot]) -> _Part:
    """What these boots told once: boot, prestart, checks, shutdown, death."""
    if not boots:
        return _Part({})
    parameters = {**_named(boots), "reports": list(_REPORTS), "platform": list(_PLATFORM)}
    return await ask(_OF_BOOTS, parameters, _boot_of, len(boots), most=WORKER_SPANS_MAX)


async def _reports_of(ask: _Ask, boots: Sequence[Boot], interval: Mapping[str, int]) -> _Part:
    """What these boots tell again and again: within the interval, and the newest of each kind."""
    if not boots:
        return _Part({})
    parameters = {**_named(boots), **interval, "reports": list(_REPORTS), "newest": NEWEST_REPORTS}
    return await ask(_REPORTS_OF_BOOTS, parameters, _boot_of, len(boots), most=REPORTS_MAX)


async def _of_endpoints(ask: _Ask, sql: str, endpoints: set[str], interval: Mapping[str, int]) -> _Part:
    asked = sorted(endpoints - {""})
    if not asked:
        return _Part({})
    parameters = {"endpoints": asked, "platform": list(_PLATFORM), **interval}
    most = PLATFORM_SPANS_MAX if sql is _OF_PLATFORM else ENDPOINT_SPANS_MAX
    return await ask(sql, parameters, lambda span: span.endpoint_id, 1, most=most)


_Ask = Callable[..., Awaitable[_Part]]


async def _bounded(
    db: Database,
    tenant: str,
    sql: str,
    parameters: Mapping[str, Any],
    key: Callable[[SpanRow], Any],
    keys: int,
    *,
    most: int | None = None,
) -> _Part:
    """Ask, and put the spans by what they belong to. `keys`: how many share the bounds."""
    most = OWN_SPANS_MAX if most is None else most
    share = most if keys == 1 else min(most, FAIR_ROWS)
    bounds = {"most": share, "bytes": BYTES_MAX // keys}
    rows = await db.query(sql, {"tenant": tenant, **parameters, **bounds}, max_rows=share * max(keys, 1_000))
    spans: dict[Any, list[SpanRow]] = {}
    numbers: dict[Any, int] = {}
    for row in rows:
        span = span_row(row)
        spans.setdefault(key(span), []).append(span)
        numbers[key(span)] = int(row["all_of_them"])
    return _Part(spans, frozenset(one for one, number in numbers.items() if number > len(spans[one])))


def _named(boots: Sequence[Boot]) -> dict[str, list[str]]:
    return {"workers": sorted({worker for worker, _ in boots}), "boots": sorted({boot for _, boot in boots})}


def _boot_of(span: SpanRow) -> Boot:
    return (span.worker_id, span.boot_id)


def _endpoint_of(own: Sequence[SpanRow]) -> str:
    return next((span.endpoint_id for span in own if span.endpoint_id), "")


def _within(span: SpanRow, from_ns: int, to_ns: int) -> bool:
    return span.end_ns >= from_ns and span.start_ns <= to_ns


def _told_around(own: Sequence[SpanRow], reports: Sequence[SpanRow]) -> list[SpanRow]:
    """Of one boot's reports those around the request, and the newest of each kind."""
    from_ns, to_ns = _interval(own)
    newest: dict[tuple[str, bool], int] = {}
    kept = []
    for span in sorted(reports, key=lambda span: (-span.end_ns, span.span_id)):
        kind = (span.name, Key.LOG_TAIL in span.attributes)
        newest[kind] = newest.get(kind, 0) + 1
        if newest[kind] <= NEWEST_REPORTS or _within(span, from_ns, to_ns):
            kept.append(span)
    return kept


def _around(own: Sequence[SpanRow], platform: Sequence[SpanRow], boots: Sequence[Boot]) -> list[SpanRow]:
    """What the platform said of these workers, or of the endpoint, around the request: the newest of each kind."""
    if not boots:
        return _meanwhile(own, platform)
    workers = {"", *(worker for worker, _ in boots)}
    return [span for span in platform if _within(span, *_interval(own)) and span.worker_id in workers]


def _meanwhile(own: Sequence[SpanRow], of_endpoint: Sequence[SpanRow]) -> list[SpanRow]:
    """What others did around a request that nobody claimed, until now where it may be waiting still.

    The newest of it: an endpoint can have hundreds of workers, so this is a sample and never a whole to call cut.
    """
    from_ns, to_ns = _interval(own)
    until = INT64_MAX if all(span.name in _OPEN_ENDED for span in own) else to_ns
    return [span for span in of_endpoint if _within(span, from_ns, until)]


def _interval(own: Sequence[SpanRow]) -> tuple[int, int]:
    """From the first to the last record of the request, with a margin, in Unix nanoseconds."""
    first = min((span.start_ns for span in own), default=0)
    last = max((max(span.start_ns, span.end_ns) for span in own), default=0)
    return within_int64(first - MARGIN_NS), within_int64(last + MARGIN_NS)
