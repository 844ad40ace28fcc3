"""When answers come late, refuse at once: an exporter gives up after 10 s, and what it gave up was work for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Final

from .errors import Overloaded

LATE_SECONDS: Final = 2.0
"""A request that has waited for so long is late."""
LATE_MOST: Final = 8
"""With as many late ones new requests are refused. One slow request, or a few, holds up nobody."""
RETRY_SECONDS: Final = 2.0


class Congestion:
    """The requests that are being read or stored, in the order of their coming."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self._numbers = monotonic, count()
        self._since: dict[int, float] = {}

    def refuse_when_late(self) -> None:
        """Raises Overloaded while too many wait too long."""
        nth_oldest = next(islice(self._since.values(), LATE_MOST - 1, None), None)
        if nth_oldest is not None and self._monotonic() - nth_oldest > LATE_SECONDS:
            raise Overloaded(f"more comes in than can be stored: {len(self._since)} requests wait", RETRY_SECONDS)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the work for one request."""
        number = next(self._numbers)
        self._since[number] = self._monotonic()
        try:
            yield
        finally:
            del self._since[number]
