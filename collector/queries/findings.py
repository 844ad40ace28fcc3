"""Findings about a worker rather than one request. So far: its stop channel, from the reports that it sends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from collector.clickhouse import Database
from collector.diagnosis.answer import EvidenceItem
from collector.queries import cursor as cursors
from collector.queries.pages import LIMIT_DEFAULT, Page, checked_limit, next_cursor_of
from collector.queries.stored import ms_of, time_of_ns
from sdk_exporter.contract import ChannelState, Key, SpanName

DEAD_SECONDS: Final = 30.0
DEAD_POLLS: Final = 3

_CODES: Final = {
    ChannelState.FAILING.value: "stop_channel_dead",
    ChannelState.DISABLED.value: "stop_channel_disabled",
    ChannelState.VIOLATING.value: "stop_channel_violating",
    ChannelState.SPINNING.value: "stop_channel_spinning",
}
_SENTENCES: Final = {
    "stop_channel_dead": "The stop channel of worker {worker} gave no valid answer{age}: a stop sent to it is lost.",
    "stop_channel_disabled": "Worker {worker} does not poll its stop channel: a stop sent to it is lost.",
    "stop_channel_violating": "The stop channel of worker {worker} answers in a shape that no stop can be read from"
    "{violation}.",
    "stop_channel_spinning": "Worker {worker} polls its stop channel{rate} without holding the line.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a worker, host or endpoint. `resolved_at` is None while it is open."""

    key: str
    code: str
    severity: Literal["error", "warning"]
    state: Literal["open", "acknowledged", "resolved"]
    endpoint_id: str | None
    worker_ids: tuple[str, ...]
    job_ids: tuple[str, ...]  # in hand at the newest heartbeat
    opened_at: datetime
    updated_at: datetime
    resolved_at: datetime | None
    sentence: str
    evidence: tuple[EvidenceItem, ...]


# Per boot: the times at which the state of its channel changed, the newest report that is not ok, and whether it lives.
_CHANNELS = """
SELECT worker_id, boot_id, argMax(endpoint_id, end_ns) AS endpoint,
       arrayCompact(change -> change.2, arraySort(groupArrayIf((end_ns, channel), name = {channel_name:String})))
           AS changes,
       maxIf(end_ns, name = {channel_name:String}) AS newest_ns,
       argMaxIf(span_id, end_ns, bad) AS bad_span_id, maxIf(end_ns, bad) AS bad_ns,
       argMaxIf(JSONExtract(attributes, {age_key:String}, 'Nullable(Float64)'), end_ns, bad) AS age,
       argMaxIf(JSONExtract(attributes, {failures_key:String}, 'Nullable(Int64)'), end_ns, bad) AS failures,
       argMaxIf(JSONExtractString(attributes, {violation_key:String}), end_ns, bad) AS violation,
       argMaxIf(JSONExtract(attributes, {rate_key:String}, 'Nullable(Float64)'), end_ns, bad) AS rate,
       argMaxIf(JSONExtract(attributes, {jobs_key:String}, 'Array(String)'), end_ns, name = {heartbeat:String}) AS jobs,
       maxIf(end_ns, name = {death:String}) AS death_ns
FROM (
    SELECT worker_id, boot_id, endpoint_id, end_ns, span_id, name, attributes,
           JSONExtractString(attributes, {state_key:String}) AS channel,
           name = {channel_name:String} AND channel NOT IN ('', 'ok') AS bad
    FROM spans
    WHERE tenant = {tenant:String} AND arrived_ms >= {since_ms:Int64} AND worker_id != ''
      AND name IN ({channel_name:String}, {heartbeat:String}, {death:String})
)
GROUP BY worker_id, boot_id
HAVING bad_ns > 0 AND (bad_ns, concat(worker_id, '/', boot_id)) < ({before_ns:Int64}, {before_id:String})
ORDER BY bad_ns DESC, concat(worker_id, '/', boot_id) DESC
LIMIT {limit:UInt32}
"""


async def stop_channel_findings(
    db: Database, tenant: str, since: datetime, *, cursor: str | None = None, limit: int = LIMIT_DEFAULT
) -> Page[Finding]:
    """Stop channels that failed since then, the one that failed last first. A page can be shorter than `limit`."""
    before = cursors.read(cursor)
    parameters = {
        "tenant": tenant,
        "since_ms": ms_of(since),
        "channel_name": SpanName.STOP_CHANNEL,
        "heartbeat": SpanName.HEARTBEAT,
        "death": SpanName.DEATH,
        "state_key": Key.CHANNEL_STATE,
        "age_key": Key.CHANNEL_LAST_OK_AGE_SECONDS,
        "failures_key": Key.CHANNEL_CONSECUTIVE_FAILURES,
        "violation_key": Key.CHANNEL_VIOLATION,
        "rate_key": Key.CHANNEL_RATE_PER_SECOND,
        "jobs_key": Key.HEARTBEAT_JOBS,
        "before_ns": before.first_ns,
        "before_id": before.job_id,
        "limit": checked_limit(limit) + 1,
    }
    rows = await db.query(_CHANNELS, parameters, max_rows=limit + 1)
    found = [finding for row in rows[:limit] if (finding := _finding(row))]
    following = next_cursor_of(rows, limit, lambda row: (int(row["bad_ns"]), f"{row['worker_id']}/{row['boot_id']}"))
    return Page(found, following)


def _finding(row: dict[str, Any]) -> Finding | None:
    opened_ns, resolved_ns, state = _streak([(int(at), str(state)) for at, state in row["changes"]])
    code = _CODES.get(state)
    if code is None or (code == "stop_channel_dead" and not _long_enough(row, opened_ns)):
        return None
    if resolved_ns is None and int(row["death_ns"]) > 0:
        resolved_ns = int(row["death_ns"])  # nobody is there any more whom a stop could fail to reach
    worker = str(row["worker_id"])
    sentence = _sentence(code, worker, row)
    return Finding(
        key=f"{code}:{worker}:{row['boot_id']}:{opened_ns}",
        code=code,
        severity="warning" if code == "stop_channel_spinning" else "error",
        state="open" if resolved_ns is None else "resolved",
        endpoint_id=str(row["endpoint"]) or None,
        worker_ids=(worker,),
        job_ids=tuple(str(job) for job in row["jobs"]),
        opened_at=time_of_ns(opened_ns),
        updated_at=time_of_ns(max(int(row["newest_ns"]), resolved_ns or 0)),
        resolved_at=None if resolved_ns is None else time_of_ns(resolved_ns),
        sentence=sentence,
        evidence=(
            EvidenceItem(
                source="worker",
                what="event",
                text=f"{SpanName.STOP_CHANNEL}: {state}",
                at=time_of_ns(int(row["bad_ns"])),
                span_id=str(row["bad_span_id"]),
            ),
        ),
    )


def _streak(changes: list[tuple[int, str]]) -> tuple[int, int | None, str]:
    """Of the newest stretch that was not ok: when it began, when an ok ended it (None: not yet), its last state."""
    opened, resolved, state = 0, None, ""
    for at, told in changes:
        if told == ChannelState.OK:
            resolved = resolved or (at if opened else None)
        elif told:
            opened, resolved = (at, None) if resolved or not opened else (opened, None)
            state = told
    return opened, resolved, state


def _long_enough(row: dict[str, Any], opened_ns: int) -> bool:
    """30 s and 3 polls without a valid answer. A channel that never had one has no age: its reports tell how long."""
    lasted = (int(row["bad_ns"]) - opened_ns) / 1e9
    age = lasted if row["age"] is None else max(float(row["age"]), lasted)
    failures = row["failures"]
    return age >= DEAD_SECONDS and (failures is None or int(failures) >= DEAD_POLLS)


def _sentence(code: str, worker: str, row: dict[str, Any]) -> str:
    return _SENTENCES[code].format(
        worker=worker,
        age=f" for {float(row['age']):.0f} s" if row["age"] is not None else "",
        violation=f" ({row['violation']})" if row["violation"] else "",
        rate=f" {float(row['rate']):.0f} times a second" if row["rate"] is not None else "",
    )
