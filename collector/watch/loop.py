"""Rounds over the store: look, keep the ledger of findings, judge the rules, tell people.

Nothing that matters is only in memory: after a restart the next round goes on from what is stored. A round that cannot
ask the store is itself recorded, told after a minute, and never taken for health.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Final

import httpx

from collector.alerts.channels import channels_of
from collector.alerts.deadman import DeadMansSwitch
from collector.alerts.delivery import Postman, recently_resolved
from collector.alerts.evaluate import Evaluated, EvaluationRow, Evaluator
from collector.alerts.incidents import is_storm, storms
from collector.alerts.notices import Channel, DeliveryFailed
from collector.alerts.rules import RuleSet, load, stamp_of
from collector.auth import DEFAULT_TENANT, Tokens
from collector.clickhouse import Database
from collector.errors import StallscopeError
from collector.queries.stored import ms_of
from collector.settings import Settings, SettingsError
from collector.watch import sightings
from collector.watch.conditions import Sightings, blind, conditions, hears_anyone, lost_telemetry
from collector.watch.gauges import WatchMetrics
from collector.watch.hosts import EVERY, bad_hosts, tallies
from collector.watch.ledger import Condition, FindingRow, Identity, changes, condition_of, merged, newest, write

log = logging.getLogger(__name__)

BLIND_AFTER: Final = timedelta(seconds=60)
"""A watcher that could not ask for so long tells people, and says so in a finding afterwards."""
SETTLING: Final = timedelta(seconds=75)
"""After a start or a blind time: silence of workers may be ours until four heartbeats and a retry have come."""
UNWRITTEN_MAX: Final = 5000
_COLUMNS: Final = ", ".join(FindingRow.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did. `error`: why the store could not be asked; then nothing is known."""

    conditions: int = 0
    findings: int = 0  # rows written
    alerts: int = 0  # rows written
    told: int = 0
    error: str = ""


@dataclass(slots=True)
class Watch:
    """One collector's watcher."""

    rules: RuleSet
    channels: Mapping[str, Channel] = field(default_factory=dict)
    tenants: frozenset[str] = frozenset({DEFAULT_TENANT})
    public_url: str = ""
    runbook_url: str = ""
    heartbeat_url: str = ""
    collector: str = field(default_factory=lambda: uuid.uuid4().hex)
    settle_seconds: float = 0.5
    metrics: WatchMetrics = field(default_factory=WatchMetrics)
    _rules_stamp: tuple[int, int] | None = None  # of the rules file, as it was taken up
    _evaluator: Evaluator = field(init=False)
    _postman: Postman = field(init=False)
    _switch: DeadMansSwitch = field(init=False)
    _unwritten: deque[EvaluationRow] = field(default_factory=lambda: deque(maxlen=UNWRITTEN_MAX))
    _seen_at: datetime | None = None  # the newest round that could ask
    _clear_since: datetime | None = None  # the first of the unbroken run of rounds that could ask
    _hosts_at: datetime | None = None
    _bad_hosts: list[Condition] = field(default_factory=list)
    _blind_why: str = ""
    _blind_told: bool = False

    def __post_init__(self) -> None:
        self._evaluator = Evaluator(self.collector)
        self._postman = Postman(
            self.collector, self.channels, self.rules, self.public_url, self.runbook_url, self.settle_seconds
        )
        self._postman.count = lambda channel, result: self.metrics.notices.labels(channel, result).inc()
        self._switch = DeadMansSwitch(self.heartbeat_url)

    @classmethod
    def of(cls, settings: Settings) -> Watch:
        """Raises SettingsError for a rules file or a channel that cannot be used."""
        rules = load(settings.alert_rules)
        return cls(
            rules=rules,
            channels=channels_of(settings, rules.channels),
            tenants=Tokens.of(settings).tenants or frozenset({DEFAULT_TENANT}),
            public_url=settings.public_url,
            runbook_url=settings.runbook_url,
            heartbeat_url=settings.alert_heartbeat_url.get_secret_value(),
            _rules_stamp=stamp_of(settings.alert_rules),
        )

    async def keep_watching(self, db: Database, settings: Settings) -> None:
        """Rounds for ever, every `watch_seconds`."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            done = await self.round(db, settings, datetime.now(timezone.utc))
            if done.error:
                log.warning("the watcher cannot ask the store: %s", done.error)
            await asyncio.sleep(max(settings.watch_seconds - (loop.time() - began), 0.1))

    async def round(self, db: Database, settings: Settings, now: datetime) -> Round:
        """One round at `now`. Store trouble is an answer, not an exception: `Round.error` tells it."""
        self._take_up_rules(settings)
        try:
            done = await self._round(db, now)
        except StallscopeError as error:
            if not error.retryable:  # a statement of ours that the store refuses: no less blind
                log.exception("a round of the watcher failed")
            await self._cannot_see(now, error)
            return Round(error=str(error))
        self.metrics.last_round.set(now.timestamp())
        await self._switch.alive(now)
        return done

    def _take_up_rules(self, settings: Settings) -> None:
        """Read the rules file again where it has changed. One with a mistake is told in the log, and the rules before
        it hold."""
        stamp = stamp_of(settings.alert_rules)
        if stamp == self._rules_stamp:
            return
        self._rules_stamp = stamp
        try:
            rules = load(settings.alert_rules)
            channels = channels_of(settings, rules.channels)
        except SettingsError as error:
            log.error("the changed alert rules are not taken up, those before hold: %s", error)  # noqa: TRY400  no bug
            return
        self.rules = self._postman.rules = rules
        self.channels = self._postman.channels = channels
        log.info("took up the changed alert rules")

    async def _round(self, db: Database, now: datetime) -> Round:
        seen = await self._look(db, now)
        blind_since = self._blind_before(now)
        is_settling = self._clear_since is not None and now - self._clear_since < SETTLING
        tenants = self.tenants | {boot.tenant for boot in seen.boots}
        found = [*conditions(seen), *await self._compare_hosts(db, now)]
        lost = await self._lost(db, seen, now, is_settling=is_settling)
        found += lost
        if blind_since is not None:
            found += [blind(tenant, blind_since, self._blind_why) for tenant in sorted(tenants)]
        holding = tenants if is_settling else {condition.tenant for condition in lost}
        findings, written = await self._keep(db, found, now, holding=holding, judged=None)
        judged = await self._evaluator.round(db, self.rules.rules, findings.values(), tenants, now, holding=holding)
        so = await self._with_storms(db, judged, now, holding=holding)
        alerts, alerted = await self._keep(db, so, now, holding=holding, judged=judged.judged)
        self.metrics.show(findings.values(), alerts.values())
        await self._record(db, judged)
        if self._blind_told:
            await self._postman.told_before(db, [row for row in alerts.values() if row.subject == "store"], now)
        # Only now may the blind time be forgotten: a failure above leaves it to the next round.
        self._blind_why, self._blind_told, self._seen_at = "", False, now
        told = await self._deliver(db, alerts, now)
        return Round(conditions=len(found), findings=written, alerts=alerted, told=told)

    async def _look(self, db: Database, now: datetime) -> Sightings:
        now_ms = ms_of(now)
        boots, channels, cancelled = await asyncio.gather(
            sightings.boots(db, now_ms), sightings.channels(db, now_ms), sightings.cancelled(db, now_ms)
        )
        return Sightings(boots, channels, cancelled, now)

    async def _compare_hosts(self, db: Database, now: datetime) -> list[Condition]:
        if self._hosts_at is None or now - self._hosts_at >= EVERY:
            self._bad_hosts = bad_hosts(await tallies(db, now))
            self._hosts_at = now
        return self._bad_hosts

    async def _lost(self, db: Database, seen: Sightings, now: datetime, *, is_settling: bool) -> list[Condition]:
        """Lost telemetry now, and what was lost before while nobody is heard yet: total silence is no recovery."""
        found = [] if is_settling else lost_telemetry(seen)
        present = {condition.identity for condition in found}
        for identity, row in (await newest(db, [], findings=True)).items():
            is_lost = row.code == "telemetry_lost" and row.subject == "workers" and identity not in present
            if is_lost and (is_settling or not hears_anyone(seen, row.tenant)):
                found.append(condition_of(row))
        return found

    async def _with_storms(
        self, db: Database, judged: Evaluated, now: datetime, *, holding: Collection[str]
    ) -> list[Condition]:
        """The alerts that are so, and the storms that they make with those that are open already."""
        stored = await newest(db, sorted({one.identity[2] for one in judged.conditions}), findings=False)
        rows = changes(stored, judged.conditions, now, holding=holding, judged=judged.judged)
        kept = [row for row in stored.values() if is_storm(row)]  # no rule makes them: they are not over for that
        ahead = {**merged(stored, rows), **{row.identity: row for row in kept}}
        return [*judged.conditions, *storms(ahead.values(), now)]

    async def _keep(
        self,
        db: Database,
        found: Sequence[Condition],
        now: datetime,
        *,
        holding: Collection[str],
        judged: Collection[str] | None,
    ) -> tuple[dict[Identity, FindingRow], int]:
        """Write what changed. Returns what is stored then, open and just resolved, and how many rows were written."""
        keys = sorted({condition.identity[2] for condition in found})
        stored = await newest(db, keys, findings=judged is None)
        rows = changes(stored, found, now, holding=holding, judged=judged)
        if rows:
            await write(db, rows)
        return merged(stored, rows), len(rows)

    async def _record(self, db: Database, judged: Evaluated) -> None:
        self._count(judged)
        rows = list(self._unwritten)
        if rows:
            await db.insert("rule_evaluations", rows, token=uuid.uuid4().hex)
            self._unwritten.clear()

    def _count(self, judged: Evaluated) -> None:
        self._unwritten.extend(judged.records)
        for record in judged.records:
            self.metrics.evaluations.labels("ok" if record.ok else "error").inc()

    async def _deliver(self, db: Database, alerts: Mapping[Identity, FindingRow], now: datetime) -> int:
        if not self.channels:
            return 0
        rows = list(alerts.values())
        known = {(row.identity, row.occurrence) for row in rows}
        return await self._postman.round(db, [*rows, *await recently_resolved(db, _COLUMNS, now, known)], now)

    # ------------------------------------------------------------------------------------------------------- blindness

    def _blind_before(self, now: datetime) -> datetime | None:
        """This round can ask. Since when none could, where that is worth a finding."""
        self._clear_since = self._clear_since or now
        is_long = self._blind_why and self._seen_at is not None and now - self._seen_at >= BLIND_AFTER
        return self._seen_at if is_long else None

    async def _cannot_see(self, now: datetime, error: StallscopeError) -> None:
        self._blind_why = str(error)
        self._clear_since = None
        if self._seen_at is None:
            self._seen_at = now
        failed = self._evaluator.failed(self.rules.rules, self.tenants, now, error)
        self._count(failed)
        if self.channels and not self._blind_told and now - self._seen_at >= BLIND_AFTER:
            self._blind_told = await self._tell_blindness(now)

    async def _tell_blindness(self, now: datetime) -> bool:
        """Without the store nobody can be asked who tells it: each collector does, with the same id."""
        told = False
        async with httpx.AsyncClient() as client:
            for tenant in sorted(self.tenants):
                for channel in self.channels.values():
                    told |= await self._told_blind(client, channel, tenant, now)
        return told

    async def _told_blind(self, client: httpx.AsyncClient, channel: Channel, tenant: str, now: datetime) -> bool:
        condition = blind(tenant, self._seen_at or now, self._blind_why)
        rows = changes({}, [_alert_of(condition)], now)
        try:
            await channel.send(client, self._postman.notice(rows[0], "open", 1), now)
        except DeliveryFailed as error:
            log.warning("cannot tell %s that the watcher is blind: %s", channel.name, error)
            return False
        return True


def _alert_of(condition: Condition) -> Condition:
    return Condition(
        tenant=condition.tenant,
        code=condition.code,
        subject=condition.subject,
        severity="critical",
        since=condition.since,
        sentence=condition.sentence,
        evidence=condition.evidence,
        rule="TelemetryLost",
    )
