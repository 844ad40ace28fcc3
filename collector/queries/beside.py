"""What happened beside failed requests: other requests on their workers, failed starts, and their endpoints' other
requests in the days around. Bounded in time and rows; what could not be read is told as a gap and never as nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from collector.clickhouse import Database
from collector.diagnosis.beside import Beside, Outcome, Start
from collector.diagnosis.lifecycle_beside import CRASH_WINDOW_SECONDS
from collector.diagnosis.records import SECOND_NS, Record, records_of
from collector.diagnosis.standing_out import Tally
from collector.errors import StoreRefused, StoreUnavailable
from collector.queries.job import BYTES_MAX, Boot, bounded_text
from collector.queries.stored import ns_of, within_int64
from collector.queries.tallies import tallies
from collector.rows import SPAN_COLUMNS, span_row
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

SECONDS: Final = 2.0
"""A page must not wait longer than this for what happened to others."""
SIBLINGS_MAX: Final = 30
"""Newest runs of one boot that are read."""
SIBLING_TAIL_BYTES: Final = 4_096
"""The end of each one's tail: enough for the line that its error goes back to."""
STARTS_MAX: Final = 100
OUTCOMES_MAX: Final = 100
LOOKED_BACK: Final = timedelta(days=7)
LOOKED_ON: Final = timedelta(days=1)
"""After the request's last record: from then on its verdict no longer changes by what happens to others."""
BOOT_BEFORE_NS: Final = 3_600 * SECOND_NS
"""A start that fails in the window may have begun this long before it."""

_KEPT: Final = (Key.SPAN_ID, Key.ERROR_TYPE, Key.LOG_SCOPE)
_SHORT_ATTRIBUTES: Final = (
    "toJSONString(mapFilter((key, told) -> told != '', map("
    + ", ".join(f"'{key}', JSONExtractString(spans.attributes, '{key}')" for key in _KEPT)
    + f", '{Key.LOG_TAIL}', rightUTF8(JSONExtractString(spans.attributes, '{Key.LOG_TAIL}'), {SIBLING_TAIL_BYTES})"
    "))) AS attributes"
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be read about one failed request."""

    job_id: str
    endpoint_id: str
    fingerprint: str
    first_at: datetime
    last_at: datetime
    where: Mapping[str, str] = field(default_factory=dict)
    starts_until_ns: int = 0  # 0: starts are not asked for


async def siblings(db: Database, tenant: str, boots: Sequence[Boot]) -> dict[Boot, tuple[Record, ...]] | None:
    """The newest runs of requests on each of these boots, by start; None where the store did not answer in time."""
    if not boots:
        return {}
    parameters = {
        "tenant": tenant,
        "workers": sorted({worker for worker, _ in boots}),
        "boots": sorted({boot for _, boot in boots}),
        "names": [SpanName.JOB_RUN, SpanName.JOB_RUN + STARTED_SUFFIX],
        "most": SIBLINGS_MAX,
        "bytes": BYTES_MAX // len(boots),
    }
    most = SIBLINGS_MAX * len(boots) * 2
    rows = await _in_time(partial(db.query, _SIBLINGS, parameters, seconds=SECONDS, max_rows=most))
    if rows is None:
        return None
    found: dict[Boot, list[Any]] = {}
    for row in rows:
        found.setdefault((str(row["worker_id"]), str(row["boot_id"])), []).append(span_row(row))
    return {boot: records_of(spans) for boot, spans in found.items()}


async def beside(
    db: Database,
    tenant: str,
    asked: Sequence[Asked],
    now: datetime,
    of_boots: Mapping[str, tuple[Record, ...] | None],
) -> dict[str, Beside]:
    """What happened beside each of these requests. `of_boots`: the siblings of those for which they were asked."""
    by_window: dict[tuple[datetime, datetime], list[Asked]] = {}
    for one in asked:
        if one.endpoint_id:
            by_window.setdefault(_window(one, now), []).append(one)
    failed_starts, around = await asyncio.gather(
        _in_time(partial(_starts, db, tenant, [one for one in asked if one.endpoint_id and one.starts_until_ns])),
        asyncio.gather(
            *(_in_time(partial(_around, db, tenant, ones, since, until)) for (since, until), ones in by_window.items())
        ),
    )
    surroundings: dict[str, _Around | None] = {}
    for ones, found in zip(by_window.values(), around, strict=True):
        surroundings.update((one.job_id, found) for one in ones)
    return {one.job_id: _beside(one, of_boots, failed_starts, surroundings.get(one.job_id, _Around())) for one in asked}


@dataclass(frozen=True, slots=True)
class _Around:
    """An endpoint's requests in a window, by (endpoint, fingerprint) and by endpoint."""

    tallies: Mapping[tuple[str, str], tuple[Tally, ...]] = field(default_factory=dict)
    outcomes: Mapping[str, Sequence[tuple[str, int, str]]] = field(default_factory=dict)


def _beside(
    one: Asked,
    of_boots: Mapping[str, tuple[Record, ...] | None],
    starts: Mapping[str, Sequence[Start]] | None,
    around: _Around | None,
) -> Beside:
    runs = of_boots.get(one.job_id, ())
    gaps = [
        text
        for text, missing in (
            ("other requests on the worker", runs is None),
            ("failed starts of the endpoint", starts is None and one.starts_until_ns > 0),
            ("the endpoint's other requests", around is None),
        )
        if missing
    ]
    around = around or _Around()
    outcomes = around.outcomes.get(one.endpoint_id, ())
    return Beside(
        siblings=runs or (),
        starts=_in_window((starts or {}).get(one.endpoint_id, ()), one.starts_until_ns),
        tallies=around.tallies.get((one.endpoint_id, one.fingerprint), ()),
        where=one.where,
        outcomes=tuple(Outcome(job_id, at_ns, kind == one.fingerprint) for job_id, at_ns, kind in outcomes),
        gaps=tuple(gaps),
    )


def _in_window(starts: Sequence[Start], until_ns: int) -> tuple[Start, ...]:
    since_ns = until_ns - CRASH_WINDOW_SECONDS * SECOND_NS
    return tuple(start for start in starts if since_ns <= start.ended_ns <= until_ns)


def _window(one: Asked, now: datetime) -> tuple[datetime, datetime]:
    """The days around a request, in whole hours so that many share a question."""
    since = one.first_at.replace(minute=0, second=0, microsecond=0) - LOOKED_BACK
    until = one.last_at.replace(minute=0, second=0, microsecond=0) + LOOKED_ON + timedelta(hours=1)
    return since, min(until, now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1))


async def _in_time(ask: Callable[[], Awaitable[Result]]) -> Result | None:
    """The answer; None where the store cannot give it (in time): the verdict must not wait for it, nor fail.

    Asked for only here: a question made before, and cancelled before its turn came, would be one never awaited.
    """
    try:
        return await ask()
    except (StoreUnavailable, StoreRefused):
        return None


# Of the attributes what the rules read, and of a tail its end: the rest of some dozen runs is too much for one page.
_SIBLINGS = bounded_text(
    f"""
    SELECT {SPAN_COLUMNS.replace("attributes", _SHORT_ATTRIBUTES)}
    FROM spans
    WHERE tenant = {{tenant:String}} AND worker_id IN {{workers:Array(String)}} AND boot_id IN {{boots:Array(String)}}
      AND name IN {{names:Array(String)}} AND job_id != ''
    ORDER BY arrived_ms DESC
    LIMIT 1 BY worker_id, boot_id, span_id
    """,  # noqa: S608
    "worker_id, boot_id",
    "start_ns DESC, span_id",
)

_OUTCOMES = """
SELECT endpoint_id, job_id, first_ns, fingerprint
FROM job_times FINAL
WHERE tenant = {tenant:String} AND has({endpoints:Array(String)}, endpoint_id) AND (is_final OR fingerprint != '')
  AND first_ns >= {from_ns:Int64} AND first_ns <= {until_ns:Int64}
ORDER BY first_ns DESC, job_id
LIMIT {most:UInt32} BY endpoint_id
"""


async def _around(db: Database, tenant: str, asked: Sequence[Asked], since: datetime, until: datetime) -> _Around:
    kinds: dict[str, set[str]] = {}
    for one in asked:
        kinds.setdefault(one.endpoint_id, set()).add(one.fingerprint)
    parameters = {
        "tenant": tenant,
        "endpoints": sorted(kinds),
        "from_ns": ns_of(since),
        "until_ns": ns_of(until),
        "most": OUTCOMES_MAX,
    }
    fingerprints = sorted(set().union(*kinds.values()))
    rows, counted = await asyncio.gather(
        db.query(_OUTCOMES, parameters, seconds=SECONDS, max_rows=OUTCOMES_MAX * len(kinds)),
        tallies(db, tenant, sorted(kinds), fingerprints, since, until, seconds=SECONDS),
    )
    outcomes: dict[str, list[tuple[str, int, str]]] = {}
    for row in rows:
        told = (str(row["job_id"]), int(row["first_ns"]), str(row["fingerprint"]))
        outcomes.setdefault(str(row["endpoint_id"]), []).append(told)
    return _Around(
        {
            (endpoint, kind): tuple(tally for tally in counted[kind] if tally.where["endpoint"] == endpoint)
            for endpoint, found in kinds.items()
            for kind in found
        },
        outcomes,
    )


_STARTS = """
SELECT endpoint_id, worker_id, boot_id, ended_ns, ended_by
FROM (
    SELECT endpoint_id, worker_id, boot_id,
           countIf(startsWith(name, {boot:String})) AS told,
           countIf(name = {boot:String} AND status != 'error') AS reached,
           countIf(startsWith(name, {prestart:String})) AS prestarts,
           countIf(name = {boot:String} AND status = 'error') AS failed,
           maxIf(end_ns, ends) AS ended_ns, argMaxIf(span_id, end_ns, ends) AS ended_by
    FROM (
        SELECT endpoint_id, worker_id, boot_id, name, status, end_ns, span_id,
               name = {death:String} OR (name = {boot:String} AND status = 'error') AS ends
        FROM spans
        WHERE tenant = {tenant:String} AND has({endpoints:Array(String)}, endpoint_id) AND job_id = ''
          AND start_ns >= {from_ns:Int64} AND start_ns <= {until_ns:Int64} AND name IN {names:Array(String)}
    )
    GROUP BY endpoint_id, worker_id, boot_id
)
WHERE told > 0 AND ended_ns > 0 AND (failed > 0 OR (reached = 0 AND prestarts = 0))
ORDER BY ended_ns DESC, worker_id
LIMIT {most:UInt32} BY endpoint_id
"""


async def _starts(db: Database, tenant: str, asked: Sequence[Asked]) -> dict[str, list[Start]]:
    """Starts that failed, of these endpoints, by their end."""
    if not asked:
        return {}
    untils = [one.starts_until_ns for one in asked]
    endpoints = sorted({one.endpoint_id for one in asked})
    parameters = {
        "tenant": tenant,
        "endpoints": endpoints,
        "boot": SpanName.BOOT,
        "prestart": SpanName.PRESTART,
        "death": SpanName.DEATH,
        "names": [
            SpanName.DEATH,
            *(name + suffix for name in (SpanName.BOOT, SpanName.PRESTART) for suffix in ("", STARTED_SUFFIX)),
        ],
        "from_ns": within_int64(min(untils) - CRASH_WINDOW_SECONDS * SECOND_NS - BOOT_BEFORE_NS),
        "until_ns": within_int64(max(untils)),
        "most": STARTS_MAX,
    }
    rows = await db.query(_STARTS, parameters, seconds=SECONDS, max_rows=STARTS_MAX * len(endpoints))
    found: dict[str, list[Start]] = {}
    for row in reversed(rows):
        start = Start(str(row["worker_id"]), str(row["boot_id"]), int(row["ended_ns"]), str(row["ended_by"]))
        found.setdefault(str(row["endpoint_id"]), []).append(start)
    return found
