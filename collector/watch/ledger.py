"""Findings and alerts as stored: opened once, updated, resolved; what comes back is the next occurrence.

Several collectors may keep one ledger. What a round writes follows from what is stored and what is seen, never from
who looks: two collectors that see the same write the same occurrence and revision, which the store keeps once.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from collector.clickhouse import Database
from collector.diagnosis.answer import EvidenceItem
from collector.errors import NotFound
from collector.json_forms import json_bytes, object_json
from collector.queries import cursor as cursors
from collector.queries.pages import LIMIT_DEFAULT, Page, checked_limit, next_cursor_of
from collector.queries.stored import ms_of, time_of_ms

Severity = Literal["critical", "error", "warning", "info"]
FindingState = Literal["open", "acknowledged", "resolved"]
LISTED: Final = 200
"""Most worker and job ids in one finding; the sentence has the true number."""
OPEN_MAX: Final = 10_000
REFRESH_MS: Final = 3_600_000
"""An open finding is written again so often, so that retention, which counts from the last write, spares it."""
_EVIDENCE: Final = TypeAdapter(tuple[EvidenceItem, ...])

Identity = tuple[str, str, str]  # tenant, rule, key


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is so now. `rule`: empty for a finding, else the rule whose alert it is.

    `size`: how many workers or requests it is about; an alert is told again when that grows tenfold.
    """

    tenant: str
    code: str
    subject: str
    severity: Severity
    since: datetime
    sentence: str
    endpoint_id: str = ""
    worker_ids: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    evidence: tuple[EvidenceItem, ...] = ()
    size: int = 1
    rule: str = ""

    @property
    def identity(self) -> Identity:
        """Stable over restarts and collectors."""
        return self.tenant, self.rule, f"{self.rule or self.code}:{self.subject}"


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One occurrence (table `findings`; field order is column order). `resolved_ms` is 0 while it is open."""

    tenant: str
    rule: str
    key: str
    occurrence: int
    version: int  # nanoseconds of the watcher's clock; the highest wins
    revision: int
    code: str
    subject: str
    severity: str
    state: str  # open | resolved
    endpoint_id: str
    worker_ids: list[str]
    job_ids: list[str]
    size: int
    opened_ms: int
    updated_ms: int
    resolved_ms: int
    sentence: str
    evidence: str

    @property
    def identity(self) -> Identity:
        """The same as its condition's."""
        return self.tenant, self.rule, self.key


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One thing that it has said (table `finding_history`)."""

    tenant: str
    rule: str
    key: str
    occurrence: int
    revision: int
    version: int
    at_ms: int
    state: str
    severity: str
    size: int
    sentence: str


@dataclass(frozen=True, slots=True)
class ActionRow:
    """What somebody did about it (table `finding_actions`). `until_ms` 0: until it resolves."""

    tenant: str
    rule: str
    key: str
    occurrence: int
    at_ms: int
    action: str  # acknowledge | snooze | reopen
    until_ms: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a worker, host or endpoint, as the API tells it. `resolved_at` is None while it is open."""

    key: str
    code: str
    severity: Severity
    state: FindingState
    endpoint_id: str | None
    worker_ids: tuple[str, ...]
    job_ids: tuple[str, ...]
    opened_at: datetime
    updated_at: datetime
    resolved_at: datetime | None
    sentence: str
    evidence: tuple[EvidenceItem, ...]


# ---------------------------------------------------------------------------------------------------- open and close


def changes(
    stored: Mapping[Identity, FindingRow],
    seen: Iterable[Condition],
    now: datetime,
    *,
    holding: Collection[str] = (),
    judged: Collection[str] | None = None,
) -> list[FindingRow]:
    """Rows to write. `stored`: the newest occurrence of each.

    `holding`: tenants of which nothing is resolved now, since silence may be ours. `judged`: the rules (and "" for
    findings) that were worked out; of the others nothing is known, so nothing is resolved.
    """
    now_ms = ms_of(now)
    rows, present = [], set()
    for condition in seen:
        if condition.identity in present:
            continue
        present.add(condition.identity)
        previous = stored.get(condition.identity)
        row = _written(condition, previous, now_ms)
        if previous is None or _news(previous, row):
            rows.append(row)
    for identity, previous in stored.items():
        is_judged = judged is None or previous.rule in judged
        if identity not in present and previous.state == "open" and is_judged and previous.tenant not in holding:
            rows.append(_resolved(previous, now_ms))
    return rows


def _written(condition: Condition, previous: FindingRow | None, now_ms: int) -> FindingRow:
    tenant, rule, key = condition.identity
    goes_on = previous if previous is not None and previous.state == "open" else None
    since_ms = min(ms_of(condition.since), now_ms)  # a worker's clock may be ahead: nothing opens in the future
    earlier = goes_on.opened_ms if goes_on else previous.resolved_ms if previous else 0
    return FindingRow(
        tenant=tenant,
        rule=rule,
        key=key,
        occurrence=goes_on.occurrence if goes_on else (previous.occurrence if previous else 0) + 1,
        version=now_ms * 1_000_000,
        revision=(previous.revision if goes_on and previous else 0) + 1,
        code=condition.code,
        subject=condition.subject,
        severity=condition.severity,
        state="open",
        endpoint_id=condition.endpoint_id,
        worker_ids=sorted(set(condition.worker_ids))[:LISTED],
        job_ids=sorted(set(condition.job_ids))[:LISTED],
        size=condition.size,
        opened_ms=goes_on.opened_ms if goes_on else max(since_ms, earlier),
        updated_ms=now_ms,
        resolved_ms=0,
        sentence=condition.sentence,
        evidence=json_bytes([object_json(item) for item in condition.evidence]).decode(),
    )


def _news(previous: FindingRow, row: FindingRow) -> bool:
    """Whether a reader would learn anything. Evidence alone is none: each round quotes a newer report."""
    same = (previous.state, previous.occurrence, previous.severity, previous.sentence, previous.size) == (
        row.state,
        row.occurrence,
        row.severity,
        row.sentence,
        row.size,
    )
    same = same and (previous.worker_ids, previous.job_ids) == (row.worker_ids, row.job_ids)
    return not same or row.updated_ms - previous.updated_ms >= REFRESH_MS


def _resolved(previous: FindingRow, now_ms: int) -> FindingRow:
    return replace(
        previous,
        state="resolved",
        version=max(now_ms * 1_000_000, previous.version + 1),
        revision=previous.revision + 1,
        updated_ms=now_ms,
        resolved_ms=now_ms,
    )


def merged(stored: Mapping[Identity, FindingRow], rows: Iterable[FindingRow]) -> dict[Identity, FindingRow]:
    """What is stored once `rows` are written."""
    return {**stored, **{row.identity: row for row in rows}}


# ------------------------------------------------------------------------------------------------------- the store

_COLUMNS: Final = ", ".join(FindingRow.__dataclass_fields__)

_NEWEST = f"""
SELECT {_COLUMNS}
FROM findings FINAL
WHERE (rule = '') = {{findings:Bool}} AND (state = 'open' OR key IN {{keys:Array(String)}})
ORDER BY occurrence DESC
LIMIT 1 BY tenant, rule, key
"""  # noqa: S608  what is put in is our own list of columns


async def newest(db: Database, keys: Sequence[str], *, findings: bool) -> dict[Identity, FindingRow]:
    """The newest occurrence of every one that is open or has one of these keys; findings, or else alerts."""
    rows = await db.query(_NEWEST, {"keys": list(keys), "findings": findings}, max_rows=2 * OPEN_MAX)
    found = [FindingRow(**row) for row in rows]
    return {row.identity: row for row in found}


async def write(db: Database, rows: Sequence[FindingRow]) -> None:
    """Store rows and what they say. The history first: after a kill in between, the next round makes it again."""
    history = [
        HistoryRow(
            tenant=row.tenant,
            rule=row.rule,
            key=row.key,
            occurrence=row.occurrence,
            revision=row.revision,
            version=row.version,
            at_ms=row.updated_ms,
            state=row.state,
            severity=row.severity,
            size=row.size,
            sentence=row.sentence,
        )
        for row in rows
    ]
    await db.insert("finding_history", history, token=uuid.uuid4().hex)
    await db.insert("findings", rows, token=uuid.uuid4().hex)


_ACTIONS = """
SELECT rule, key, occurrence, argMax(action, at_ms) AS done, argMax(until_ms, at_ms) AS until
FROM finding_actions
WHERE tenant = {tenant:String} AND key IN {keys:Array(String)}
GROUP BY rule, key, occurrence
"""


async def quieted(db: Database, rows: Sequence[FindingRow], now: datetime) -> dict[tuple[Identity, int], str]:
    """Which of these occurrences somebody acknowledged or snoozed, and the word for it."""
    now_ms, found = ms_of(now), {}
    for tenant in sorted({row.tenant for row in rows}):
        keys = sorted({row.key for row in rows if row.tenant == tenant})
        for one in await db.query(_ACTIONS, {"tenant": tenant, "keys": keys}):
            over = 0 < int(one["until"]) <= now_ms
            if one["done"] in ("acknowledge", "snooze") and not over:
                found[((tenant, str(one["rule"]), str(one["key"])), int(one["occurrence"]))] = str(one["done"])
    return found


_LIST = f"""
SELECT {_COLUMNS}
FROM findings FINAL
WHERE tenant = {{tenant:String}} AND (rule = '') = {{findings:Bool}}
  AND (state = 'open' OR updated_ms >= {{since_ms:Int64}})
  AND ({{state:String}} = '' OR state = {{state:String}})
  AND ({{code:String}} = '' OR code = {{code:String}})
  AND ({{endpoint:String}} = '' OR endpoint_id = {{endpoint:String}})
  AND (opened_ms, concat(rule, '/', key, ':', toString(occurrence))) < ({{before_ms:Int64}}, {{before_id:String}})
ORDER BY opened_ms DESC, concat(rule, '/', key, ':', toString(occurrence)) DESC
LIMIT {{limit:UInt32}}
"""  # noqa: S608  what is put in is our own list of columns


async def rows_of(
    db: Database,
    tenant: str,
    since: datetime,
    *,
    findings: bool,
    state: str = "",
    code: str = "",
    endpoint: str = "",
    cursor: str | None = None,
    limit: int = LIMIT_DEFAULT,
) -> tuple[list[FindingRow], str | None]:
    """Open ones, and those that changed since then; the one opened last first. With the cursor of the next page."""
    before = cursors.read(cursor)
    parameters = {
        "tenant": tenant,
        "findings": findings,
        "since_ms": ms_of(since),
        "state": state,
        "code": code,
        "endpoint": endpoint,
        "before_ms": before.first_ns,
        "before_id": before.job_id,
        "limit": checked_limit(limit) + 1,
    }
    found = [FindingRow(**row) for row in await db.query(_LIST, parameters, max_rows=limit + 1)]
    places = [{"row": row} for row in found]
    following = next_cursor_of(places, limit, lambda one: _place(one["row"]))
    return found[:limit], following


def _place(row: FindingRow) -> tuple[int, str]:
    return row.opened_ms, f"{row.rule}/{row.key}:{row.occurrence}"


async def list_findings(db: Database, tenant: str, since: datetime, now: datetime, **narrowed: Any) -> Page[Finding]:
    """Findings as the API tells them; `narrowed`: state, code, endpoint, cursor, limit of `rows_of`."""
    rows, following = await rows_of(db, tenant, since, findings=True, **narrowed)
    quiet = await quieted(db, rows, now)
    return Page([finding_of(row, quiet) for row in rows], following)


def finding_of(row: FindingRow, quiet: Mapping[tuple[Identity, int], str]) -> Finding:
    """The stored row as the API tells it."""
    state: FindingState = "resolved" if row.state == "resolved" else "open"
    if state == "open" and (row.identity, row.occurrence) in quiet:
        state = "acknowledged"
    return Finding(
        key=exposed_key(row),
        code=row.code,
        severity=row.severity,  # type: ignore[arg-type]  # written by `changes` from a Severity
        state=state,
        endpoint_id=row.endpoint_id or None,
        worker_ids=tuple(row.worker_ids),
        job_ids=tuple(row.job_ids),
        opened_at=time_of_ms(row.opened_ms),
        updated_at=time_of_ms(row.updated_ms),
        resolved_at=time_of_ms(row.resolved_ms) if row.resolved_ms else None,
        sentence=row.sentence,
        evidence=_EVIDENCE.validate_json(row.evidence or "[]"),
    )


def exposed_key(row: FindingRow) -> str:
    """One occurrence's key outside: `code:subject:occurrence`, of an alert `rule:subject:occurrence`."""
    return f"{row.key}:{row.occurrence}"


_ONE = f"""
SELECT {_COLUMNS} FROM findings FINAL
WHERE tenant = {{tenant:String}} AND key = {{key:String}} AND occurrence = {{occurrence:UInt32}}
"""  # noqa: S608  what is put in is our own list of columns


async def act(db: Database, tenant: str, key: str, action: str, now: datetime, *, until: datetime | None) -> Finding:
    """Acknowledge, snooze or reopen one occurrence. Raises NotFound where there is none by this key."""
    stem, _, number = key.rpartition(":")
    occurrence = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
    found = await db.query(_ONE, {"tenant": tenant, "key": stem, "occurrence": occurrence})
    if not found:
        raise NotFound("no finding or alert by this key")
    row = FindingRow(**found[0])
    until_ms = ms_of(until) if until else 0
    done = ActionRow(tenant, row.rule, row.key, row.occurrence, ms_of(now), action, until_ms)
    await db.insert("finding_actions", [done], token=uuid.uuid4().hex)
    return finding_of(row, await quieted(db, [row], now))


def condition_of(row: FindingRow) -> Condition:
    """The condition of a stored row that still holds."""
    return Condition(
        tenant=row.tenant,
        code=row.code,
        subject=row.subject,
        severity=row.severity,  # type: ignore[arg-type]  # written by `changes` from a Severity
        since=time_of_ms(row.opened_ms),
        sentence=row.sentence,
        endpoint_id=row.endpoint_id,
        worker_ids=tuple(row.worker_ids),
        job_ids=tuple(row.job_ids),
        evidence=_EVIDENCE.validate_json(row.evidence or "[]"),
        size=row.size,
        rule=row.rule,
    )
