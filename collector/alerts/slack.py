"""Slack, through an incoming webhook."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

import httpx

from collector.alerts.notices import Notice, flat, post
from collector.json_forms import json_bytes
from sdk_exporter.bounds import clip

SECTION_BYTES: Final = 2900
"""Slack takes 3,000 characters of text in a section."""
MARKS: Final = {"open": "🔴", "spread": "🔴", "resolved": "✅", "test": "🔔"}


@dataclass(frozen=True, slots=True)
class Slack:
    """POSTs a message to an incoming webhook, whose address is the secret."""

    url: str
    name: ClassVar[str] = "slack"
    repeat_seconds: ClassVar[float | None] = None
    folds: ClassVar[bool] = True

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        """Raises DeliveryFailed."""
        await post(client, self.url, content=json_bytes(message(notice)))


def message(notice: Notice) -> dict[str, Any]:
    """The body: a line for the notification, and the same with its facts."""
    title = f"{MARKS[notice.kind]} {escaped(notice.title)}"
    facts = [notice.severity, f"rule {notice.rule}", f"tenant {notice.tenant}"]
    if notice.endpoint_id:
        facts.append(f"endpoint {flat(notice.endpoint_id)}")
    facts.append(f"since {notice.opened_at:%Y-%m-%d %H:%M} UTC")
    elements = [_plain(escaped(" · ".join(facts)))]
    links = [(notice.url, "Alerts"), (notice.runbook_url, "Runbook")]
    if told := " · ".join(f"<{address}|{words}>" for address, words in links if address):
        elements.append({"type": "mrkdwn", "text": told, "verbatim": True})
    blocks: list[dict[str, Any]] = [{"type": "section", "text": _plain(title)}]
    if notice.evidence:
        quoted = "\n".join(f"> {escaped(flat(line))}" for line in notice.evidence)
        blocks.append({"type": "section", "text": _plain(quoted)})
    blocks.append({"type": "context", "elements": elements})
    return {"text": clip(title, SECTION_BYTES), "mrkdwn": False, "blocks": blocks, "unfurl_links": False}


def _plain(text: str) -> dict[str, Any]:
    """Text without markup: a worker's name cannot be bold, a link or an emoji."""
    return {"type": "plain_text", "text": clip(text, SECTION_BYTES), "emoji": False}


def escaped(text: str) -> str:
    """Slack's three characters: with them gone a log line can neither ping a channel nor make a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
