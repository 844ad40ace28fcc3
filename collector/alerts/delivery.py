"""Who is told what, once: what is due → claimed by one collector → told → recorded.

The store has no locks. A claim is a row with the store's own time; after a moment all claims are read again and the
earliest one has it. A collector that is killed between its claim and its word is overtaken after a minute, and the
receiver can tell a word given twice by its id.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import httpx
from pydantic import TypeAdapter

from collector.alerts.incidents import STORM_MS, is_storm, stands_for, storm_of
from collector.alerts.notices import (
    Channel,
    DeliveryFailed,
    Notice,
    NoticeKind,
    alerts_url,
    dedup_key,
    flat,
    notice_id,
    runbook_address,
)
from collector.alerts.rules import RuleSet
from collector.clickhouse import Database
from collector.diagnosis.answer import EvidenceItem
from collector.queries.stored import ms_of, time_of_ms
from collector.watch.ledger import FindingRow, Identity, exposed_key, quieted

SETTLE_SECONDS: Final = 0.5
"""How long after a claim the others are looked for: longer than a claim takes from the store's clock to its table."""
CLAIM_MS: Final = 60_000
TELL_FOR_MS: Final = 86_400_000
"""A recovery that could not be told for a day is not told any more."""
RETRY_MS: Final = (10_000, 20_000, 40_000, 80_000, 160_000, 300_000)
REFUSED_TRIES: Final = 3
"""An answer that says "wrong" is believed after so many times."""
SPREAD: Final = 10
"""An alert that has grown so many times since it was last told is told again."""
GATHER: Final = timedelta(seconds=30)
"""How long an opening waits, where another of its rule was told lately, to see whether the two begin a storm."""
RATE_PER_10_MINUTES: Final = 30
"""Most openings told to one channel in ten minutes; further ones wait. Recoveries are told always."""
RATE_WINDOW_MS: Final = 600_000
AT_ONCE: Final = 4
_EVIDENCE: Final = TypeAdapter(tuple[EvidenceItem, ...])


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One step (table `deliveries`, whose `stored_ns` the store fills in)."""

    tenant: str
    rule: str
    key: str
    occurrence: int
    kind: str
    channel: str
    state: str  # claimed | sent | failed | refused
    at_ms: int
    collector: str
    size: int
    detail: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One step as the API tells it."""

    channel: str
    kind: str
    state: str
    at: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class _Step:
    kind: str
    channel: str
    state: str
    at_ms: int
    stored_ns: int
    collector: str
    size: int


@dataclass(frozen=True, slots=True)
class _Due:
    row: FindingRow
    kind: NoticeKind
    channel: str
    size: int
    is_repeat: bool = False


Occurrence = tuple[Identity, int]


@dataclass(frozen=True, slots=True)
class _Told:
    """What one channel was told of these alerts."""

    channel: str
    rows: Sequence[FindingRow]
    steps: Mapping[Occurrence, Sequence[_Step]]

    def steps_of(self, row: FindingRow) -> list[_Step]:
        return [step for step in self.steps.get(_of(row), ()) if step.channel == self.channel]

    def was_told(self, row: FindingRow) -> bool:
        """Whether people know of it: told itself, with its recovery still to come, or by its storm."""
        sent = {step.kind for step in self.steps_of(row) if step.state == "sent"}
        if sent & {"open", "spread"} and "resolved" not in sent:
            return True
        storm = storm_of(row, self.rows)
        return storm is not None and self.was_told(storm)

    def stands_for(self, row: FindingRow) -> FindingRow | None:
        """Another alert of the same failure that was told."""
        return next((one for one in self.rows if stands_for(one, row) and self.was_told(one)), None)

    def is_needed(self, row: FindingRow) -> bool:
        """Whether this alert, which is over, stands for one that is not: its recovery would not be the end."""
        return any(
            one.state == "open" and stands_for(row, one) and not self.steps_of(one) and not storm_of(one, self.rows)
            for one in self.rows
        )

    def another_lately(self, row: FindingRow) -> bool:
        """Whether another endpoint's alert of the same rule began within the time of a storm and was told."""
        return any(
            (one.tenant, one.rule) == (row.tenant, row.rule)
            and one.endpoint_id != row.endpoint_id
            and abs(one.opened_ms - row.opened_ms) <= STORM_MS
            and self.was_told(one)
            for one in self.rows
        )


@dataclass(slots=True)
class Postman:
    """Delivers for one collector."""

    collector: str
    channels: Mapping[str, Channel]
    rules: RuleSet
    public_url: str = ""
    runbook_url: str = ""
    settle_seconds: float = SETTLE_SECONDS
    count: Callable[[str, str], None] = lambda channel, result: None
    """Told of each try: the channel, and sent, failed or refused."""
    _first_seen: dict[Occurrence, datetime] = field(default_factory=dict)

    async def round(self, db: Database, alerts: Sequence[FindingRow], now: datetime) -> int:
        """Tell what is due about these alerts. Returns how many words were given, failed ones not counted."""
        if not self.channels or not alerts:
            return 0
        now_ms = ms_of(now)
        due = await self._all_due(db, alerts, now)
        if not due:
            return 0
        await self._record(db, [self._step(one, "claimed", now_ms, "") for one in due])
        await asyncio.sleep(self.settle_seconds)
        steps = await _steps_of(db, [one.row for one in due])
        mine = [one for one in due if self._has_claim(one, steps.get(_of(one.row), []), now_ms)]
        return await self._tell(db, mine, now)

    # ------------------------------------------------------------------------------------------------------ what is due

    async def _all_due(self, db: Database, alerts: Sequence[FindingRow], now: datetime) -> list[_Due]:
        self._first_seen = {_of(row): self._first_seen.get(_of(row), now) for row in alerts}
        steps = await _steps_of(db, alerts)
        quiet = await quieted(db, alerts, now)
        found, unlimited = list[_Due](), list[_Due]()
        for name, channel in self.channels.items():
            told = _Told(name, alerts, steps)
            for row in alerts:
                if not self._is_for(row, name) or (is_storm(row) and not channel.folds):
                    continue
                one = self._due(row, told, quiet, now)
                if one and not (channel.folds and self._is_covered(one, told, now)):
                    (found if channel.folds else unlimited).append(one)
        return [*_within_rate(found, await _told_lately(db, ms_of(now))), *unlimited]

    def _is_for(self, row: FindingRow, channel: str) -> bool:
        rule = self.rules.named(row.rule)
        return (not rule or not rule.channels or channel in rule.channels) and self.rules.reaches(channel, row.tenant)

    def _due(self, row: FindingRow, told: _Told, quiet: Mapping[Occurrence, str], now: datetime) -> _Due | None:
        is_silent = _of(row) in quiet or any(
            silence.fits(row.tenant, row.rule, row.endpoint_id, now) for silence in self.rules.silences
        )
        mine = told.steps_of(row)
        repeat_seconds = self.channels[told.channel].repeat_seconds
        one = _next(row, told.channel, mine, repeat_seconds, ms_of(now), is_silent=is_silent)
        return one if one and not self._waits(one, mine, ms_of(now)) else None

    def _is_covered(self, due: _Due, told: _Told, now: datetime) -> bool:
        """Whether another word about the same incident stands for this one, or may do so soon."""
        if due.kind == "resolved":
            return told.is_needed(due.row)
        if due.kind != "open" or due.is_repeat:
            return False
        if storm_of(due.row, told.rows) or told.stands_for(due.row):
            return True
        is_fresh = now - self._first_seen[_of(due.row)] < GATHER
        return is_fresh and not is_storm(due.row) and told.another_lately(due.row)

    def _waits(self, due: _Due, steps: Sequence[_Step], now_ms: int) -> bool:
        """Claimed by somebody lately, or failed and not yet to be tried again, or refused for good."""
        mine = [step for step in steps if _is_step_of(step, due)]
        open_claims = _open_claims(mine, now_ms)
        failures = [step for step in mine if step.state in ("failed", "refused")]
        if open_claims:
            return True
        if sum(step.state == "refused" for step in failures) >= REFUSED_TRIES:
            return True
        if not failures:
            return False
        pause = RETRY_MS[min(len(failures), len(RETRY_MS)) - 1]
        return now_ms - max(step.at_ms for step in failures) < pause

    def _has_claim(self, due: _Due, steps: Sequence[_Step], now_ms: int) -> bool:
        mine = [step for step in steps if step.channel == due.channel and _is_step_of(step, due)]
        claims = _open_claims(mine, now_ms)
        return bool(claims) and min(claims, key=lambda step: (step.stored_ns, step.collector)).collector == (
            self.collector
        )

    # ---------------------------------------------------------------------------------------------------------- telling

    async def told_before(self, db: Database, alerts: Sequence[FindingRow], now: datetime) -> None:
        """These were told while the store was away, when nothing could be recorded."""
        due = [_Due(row, "open", name, row.size) for row in alerts if row.state == "open" for name in self.channels]
        await self._record(db, [self._step(one, "sent", ms_of(now), "told while the store was away") for one in due])

    async def _tell(self, db: Database, due: Sequence[_Due], now: datetime) -> int:
        at_once = asyncio.Semaphore(AT_ONCE)

        async with httpx.AsyncClient() as client:

            async def one(item: _Due) -> DeliveryRow:
                async with at_once:
                    return await self._told(client, item, now)

            rows = await asyncio.gather(*(one(item) for item in due))
        for row in rows:
            self.count(row.channel, row.state)
        await self._record(db, rows)
        return sum(row.state == "sent" for row in rows)

    async def _told(self, client: httpx.AsyncClient, due: _Due, now: datetime) -> DeliveryRow:
        try:
            await self.channels[due.channel].send(client, self.notice(due.row, due.kind, due.size), now)
        except DeliveryFailed as error:
            return self._step(due, "failed" if error.retryable else "refused", ms_of(now), str(error))
        except Exception as error:  # noqa: BLE001  one channel's bug must not keep the others from telling
            return self._step(due, "failed", ms_of(now), f"{type(error).__name__} in the channel: a bug of ours")
        return self._step(due, "sent", ms_of(now), "repeated" if due.is_repeat else "")

    def notice(self, row: FindingRow, kind: NoticeKind, size: int) -> Notice:
        """What is told of this alert."""
        rule = self.rules.named(row.rule)
        evidence = _EVIDENCE.validate_json(row.evidence or "[]")
        return Notice(
            id=notice_id(row.tenant, row.key, row.occurrence, kind, _level(size)),
            dedup_key=dedup_key(row.tenant, row.rule, row.subject),
            kind=kind,
            tenant=row.tenant,
            rule=row.rule,
            group=row.subject,
            code=row.code,
            severity=row.severity,  # type: ignore[arg-type]  # written by the ledger from a Severity
            sentence=flat(row.sentence),
            endpoint_id=row.endpoint_id or None,
            worker_ids=tuple(row.worker_ids),
            job_ids=tuple(row.job_ids),
            opened_at=time_of_ms(row.opened_ms),
            resolved_at=time_of_ms(row.resolved_ms) if row.resolved_ms else None,
            url=alerts_url(self.public_url, exposed_key(row)),
            runbook_url=runbook_address(self.runbook_url, self.public_url, rule.runbook if rule else ""),
            evidence=tuple(flat(item.text) for item in evidence[:5]),
        )

    def _step(self, due: _Due, state: str, at_ms: int, detail: str) -> DeliveryRow:
        return DeliveryRow(
            tenant=due.row.tenant,
            rule=due.row.rule,
            key=due.row.key,
            occurrence=due.row.occurrence,
            kind=due.kind,
            channel=due.channel,
            state=state,
            at_ms=at_ms,
            collector=self.collector,
            size=due.size,
            detail=detail,
        )

    async def _record(self, db: Database, rows: Sequence[DeliveryRow]) -> None:
        await db.insert("deliveries", rows, token=uuid.uuid4().hex)


def _of(row: FindingRow) -> Occurrence:
    return row.identity, row.occurrence


def _next(
    row: FindingRow, channel: str, steps: Sequence[_Step], repeat_seconds: float | None, now_ms: int, *, is_silent: bool
) -> _Due | None:
    """The one word that this channel lacks about this alert; None where it has all."""
    sent = [step for step in steps if step.state == "sent"]
    opened = [step for step in sent if step.kind in ("open", "spread")]
    if row.state == "resolved":
        is_owed = bool(opened) and not any(step.kind == "resolved" for step in sent)
        return _Due(row, "resolved", channel, 0) if is_owed and now_ms - row.resolved_ms < TELL_FOR_MS else None
    if not opened:
        return None if is_silent else _Due(row, "open", channel, row.size)
    told = max(step.size for step in opened)
    if not is_silent and row.size >= SPREAD * told:
        return _Due(row, "spread", channel, row.size)
    newest = max(step.at_ms for step in opened)
    if repeat_seconds is not None and now_ms - newest >= repeat_seconds * 1000:
        return _Due(row, "open", channel, told, is_repeat=True)
    return None


def _is_step_of(step: _Step, due: _Due) -> bool:
    return step.kind == due.kind and _level(step.size) == _level(due.size)


def _level(size: int) -> int:
    """1, 10, 100, …: the size in tens, so that collectors that count a little differently tell the same."""
    level = 1
    while size >= level * SPREAD:
        level *= SPREAD
    return level


def _open_claims(steps: Sequence[_Step], now_ms: int) -> list[_Step]:
    """Claims that nothing came of yet, by anyone, within the last minute."""
    done_ns = max((step.stored_ns for step in steps if step.state != "claimed"), default=0)
    return [
        step
        for step in steps
        if step.state == "claimed" and step.stored_ns > done_ns and now_ms - step.at_ms < CLAIM_MS
    ]


def _within_rate(due: Sequence[_Due], told: Mapping[str, int]) -> list[_Due]:
    counts, kept = dict(told), []
    for one in due:
        if one.kind != "resolved" and not one.is_repeat:
            if counts.get(one.channel, 0) >= RATE_PER_10_MINUTES:
                continue
            counts[one.channel] = counts.get(one.channel, 0) + 1
        kept.append(one)
    return kept


# -------------------------------------------------------------------------------------------------------- the store

_STEPS = """
SELECT rule, key, occurrence, kind, channel, state, at_ms, stored_ns, collector, size, detail
FROM deliveries
WHERE tenant = {tenant:String} AND key IN {keys:Array(String)}
ORDER BY at_ms, stored_ns
"""
STEPS_MAX: Final = 100_000


async def _rows(db: Database, rows: Sequence[FindingRow]) -> list[tuple[Occurrence, dict[str, Any]]]:
    found = []
    for tenant in sorted({row.tenant for row in rows}):
        keys = sorted({row.key for row in rows if row.tenant == tenant})
        for one in await db.query(_STEPS, {"tenant": tenant, "keys": keys}, max_rows=STEPS_MAX):
            found.append((((tenant, str(one["rule"]), str(one["key"])), int(one["occurrence"])), one))
    return found


async def _steps_of(db: Database, rows: Sequence[FindingRow]) -> dict[Occurrence, list[_Step]]:
    steps: dict[Occurrence, list[_Step]] = {}
    for occurrence, one in await _rows(db, rows):
        steps.setdefault(occurrence, []).append(
            _Step(
                kind=str(one["kind"]),
                channel=str(one["channel"]),
                state=str(one["state"]),
                at_ms=int(one["at_ms"]),
                stored_ns=int(one["stored_ns"]),
                collector=str(one["collector"]),
                size=int(one["size"]),
            )
        )
    return steps


async def deliveries_of(db: Database, rows: Sequence[FindingRow]) -> dict[Occurrence, tuple[Delivery, ...]]:
    """What became of telling these alerts; claims and repeats are left out."""
    found: dict[Occurrence, list[Delivery]] = {}
    for occurrence, one in await _rows(db, rows):
        if one["state"] != "claimed" and one["detail"] != "repeated":
            told = Delivery(
                channel=str(one["channel"]),
                kind=str(one["kind"]),
                state=str(one["state"]),
                at=time_of_ms(int(one["at_ms"])),
                detail=str(one["detail"]),
            )
            found.setdefault(occurrence, []).append(told)
    return {occurrence: tuple(told) for occurrence, told in found.items()}


_LATELY = """
SELECT channel, count() AS told
FROM deliveries
WHERE at_ms >= {since_ms:Int64} AND state = 'sent' AND kind != 'resolved' AND detail != 'repeated'
GROUP BY channel
"""


async def _told_lately(db: Database, now_ms: int) -> dict[str, int]:
    rows = await db.query(_LATELY, {"since_ms": now_ms - RATE_WINDOW_MS})
    return {str(row["channel"]): int(row["told"]) for row in rows}


_OWED = """
SELECT tenant, rule, key, occurrence
FROM findings FINAL
WHERE rule != '' AND state = 'resolved' AND resolved_ms >= {since_ms:Int64}
"""


async def recently_resolved(
    db: Database, columns: str, now: datetime, known: Collection[Occurrence]
) -> list[FindingRow]:
    """Alerts that ended within the last day, whose end may still be owed to somebody."""
    since_ms = ms_of(now - timedelta(milliseconds=TELL_FOR_MS))
    sql = _OWED.replace("tenant, rule, key, occurrence", columns)
    rows = [FindingRow(**row) for row in await db.query(sql, {"since_ms": since_ms})]
    return [row for row in rows if _of(row) not in known]
