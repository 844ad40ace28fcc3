"""Which alerts are one incident: people are told of an incident once, however many rules and endpoints show it. Pure.

A storm: several endpoints fall under the same rule within minutes. It is an alert of its own, whose size is their
number, and takes the place of theirs. The same failure: alerts of several rules about the same verdict on the same
endpoint (a new group, its share of all requests); the first that was told stands for the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from collector.queries.stored import ms_of, time_of_ms
from collector.watch.ledger import Condition, FindingRow

STORM_ENDPOINTS: Final = 3
"""So many endpoints at once are one storm."""
STORM_MS: Final = 900_000
"""At once: within so long of the first. What comes later is told by itself."""
NAMED: Final = 5
_STORM: Final = "storm@"


def is_storm(row: FindingRow) -> bool:
    """Whether this alert stands for those of several endpoints."""
    return row.subject.startswith(_STORM) and not row.endpoint_id


def storm_of(row: FindingRow, rows: Iterable[FindingRow]) -> FindingRow | None:
    """The storm among `rows` that this alert belongs to."""
    if is_storm(row) or not row.endpoint_id:
        return None
    return next((one for one in rows if is_storm(one) and _belongs(row, one)), None)


def _belongs(row: FindingRow, storm: FindingRow) -> bool:
    return (row.tenant, row.rule) == (storm.tenant, storm.rule) and 0 <= row.opened_ms - storm.opened_ms <= STORM_MS


def storms(alerts: Collection[FindingRow], now: datetime) -> list[Condition]:
    """Storms that go on, and those that begin now. `alerts`: all that are open, storms too."""
    by_rule: dict[tuple[str, str], list[FindingRow]] = defaultdict(list)
    known: dict[tuple[str, str], list[FindingRow]] = defaultdict(list)
    for row in sorted(alerts, key=lambda row: (row.opened_ms, row.key)):
        if row.state == "open":
            (known if is_storm(row) else by_rule)[row.tenant, row.rule].append(row)
    found = []
    for place, rows in by_rule.items():
        free = [row for row in rows if row.endpoint_id and not any(_belongs(row, storm) for storm in known[place])]
        for storm in known[place]:
            members = [row for row in rows if row.endpoint_id and _belongs(row, storm)]
            if members:
                found.append(_condition(members, storm.opened_ms))
        if members := _together(free, ms_of(now)):
            found.append(_condition(members, members[0].opened_ms))
    return found


def _together(rows: Sequence[FindingRow], now_ms: int) -> list[FindingRow]:
    """The first run of alerts, oldest first, that makes a storm and is fresh."""
    for first in rows:
        members = [row for row in rows if 0 <= row.opened_ms - first.opened_ms <= STORM_MS]
        endpoints = {row.endpoint_id for row in members}
        if len(endpoints) >= STORM_ENDPOINTS and now_ms - members[-1].opened_ms <= STORM_MS:
            return members
    return []


def _condition(members: Sequence[FindingRow], opened_ms: int) -> Condition:
    first, since = members[0], time_of_ms(opened_ms)
    endpoints = list(dict.fromkeys(row.endpoint_id for row in members))
    more = f" and {len(endpoints) - NAMED} more" if len(endpoints) > NAMED else ""
    return Condition(
        tenant=first.tenant,
        code=first.code,
        subject=f"{_STORM}{since:%Y-%m-%dT%H:%M:%S}Z",
        severity=first.severity,  # type: ignore[arg-type]  # written by the ledger from a Severity
        since=since,
        sentence=f"{first.rule} on {len(endpoints)} endpoints since {since:%H:%M}:"
        f" {', '.join(endpoints[:NAMED])}{more}. The first of them: {first.sentence}",
        worker_ids=tuple(worker for row in members for worker in row.worker_ids),
        job_ids=tuple(job for row in members for job in row.job_ids),
        size=len(endpoints),
        rule=first.rule,
    )


def is_same_failure(row: FindingRow, other: FindingRow) -> bool:
    """Whether two alerts tell of the same verdict on the same endpoint."""
    if not row.endpoint_id or (row.rule, row.key) == (other.rule, other.key):
        return False
    return (row.tenant, row.endpoint_id, row.code) == (other.tenant, other.endpoint_id, other.code)


def stands_for(told: FindingRow, row: FindingRow) -> bool:
    """Whether who heard of `told` need not hear of `row`: the same failure, and not the first that is critical."""
    return is_same_failure(told, row) and (row.severity != "critical" or told.severity == "critical")
