"""E-mail over SMTP. All messages about one alert make one thread."""

from __future__ import annotations

import asyncio
import hashlib
import smtplib
import ssl
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import httpx

from collector.alerts.notices import TIMEOUT_SECONDS, DeliveryFailed, Notice, flat
from collector.settings import SettingsError
from sdk_exporter.bounds import clip


@dataclass(frozen=True, slots=True)
class Email:
    """`url`: `smtp://[user:password@]host[:port]` (STARTTLS where offered, and needed with a password) or `smtps://…`."""

    url: str
    sender: str
    recipients: tuple[str, ...]
    name: ClassVar[str] = "email"
    repeat_seconds: ClassVar[float | None] = None
    folds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise SettingsError("the mail server is smtp://[user:password@]host[:port] or smtps://…")
        if not self.sender or not self.recipients:
            raise SettingsError("sender and recipients are both needed for e-mail")

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        """Raises DeliveryFailed. The library is synchronous: it runs in a thread, each step with its own timeout."""
        letter = message(notice, self.sender, self.recipients, now)
        try:
            await asyncio.to_thread(self._hand_over, letter)
        except smtplib.SMTPRecipientsRefused:
            raise DeliveryFailed("the server refused every recipient", retryable=False) from None
        except smtplib.SMTPResponseException as error:
            again = 400 <= error.smtp_code < 500
            raise DeliveryFailed(f"SMTP {error.smtp_code}", retryable=again) from None
        except (smtplib.SMTPException, OSError) as error:
            raise DeliveryFailed(f"no answer ({type(error).__name__})", retryable=True) from None

    def _hand_over(self, letter: EmailMessage) -> None:
        parts = urlsplit(self.url)
        host, context = parts.hostname or "", ssl.create_default_context()
        if parts.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, parts.port or 465, timeout=TIMEOUT_SECONDS, context=context)
        else:
            server = smtplib.SMTP(host, parts.port or 587, timeout=TIMEOUT_SECONDS)
        with server:
            server.ehlo_or_helo_if_needed()
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
            elif parts.scheme == "smtp" and parts.password:
                raise smtplib.SMTPNotSupportedError("no STARTTLS, and a password is not sent in the clear")
            if parts.username:
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(letter)


def message(notice: Notice, sender: str, recipients: tuple[str, ...], now: datetime) -> EmailMessage:
    """The letter. Header values are one line whatever a worker's id holds."""
    letter = EmailMessage()
    letter["Subject"] = clip(flat(f"[{notice.severity}] {notice.title}"), 200)
    letter["From"], letter["To"] = sender, ", ".join(recipients)
    letter["Date"] = format_datetime(now)
    thread = f"<{hashlib.sha256(notice.dedup_key.encode()).hexdigest()[:32]}@stallscope.invalid>"
    letter["Message-ID"] = f"<{notice.id}@stallscope.invalid>"
    letter["References"] = letter["In-Reply-To"] = thread
    letter["Auto-Submitted"] = "auto-generated"
    lines = [
        flat(notice.title),
        "",
        f"Rule: {notice.rule}   Severity: {notice.severity}   Tenant: {notice.tenant}",
        f"Since: {notice.opened_at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    if notice.endpoint_id:
        lines.append(f"Endpoint: {flat(notice.endpoint_id)}")
    lines += [f"{words}: {', '.join(flat(one) for one in ids[:20])}" for words, ids in _ids(notice) if ids]
    lines += [f"> {flat(line)}" for line in notice.evidence]
    lines += [f"{words}: {address}" for words, address in (("Alerts", notice.url), ("Runbook", notice.runbook_url))
              if address]  # fmt: skip
    letter.set_content("\n".join(lines) + "\n")
    return letter


def _ids(notice: Notice) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("Workers", notice.worker_ids), ("Requests", notice.job_ids)
