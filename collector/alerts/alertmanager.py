"""Prometheus Alertmanager, through its API v2: an alert lives there only while it is told again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import httpx

from collector.alerts.notices import Notice, post
from collector.json_forms import json_bytes, time_text

ENDS_AFTER: Final = timedelta(minutes=10)
"""Alertmanager ends an alert then by itself: five repeats may fail before that."""


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """POSTs alerts to `/api/v2/alerts`, open ones again every two minutes."""

    url: str
    name: ClassVar[str] = "alertmanager"
    repeat_seconds: ClassVar[float | None] = 120.0
    folds: ClassVar[bool] = False

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        """Raises DeliveryFailed."""
        await post(client, f"{self.url.rstrip('/')}/api/v2/alerts", content=json_bytes([alert(notice, now)]))


def alert(notice: Notice, now: datetime) -> dict[str, Any]:
    """One alert. Its labels never change while it is open, or it would be another alert there."""
    labels = {
        "alertname": notice.rule,
        "severity": "none" if notice.kind == "test" else notice.severity,
        "tenant": notice.tenant,
        "endpoint": notice.endpoint_id or "",
        "group": notice.group,
        "source": "stallscope",
    }
    annotations = {
        "summary": notice.title,
        "description": "\n".join(notice.evidence),
        "runbook_url": notice.runbook_url,
    }
    over = notice.resolved_at if notice.kind == "resolved" else None
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": time_text(notice.opened_at),
        "endsAt": time_text(over or now + ENDS_AFTER),
        "generatorURL": notice.url,
    }
