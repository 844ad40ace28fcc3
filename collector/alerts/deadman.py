"""A dead man's switch: an outgoing sign of life after each good round, whose absence somebody else notices."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import httpx

from collector.alerts.notices import TIMEOUT_SECONDS

log = logging.getLogger(__name__)

EVERY: Final = timedelta(seconds=60)


@dataclass(slots=True)
class DeadMansSwitch:
    """GETs an address (Healthchecks and its like) at most once a minute. Empty: none."""

    url: str
    last: datetime | None = None

    async def alive(self, now: datetime) -> None:
        """A round has seen the store, judged every rule and told what was due. Never raises."""
        if not self.url or (self.last is not None and now - self.last < EVERY):
            return
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
                (await client.get(self.url)).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            log.warning("the dead man's switch did not take the sign of life (%s)", type(error).__name__)
            return
        self.last = now
