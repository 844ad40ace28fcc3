"""How much each ingest token may send. Pure but for the clock that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .errors import RateLimited

BURST_SECONDS: Final = 10.0
"""A token that was quiet may send this many seconds' worth at once: exporters send in batches."""


@dataclass(slots=True)
class _Account:
    left: float
    at: float


class Rates:
    """One account of records per token.

    How much a request holds is known only when it was read, and reading is what costs. So a request is let in while
    its token's account is not overdrawn, and charged afterwards: a large one is taken whole, and those after it wait.
    """

    def __init__(self, per_second: float, monotonic: Callable[[], float]) -> None:
        """`per_second`: spans, log records and metric points; 0 is no limit."""
        self._per_second, self._monotonic = per_second, monotonic
        self._accounts: dict[bytes, _Account] = {}  # as many as there are tokens: only known ones come here

    def admit(self, token: bytes | None) -> None:
        """Raises RateLimited, with the time to wait, while `token` is over its rate. None is never over it."""
        if token is None or not self._per_second:
            return
        left = self._refilled(token).left
        if left <= 0:
            raise RateLimited(
                f"this token is over its rate of {self._per_second:g} records a second (STALLSCOPE_INGEST_RATE)",
                -left / self._per_second,
            )

    def charge(self, token: bytes | None, records: int) -> None:
        """Count what came in by `token`."""
        if token is not None and self._per_second:
            self._refilled(token).left -= records

    def _refilled(self, token: bytes) -> _Account:
        now, most = self._monotonic(), self._per_second * BURST_SECONDS
        account = self._accounts.setdefault(token, _Account(most, now))
        account.left = min(most, account.left + (now - account.at) * self._per_second)
        account.at = now
        return account
