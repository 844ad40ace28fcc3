"""Requests counted by what they ran on, and over time: what says where a failure is more frequent, and since when."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from collector.clickhouse import Database
from collector.diagnosis.standing_out import DIMENSIONS, Stretch, Tally
from collector.queries.stored import ns_of

TALLIES_MAX: Final = 5_000
"""Combinations of endpoint, host, GPU and so on that are read, those with failures first. What is left out makes the
rate elsewhere look higher than it is, so that less stands out, never more."""
HOUR_NS: Final = 3_600_000_000_000

_DIMENSIONS: Final = ", ".join("endpoint_id AS endpoint" if name == "endpoint" else name for name in DIMENSIONS)

_TALLIES = f"""
SELECT {_DIMENSIONS}, if(has({{fingerprints:Array(String)}}, fingerprint), fingerprint, '') AS kind,
       count() AS requests, min(first_ns) AS since_ns
FROM job_times FINAL
WHERE tenant = {{tenant:String}} AND first_ns >= {{from_ns:Int64}} AND first_ns <= {{until_ns:Int64}}
  AND has({{endpoints:Array(String)}}, endpoint_id) AND (is_final OR fingerprint != '')
GROUP BY {", ".join(DIMENSIONS)}, kind
ORDER BY kind = '', requests DESC, {", ".join(DIMENSIONS)}
LIMIT {{most:UInt32}}
"""  # noqa: S608  what is put in are our own names of columns


async def tallies(
    db: Database,
    tenant: str,
    endpoints: Collection[str],
    fingerprints: Collection[str],
    since: datetime,
    until: datetime,
    *,
    seconds: float | None = None,
) -> dict[str, tuple[Tally, ...]]:
    """For each of these failures, the requests of these endpoints that began in the time given and came to an end."""
    parameters = {
        "tenant": tenant,
        "endpoints": list(endpoints),
        "fingerprints": list(fingerprints),
        "from_ns": ns_of(since),
        "until_ns": ns_of(until),
        "most": TALLIES_MAX,
    }
    rows = await db.query(_TALLIES, parameters, seconds=seconds, max_rows=TALLIES_MAX)
    by_place: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        by_place.setdefault(tuple(str(row[name]) for name in DIMENSIONS), []).append(row)
    return {
        fingerprint: tuple(_tally(place, found, fingerprint) for place, found in by_place.items())
        for fingerprint in fingerprints
    }


def _tally(place: Sequence[str], rows: Sequence[dict[str, Any]], fingerprint: str) -> Tally:
    return Tally(
        where=dict(zip(DIMENSIONS, place, strict=True)),
        failed=sum(int(row["requests"]) for row in rows if row["kind"] == fingerprint),
        total=sum(int(row["requests"]) for row in rows),
        first_ns=min(int(row["since_ns"]) for row in rows),
    )


_STRETCHES = """
SELECT countIf(fingerprint = {fingerprint:String}) AS failed, count() AS requests,
       minIf(first_ns, fingerprint = {fingerprint:String}) AS first_failed_ns,
       maxIf(first_ns, fingerprint = {fingerprint:String}) AS last_failed_ns
FROM job_times FINAL
WHERE tenant = {tenant:String} AND first_ns >= {from_ns:Int64} AND first_ns <= {until_ns:Int64}
  AND has({endpoints:Array(String)}, endpoint_id) AND (is_final OR fingerprint != '')
GROUP BY intDiv(first_ns, {hour_ns:Int64}) AS hour
ORDER BY hour
LIMIT {most:UInt32}
"""


async def stretches(
    db: Database, tenant: str, endpoints: Collection[str], fingerprint: str, since: datetime, until: datetime
) -> tuple[Stretch, ...]:
    """The same requests by the hour, oldest first; hours without any are left out."""
    hours = int((until - since).total_seconds()) // 3600 + 2
    parameters = {
        "tenant": tenant,
        "endpoints": list(endpoints),
        "fingerprint": fingerprint,
        "from_ns": ns_of(since),
        "until_ns": ns_of(until),
        "hour_ns": HOUR_NS,
        "most": hours,
    }
    rows = await db.query(_STRETCHES, parameters, max_rows=hours)
    return tuple(
        Stretch(int(row["failed"]), int(row["requests"]), int(row["first_failed_ns"]), int(row["last_failed_ns"]))
        for row in rows
    )
