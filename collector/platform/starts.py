"""How long the platform's starts of workers take: remembered across restarts by what is stored."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Final

from collector.clickhouse import Database
from collector.diagnosis.records import SECOND_NS
from collector.errors import StallscopeError
from collector.platform.spans import Starts
from sdk_exporter.contract import Key, SpanName

log = logging.getLogger(__name__)

STARTS_KEPT: Final = 50
"""Newest starts of an endpoint from which its usual time is told."""
STARTS_TELL: Final = 5
"""Fewer starts than this are no habit."""
LOOKED_BACK_SECONDS: Final = 7 * 86_400

_STARTS: Final = """
SELECT endpoint_id, groupArray({kept:UInt32})(seconds) AS starts
FROM (
    SELECT endpoint_id, JSONExtractFloat(attributes, {key:String}) AS seconds
    FROM spans
    WHERE tenant = {tenant:String} AND job_id = '' AND name = {name:String} AND start_ns >= {since_ns:Int64}
      AND endpoint_id IN {endpoints:Array(String)} AND JSONHas(attributes, {key:String})
    ORDER BY start_ns DESC
    LIMIT 1 BY span_id
)
GROUP BY endpoint_id
"""


async def stored_starts(db: Database, tenant: str, endpoints: Sequence[str]) -> dict[str, list[float]]:
    """Seconds of the newest stored starts of these endpoints, oldest first. None of them where the store is away."""
    if not endpoints:
        return {}
    parameters = {
        "tenant": tenant,
        "name": SpanName.PLATFORM_WORKER,
        "key": Key.PLATFORM_START_SECONDS,
        "since_ns": time.time_ns() - LOOKED_BACK_SECONDS * SECOND_NS,
        "endpoints": list(endpoints),
        "kept": STARTS_KEPT,
    }
    try:
        rows = await db.query(_STARTS, parameters, max_rows=len(endpoints))
    except StallscopeError as error:
        log.warning("how long starts took before is not known: %s", error)
        return {}
    return {str(row["endpoint_id"]): [float(seconds) for seconds in reversed(row["starts"])] for row in rows}


def usual(starts: Iterable[float]) -> Starts | None:
    """What is usual; None where too few were seen."""
    seconds = sorted(starts)
    if len(seconds) < STARTS_TELL:
        return None
    return Starts(len(seconds), round(seconds[min(round(0.95 * len(seconds)), len(seconds) - 1)], 1))
