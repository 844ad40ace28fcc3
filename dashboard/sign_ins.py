"""How often somebody may be wrong about a token: few times, then once in a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from starlette.requests import HTTPConnection

from collector.errors import RateLimited

TRIES: Final = 10
SECONDS_A_TRY: Final = 30.0
"""After so long one of the tries is given back."""
ADDRESSES_MAX: Final = 10_000
"""Addresses that are remembered; beyond it the one heard of longest ago is forgotten."""


class SignIns:
    """Failed sign-ins by address. A right token is not looked at either while an address has no try left."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._spent: dict[str, tuple[float, float]] = {}  # tries, and when that was so

    def admit(self, address: str) -> None:
        """Raises RateLimited, with the time to wait, where `address` was wrong too often."""
        spent = self._now_spent(address)
        if spent > TRIES - 1:
            wait = (spent - (TRIES - 1)) * SECONDS_A_TRY
            raise RateLimited("Too many tokens from this address were wrong.", wait)

    def failed(self, address: str) -> None:
        """Count a wrong token."""
        spent = self._now_spent(address) + 1
        self._spent.pop(address, None)  # to the end: dicts keep the order of insertion
        self._spent[address] = (spent, self._monotonic())
        while len(self._spent) > ADDRESSES_MAX:
            self._spent.pop(next(iter(self._spent)))

    def _now_spent(self, address: str) -> float:
        spent, at = self._spent.get(address, (0.0, 0.0))
        return max(0.0, spent - (self._monotonic() - at) / SECONDS_A_TRY)


def sign_ins_of(request: HTTPConnection) -> SignIns:
    """Those of this app."""
    found: SignIns | None = getattr(request.app.state, "sign_ins", None)
    if found is None:
        found = request.app.state.sign_ins = SignIns()
    return found
