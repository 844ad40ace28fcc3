"""Alerts as the API and the page tell them: a finding, the rule that made it, and what became of telling people."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from collector.alerts.delivery import Delivery, deliveries_of
from collector.clickhouse import Database
from collector.diagnosis.answer import EvidenceItem
from collector.queries.pages import Page
from collector.watch.ledger import Finding, FindingState, Severity, finding_of, quieted, rows_of


@dataclass(frozen=True, slots=True)
class Alert:
    """A finding's fields, and two more. `deliveries`: oldest first; empty where no channel is set."""

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
    rule: str
    deliveries: tuple[Delivery, ...]


async def list_alerts(db: Database, tenant: str, since: datetime, now: datetime, **narrowed: Any) -> Page[Alert]:
    """Open alerts and those that changed since then; `narrowed`: state, code, endpoint, cursor, limit of `rows_of`."""
    rows, following = await rows_of(db, tenant, since, findings=False, **narrowed)
    quiet, told = await quieted(db, rows, now), await deliveries_of(db, rows)
    items = []
    for row in rows:
        finding = finding_of(row, quiet)
        common = {field.name: getattr(finding, field.name) for field in fields(Finding)}
        items.append(Alert(**common, rule=row.rule, deliveries=told.get((row.identity, row.occurrence), ())))
    return Page(items, following)
