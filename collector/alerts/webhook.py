"""A webhook in the form of Standard Webhooks: id, timestamp and a signature over both and the body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import httpx

from collector.alerts.notices import Notice, post
from collector.json_forms import json_bytes, object_json


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs each notice as JSON. Signed where a secret is set: `whsec_…` in base64, or any text."""

    url: str
    secret: str = ""
    name: ClassVar[str] = "webhook"
    repeat_seconds: ClassVar[float | None] = None
    folds: ClassVar[bool] = True

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        """Raises DeliveryFailed."""
        body = json_bytes({**object_json(notice), "title": notice.title})
        timestamp = str(int(now.timestamp()))
        headers = {"webhook-id": notice.id, "webhook-timestamp": timestamp, "idempotency-key": notice.id}
        if self.secret:
            headers["webhook-signature"] = signature(self.secret, notice.id, timestamp, body)
        await post(client, self.url, content=body, headers=headers)


def signature(secret: str, notice_id: str, timestamp: str, body: bytes) -> str:
    """`v1,` and the HMAC-SHA256 of `id.timestamp.body` in base64."""
    signed = hmac.new(_key(secret), f"{notice_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(signed).decode()


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
