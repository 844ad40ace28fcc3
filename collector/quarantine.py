"""What the store refuses for ever is set aside here: to be seen, bounded, and never tried again."""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from typing import Final

REASON_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row of `quarantine`: a span, or the smallest piece of a request that was found to be refused."""

    tenant: str
    arrived_ms: int
    reason: str  # the store's own words
    spans: int
    data: str  # base64 of the message of `staging`, its head where it is long

    @classmethod
    def of(cls, tenant: str, reason: str, spans: int, data: bytes) -> Quarantined:
        """Set aside now."""
        now_ms = time.time_ns() // 1_000_000
        return cls(tenant, now_ms, reason[:REASON_CHARACTERS], spans, base64.b64encode(data).decode())
