"""PagerDuty, through the Events API v2."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

import httpx

from collector.alerts.notices import Notice, post
from collector.json_forms import json_bytes, time_text
from sdk_exporter.bounds import clip

EVENTS_URL: Final = "https://events.pagerduty.com"
SUMMARY_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """Triggers and resolves incidents. `key` is the integration's routing key."""

    key: str
    url: str = EVENTS_URL
    name: ClassVar[str] = "pagerduty"
    repeat_seconds: ClassVar[float | None] = None
    folds: ClassVar[bool] = True

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        """Raises DeliveryFailed."""
        body = json_bytes({"routing_key": self.key, **event(notice)})
        await post(client, f"{self.url.rstrip('/')}/v2/enqueue", content=body)


def event(notice: Notice) -> dict[str, Any]:
    """The event but for its routing key. A test is triggered as information."""
    if notice.kind == "resolved":
        return {"event_action": "resolve", "dedup_key": notice.dedup_key}
    addresses = ((notice.url, "Alerts"), (notice.runbook_url, "Runbook"))
    return {
        "event_action": "trigger",
        "dedup_key": notice.dedup_key,
        "client": "Stallscope",
        **({"client_url": notice.url} if notice.url else {}),
        "links": [{"href": address, "text": words} for address, words in addresses if address],
        "payload": {
            "summary": clip(notice.title, SUMMARY_BYTES),
            "source": notice.endpoint_id or notice.tenant,
            "severity": "info" if notice.kind == "test" else notice.severity,
            "timestamp": time_text(notice.opened_at),
            "component": notice.endpoint_id or "",
            "group": notice.tenant,
            "class": notice.rule,
            "custom_details": {
                "code": notice.code,
                "workers": list(notice.worker_ids[:20]),
                "requests": list(notice.job_ids[:20]),
                "evidence": list(notice.evidence),
            },
        },
    }
