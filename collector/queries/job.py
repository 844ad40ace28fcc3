"""Everything stored about one request: its own spans, and those of the worker boots that claimed it.

Bounded in rows and bytes. What a bound leaves out is told by `cut`: an answer made of the rest must say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from collector.clickhouse import Database
from collector.queries.stored import INT64_MAX, within_int64
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

OWN_SPANS_MAX: Final = 2_000
WORKER_SPANS_MAX: Final = 500
"""Records of the boots that are no reports: boot, prestart, checks, shutdown, death."""
REPORTS_MAX: Final = 1_000
"""Heartbeats and channel reports within the life of the request; the newest stay (1,000 heartbeats are four hours)."""
NEWEST_REPORTS: Final = 10
"""Reports of each kind and boot that are read however late they are: is the worker still there?"""
ENDPOINT_SPANS_MAX: Final = 300
PLATFORM_SPANS_MAX: Final = 200
BYTES_MAX: Final = 32 << 20
"""Attributes, events and resources that one question may bring into memory."""
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
_PLATFORM: Final = (SpanName.PLATFORM_WORKER, SpanName.PLATFORM_LOG)


@dataclass(frozen=True, slots=True)
class JobSpans:
    """What is stored about one request, by start. `cut`: a bound left out some of it."""

    spans: list[SpanRow]
    cut: bool

    @property
    def newest_arrival_ms(self) -> int:
        """When the newest of these arrived; 0 where there is none."""
        return max((span.arrived_ms for span in self.spans), default=0)


def _bounded_text(rows: str, order: str) -> str:
    """A question around `rows`: in `order`, no more than {most} rows and {bytes} bytes, and how many there were.

    Of a span told twice the newest copy is read: a replay can land in another partition, where copies never merge.
    """
    return f"""
SELECT {SPAN_COLUMNS}, all_of_them
FROM (
    SELECT *, count() OVER () AS all_of_them,
           sum(length(attributes) + length(resource) + length(events) + length(links)) OVER (ORDER BY {order}) AS bytes
    FROM ({rows})
)
WHERE bytes <= {{bytes:UInt64}}
ORDER BY {order}
LIMIT {{most:UInt32}}
"""  # noqa: S608  what is put in are texts of this module


_OWN = _bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}, has({{first:Array(String)}}, name) AS told_first
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = {{job_id:String}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY span_id
    """,  # noqa: S608
    "told_first DESC, start_ns, span_id",
)

_OF_BOOTS = _bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = ''
      AND worker_id IN {{workers:Array(String)}} AND boot_id IN {{boots:Array(String)}}
      AND name NOT IN {{reports:Array(String)}} AND name NOT IN {{platform:Array(String)}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY span_id
    """,  # noqa: S608
    "start_ns, span_id",
)

_REPORTS_OF_BOOTS = _bounded_text(
    f"""
    SELECT *
    FROM (
        SELECT *, end_ns >= {{from_ns:Int64}} AND start_ns <= {{to_ns:Int64}} AS within,
               row_number() OVER (PARTITION BY worker_id, boot_id, name ORDER BY end_ns DESC) AS newest
        FROM (
            SELECT {SPAN_COLUMNS}
            FROM spans
            WHERE tenant = {{tenant:String}} AND job_id = ''
              AND worker_id IN {{workers:Array(String)}} AND boot_id IN {{boots:Array(String)}}
              AND name IN {{reports:Array(String)}}
            ORDER BY arrived_ms DESC
            LIMIT 1 BY span_id
        )
    )
    WHERE within OR newest <= {{newest:UInt32}}
    """,  # noqa: S608
    "within DESC, start_ns DESC, span_id",
)

_OF_ENDPOINT = _bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = '' AND endpoint_id = {{endpoint:String}} AND worker_id != ''
      AND name NOT IN {{platform:Array(String)}}
      AND end_ns >= {{from_ns:Int64}} AND start_ns <= {{to_ns:Int64}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY span_id
    """,  # noqa: S608
    "start_ns DESC, span_id",
)

_OF_PLATFORM = _bounded_text(
    f"""
    SELECT {SPAN_COLUMNS}
    FROM spans
    WHERE tenant = {{tenant:String}} AND job_id = '' AND endpoint_id = {{endpoint:String}}
      AND name IN {{platform:Array(String)}}
      AND (empty({{workers:Array(String)}}) OR worker_id = '' OR worker_id IN {{workers:Array(String)}})
      AND end_ns >= {{from_ns:Int64}} AND start_ns <= {{to_ns:Int64}}
    ORDER BY arrived_ms DESC
    LIMIT 1 BY span_id
    """,  # noqa: S608
    "start_ns DESC, span_id",
)

_NAMING = """
SELECT DISTINCT worker_id, boot_id
FROM spans
WHERE tenant = {tenant:String} AND job_id = '' AND name IN {names:Array(String)} AND worker_id != ''
  AND (has(JSONExtract(attributes, {death_key:String}, 'Array(String)'), {job_id:String})
       OR has(JSONExtract(attributes, {shutdown_key:String}, 'Array(String)'), {job_id:String}))
LIMIT {most:UInt32}
"""


async def spans_of_job(db: Database, tenant: str, job_id: str) -> JobSpans:
    """What is stored about a request and its workers. No span at all: nothing by this id is stored (any more)."""
    own = await _bounded(db, _OWN, {"tenant": tenant, "job_id": job_id, "first": _TOLD_FIRST}, OWN_SPANS_MAX)
    boots = {(span.worker_id, span.boot_id) for span in own.spans if span.worker_id}
    if not boots:
        boots = await _boots_naming(db, tenant, job_id)
    if not own.spans and not boots:
        return own
    parts = await asyncio.gather(
        _of_boots(db, tenant, boots, own.spans) if boots else _of_endpoint(db, tenant, own.spans),
        _of_platform(db, tenant, boots, own.spans),
    )
    spans = sorted(
        [span for part in (own, *parts) for span in part.spans], key=lambda span: (span.start_ns, span.span_id)
    )
    return JobSpans(spans=spans, cut=len(boots) > BOOTS_MAX or any(part.cut for part in (own, *parts)))


async def _of_boots(db: Database, tenant: str, boots: set[tuple[str, str]], own: Sequence[SpanRow]) -> JobSpans:
    """Records of these boots: all that happened once, and the reports around the request."""
    read = sorted(boots)[:BOOTS_MAX]
    from_ns, to_ns = _interval(own)
    shared = {
        "tenant": tenant,
        "workers": sorted({worker for worker, _ in read}),
        "boots": sorted({boot for _, boot in read}),
        "reports": list(_REPORTS),
    }
    once, reports = await asyncio.gather(
        _bounded(db, _OF_BOOTS, {**shared, "platform": list(_PLATFORM)}, WORKER_SPANS_MAX),
        _bounded(
            db,
            _REPORTS_OF_BOOTS,
            {**shared, "from_ns": from_ns, "to_ns": to_ns, "newest": NEWEST_REPORTS},
            REPORTS_MAX,
        ),
    )
    kept = [span for span in (*once.spans, *reports.spans) if (span.worker_id, span.boot_id) in boots]
    return JobSpans(kept, cut=once.cut or reports.cut)


async def _of_endpoint(db: Database, tenant: str, own: Sequence[SpanRow]) -> JobSpans:
    """What the endpoint's workers did while the request waited for one: it tells why none claimed it.

    The newest of it: an endpoint can have hundreds of workers, so this is a sample and never a whole to call cut.
    """
    endpoint = next((span.endpoint_id for span in own if span.endpoint_id), "")
    if not endpoint:
        return JobSpans([], cut=False)
    from_ns, to_ns = _interval(own)
    parameters = {
        "tenant": tenant,
        "endpoint": endpoint,
        "platform": list(_PLATFORM),
        "from_ns": from_ns,
        "to_ns": INT64_MAX if all(span.name in _OPEN_ENDED for span in own) else to_ns,
    }
    sample = await _bounded(db, _OF_ENDPOINT, parameters, ENDPOINT_SPANS_MAX)
    return JobSpans(sample.spans, cut=False)


async def _of_platform(db: Database, tenant: str, boots: set[tuple[str, str]], own: Sequence[SpanRow]) -> JobSpans:
    """What the platform itself said about these workers, or, with none yet, about the endpoint."""
    endpoint = next((span.endpoint_id for span in own if span.endpoint_id), "")
    if not endpoint:
        return JobSpans([], cut=False)
    from_ns, to_ns = _interval(own)
    parameters = {
        "tenant": tenant,
        "endpoint": endpoint,
        "platform": list(_PLATFORM),
        "workers": sorted({worker for worker, _ in boots}),
        "from_ns": from_ns,
        "to_ns": to_ns,
    }
    return await _bounded(db, _OF_PLATFORM, parameters, PLATFORM_SPANS_MAX)


async def _boots_naming(db: Database, tenant: str, job_id: str) -> set[tuple[str, str]]:
    """Boots that ended with this request in hand: all that is left where its own records were lost."""
    parameters = {
        "tenant": tenant,
        "job_id": job_id,
        "names": [SpanName.DEATH, SpanName.SHUTDOWN, SpanName.SHUTDOWN + STARTED_SUFFIX],
        "death_key": Key.DEATH_JOBS_IN_HAND,
        "shutdown_key": Key.SHUTDOWN_JOBS_IN_HAND,
        "most": BOOTS_MAX,
    }
    rows = await db.query(_NAMING, parameters, max_rows=BOOTS_MAX)
    return {(str(row["worker_id"]), str(row["boot_id"])) for row in rows}


async def _bounded(db: Database, sql: str, parameters: dict[str, Any], most: int) -> JobSpans:
    rows = await db.query(sql, {**parameters, "most": most, "bytes": BYTES_MAX}, max_rows=most)
    # Rows beyond the bounds are counted by those within. One span of 32 MiB, which alone would leave none, cannot be
    # stored: attributes are bounded at the door.
    return JobSpans([span_row(row) for row in rows], cut=bool(rows) and int(rows[0]["all_of_them"]) > len(rows))


def _interval(own: Sequence[SpanRow]) -> tuple[int, int]:
    """From the first to the last record of the request, with a margin, in Unix nanoseconds."""
    first = min((span.start_ns for span in own), default=0)
    last = max((max(span.start_ns, span.end_ns) for span in own), default=0)
    return within_int64(first - MARGIN_NS), within_int64(last + MARGIN_NS)
