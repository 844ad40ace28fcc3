"""What a channel is given to tell, and how telling fails."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Literal, Protocol
from urllib.parse import urlencode

import httpx

from collector.watch.ledger import Severity

_UNSEEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Controls, and what turns the direction of text or has no width: a name may hold them, to look like another."""

NoticeKind = Literal["open", "spread", "resolved", "test"]
DEDUP_BYTES: Final = 255
TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to tell. `id` is the same at every try; `dedup_key` is the same for all of one alert, over restarts."""

    id: str
    dedup_key: str
    kind: NoticeKind
    tenant: str
    rule: str
    group: str
    code: str
    severity: Severity
    sentence: str
    endpoint_id: str | None
    worker_ids: tuple[str, ...]
    job_ids: tuple[str, ...]
    opened_at: datetime
    resolved_at: datetime | None
    url: str  # of the alerts page; empty where STALLSCOPE_PUBLIC_URL is not set
    runbook_url: str
    evidence: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """One line: what a phone shows first."""
        return {"resolved": "Resolved: ", "spread": "Spreading: ", "test": "Test: "}.get(self.kind, "") + self.sentence


class DeliveryFailed(Exception):
    """A channel could not tell it. The message holds no address and no secret: it is stored and shown."""

    def __init__(self, message: str, *, retryable: bool, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class Channel(Protocol):
    """A way to tell people. `repeat_seconds`: tell what is still open again so often (None: once).

    `folds`: alerts of one incident are told as one; False where the receiver groups by itself.
    """

    name: ClassVar[str]
    repeat_seconds: ClassVar[float | None]
    folds: ClassVar[bool]

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        """Tell it. Raises DeliveryFailed."""


def flat(text: str) -> str:
    """`text` on one line, of characters that can be seen: the rest is a `\N{REPLACEMENT CHARACTER}`."""
    seen = _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return seen.encode("utf-8", "replace").decode()


def dedup_key(tenant: str, rule: str, group: str) -> str:
    """Tenant, rule and group: readable where it fits, else with a digest at its end."""
    whole = f"stallscope/{tenant}/{rule}/{group}"
    if len(whole.encode()) <= DEDUP_BYTES:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    return whole.encode()[: DEDUP_BYTES - 33].decode("utf-8", "ignore") + "/" + digest


def notice_id(tenant: str, key: str, occurrence: int, kind: str, size: int) -> str:
    """The idempotency id: every collector and every try makes the same one."""
    whole = "\0".join((tenant, key, str(occurrence), kind, str(size if kind == "spread" else 0)))
    return "ntc_" + hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def alerts_url(public_url: str, key: str) -> str:
    """Where the alert can be seen."""
    return f"{public_url.rstrip('/')}/alerts?{urlencode({'key': key})}" if public_url else ""


def runbook_address(base: str, public_url: str, name: str) -> str:
    """Where the runbook is; empty where no address of it is known. A name that is an address already is kept."""
    if not name or "/" in name:
        return name
    base = base or (f"{public_url.rstrip('/')}/docs/runbooks" if public_url else "")
    return f"{base.rstrip('/')}/{name}" if base else ""


async def post(
    client: httpx.AsyncClient,
    url: str,
    *,
    content: bytes,
    headers: dict[str, str] | None = None,
) -> None:
    """POST JSON. Raises DeliveryFailed; a 408, 425, 429 or 5xx, and a network error, may be tried again."""
    try:
        response = await client.post(
            url,
            content=content,
            headers={"content-type": "application/json", **(headers or {})},
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
        )
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise DeliveryFailed(f"no answer ({type(error).__name__})", retryable=True) from None
    if response.is_success:
        return
    status = response.status_code
    again = status in (408, 425, 429) or status >= 500
    raise DeliveryFailed(f"HTTP {status}", retryable=again, retry_after_seconds=_retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    told = response.headers.get("retry-after", "")
    return min(float(told), 3600.0) if told.isascii() and told.isdigit() and len(told) < 9 else None
