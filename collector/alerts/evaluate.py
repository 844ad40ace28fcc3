"""Rules over measures: which alerts are so now. Every evaluation leaves a record, failed ones too."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from collector.alerts import measures
from collector.alerts.measures import Ended, Measured
from collector.alerts.rules import Rule
from collector.clickhouse import Database
from collector.errors import StallscopeError
from collector.queries.stored import ms_of
from collector.watch.ledger import Condition, FindingRow, Identity

ALERTS_MAX: Final = 500
"""Most alerts of one rule at once."""


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """One evaluation of one rule (table `rule_evaluations`)."""

    tenant: str
    rule: str
    at_ms: int
    collector: str
    ok: bool
    firing: int
    pending: int  # so, but not for long enough
    held: int  # so, but from silence that may be ours
    error: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What one round of all rules came to. `judged`: rules that could be worked out."""

    conditions: list[Condition]
    judged: frozenset[str]
    records: list[EvaluationRow]


@dataclass(slots=True)
class Evaluator:
    """Remembers, between rounds, when each alert was last so: an alert ends only after `keep` without it."""

    collector: str
    _last_so: dict[Identity, tuple[datetime, Condition]] = field(default_factory=dict)
    _last_run: dict[str, datetime] = field(default_factory=dict)

    async def round(
        self,
        db: Database,
        rules: Sequence[Rule],
        findings: Collection[FindingRow],
        tenants: Collection[str],
        now: datetime,
        *,
        holding: Collection[str],
    ) -> Evaluated:
        """Evaluate the rules that are due. `holding`: tenants whose silence proves nothing now."""
        counted: dict[float, list[Ended]] = {}
        conditions: list[Condition] = []
        judged, records = {"never"}, []
        for rule in rules:
            last = self._last_run.get(rule.name)
            if last is not None and now - last < timedelta(seconds=rule.every_seconds):
                continue
            try:
                found = await _measured(db, rule, findings, now, counted)
            except StallscopeError as error:
                records += self._failed(rule, tenants, now, error)
                continue
            self._last_run[rule.name] = now
            judged.add(rule.name)
            so, more = self._judge(rule, found, tenants, now, holding)
            conditions += so
            records += more
        return Evaluated(conditions, frozenset(judged), records)

    def failed(self, rules: Sequence[Rule], tenants: Collection[str], now: datetime, error: Exception) -> Evaluated:
        """No rule could be evaluated, since the store cannot be asked."""
        return Evaluated([], frozenset(), [one for rule in rules for one in self._failed(rule, tenants, now, error)])

    def _failed(self, rule: Rule, tenants: Collection[str], now: datetime, error: Exception) -> list[EvaluationRow]:
        return [
            EvaluationRow(tenant, rule.name, ms_of(now), self.collector, False, 0, 0, 0, str(error)[:500])
            for tenant in sorted(tenants)
        ]

    def _judge(
        self, rule: Rule, found: Sequence[Measured], tenants: Collection[str], now: datetime, holding: Collection[str]
    ) -> tuple[list[Condition], list[EvaluationRow]]:
        firing: dict[Identity, Condition] = {}
        counts = {tenant: [0, 0] for tenant in tenants}
        for one in sorted(found, key=lambda one: -one.value):
            if one.value < rule.threshold or not rule.covers(one.endpoint_id):
                continue
            pending, held = counts.setdefault(one.tenant, [0, 0])
            if rule.holds_when_telemetry_is_lost and one.guessed and one.tenant in holding:
                counts[one.tenant] = [pending, held + 1]
            elif now - one.since < timedelta(seconds=rule.for_seconds):
                counts[one.tenant] = [pending + 1, held]
            elif len(firing) < ALERTS_MAX:
                condition = _condition(rule, one)
                firing[condition.identity] = condition
        for identity, condition in firing.items():
            self._last_so[identity] = (now, condition)
        firing.update(self._kept(rule, firing, now))
        per_tenant = {tenant: sum(identity[0] == tenant for identity in firing) for tenant in counts}
        records = [
            EvaluationRow(
                tenant, rule.name, ms_of(now), self.collector, True, per_tenant[tenant], counts[tenant][0],
                counts[tenant][1], "",
            )
            for tenant in sorted(counts)
        ]  # fmt: skip
        return list(firing.values()), records

    def _kept(self, rule: Rule, firing: Collection[Identity], now: datetime) -> dict[Identity, Condition]:
        """Alerts that were so within `keep`: a gap of one round is no recovery."""
        kept = {}
        for identity, (at, condition) in list(self._last_so.items()):
            if identity[1] != rule.name or identity in firing:
                continue
            if now - at < timedelta(seconds=rule.keep_seconds):
                kept[identity] = condition
            else:
                del self._last_so[identity]
        return kept


async def _measured(
    db: Database, rule: Rule, findings: Collection[FindingRow], now: datetime, counted: dict[float, list[Ended]]
) -> list[Measured]:
    if rule.measure == "finding":
        return measures.of_findings(rule, findings)
    if rule.measure == "new_group":
        return await measures.new_groups(db, now, rule)
    if rule.window_seconds not in counted:
        counted[rule.window_seconds] = await measures.ended(db, now, rule.window_seconds)
    some = counted[rule.window_seconds]
    return measures.of_verdicts(rule, some) if rule.measure == "verdicts" else measures.of_failures(rule, some)


def _condition(rule: Rule, one: Measured) -> Condition:
    return Condition(
        tenant=one.tenant,
        code=one.code,
        subject=one.group,
        severity=rule.severity,
        since=one.since,
        sentence=one.sentence,
        endpoint_id=one.endpoint_id,
        worker_ids=one.worker_ids,
        job_ids=one.job_ids,
        evidence=one.evidence,
        size=one.size,
        rule=rule.name,
    )
