"""What the platform's records tell of an endpoint while a request waits there. Pure reading; no verdict."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from collector.diagnosis.evidence import Evidence
from collector.diagnosis.lifecycle_words import between
from collector.diagnosis.records import Record
from sdk_exporter.contract import Key, SpanName

FRESH_SECONDS: Final = 180.0
"""Three times as often as an endpoint that does not change is told of."""
LOOP_SECONDS: Final = 600.0
STARTS_OF_LOOP: Final = 3
"""So many starts of one worker's container within `LOOP_SECONDS` are a loop."""
NORMAL_FACTOR: Final = 1.5
"""A start is slow from this times the usual longest one."""
NORMAL_MARGIN_SECONDS: Final = 30.0
UNUSUAL_FROM_SECONDS: Final = 420.0
"""Where no start of the endpoint was seen yet: from then on the platform itself counts a start as failed."""

_START: Final = re.compile(r"\b(?:re)?start(?:ed|ing)? container\b", re.IGNORECASE)


@dataclass(frozen=True)  # no slots: what is read is kept
class PlatformView:
    """The platform's records of one endpoint, as of the diagnosis."""

    evidence: Evidence

    @cached_property
    def _of_endpoint(self) -> tuple[Record, ...]:
        endpoint = self.evidence.endpoint_id
        told = [r for r in self.evidence.platform if not endpoint or not r.endpoint_id or r.endpoint_id == endpoint]
        return tuple(sorted(told, key=lambda r: (r.last_ns, r.span_id)))

    @cached_property
    def answers(self) -> tuple[Record, ...]:
        """All that it told of the endpoint as a whole, oldest first."""
        return tuple(r for r in self._of_endpoint if r.name == SpanName.PLATFORM_ENDPOINT and not r.failed)

    @property
    def polled(self) -> bool:
        """Whether anything was ever asked."""
        return bool(self._of_endpoint)

    @property
    def now(self) -> Record | None:
        """The newest answer, where it is new enough to tell how it is now."""
        newest = self.answers[-1] if self.answers else None
        return newest if newest is not None and self._age(newest) <= FRESH_SECONDS else None

    @property
    def gap(self) -> Record | None:
        """The newest time in which the workers could not be asked, where no answer came after it."""
        told = [r for r in self._of_endpoint if r.name == SpanName.PLATFORM_ENDPOINT and r.failed]
        told = [r for r in told if r.text(Key.PLATFORM_ROUTE) == "workers"]
        newest = self.answers[-1].last_ns if self.answers else 0
        return told[-1] if told and told[-1].last_ns > newest else None

    def count(self, key: str) -> int:
        """A number of the newest answer, 0 where it is not told."""
        return (self.now.integer(key) if self.now else None) or 0

    @property
    def most(self) -> int | None:
        """The maximum of workers, where it is told."""
        return self.now.integer(Key.PLATFORM_WORKERS_MAX) if self.now else None

    def held_seconds(self, condition: Callable[[Record], bool]) -> float:
        """For how long each answer has fitted, back from the newest; 0 where that does not."""
        first: Record | None = None
        for answer in reversed(self.answers):
            if not condition(answer):
                break
            first = answer
        return self._age(first) if first is not None and self.now is not None else 0.0

    @cached_property
    def workers(self) -> tuple[Record, ...]:
        """The newest of each worker."""
        newest = {r.worker_id: r for r in self._of_endpoint if r.name == SpanName.PLATFORM_WORKER and r.worker_id}
        return tuple(newest.values())

    def starting(self) -> tuple[Record, float] | None:
        """The worker that has been initializing for longest, and for how many seconds."""
        known = [r for r in self.workers if r.text(Key.PLATFORM_STATUS) == "INITIALIZING"]
        if not self.count(Key.PLATFORM_WORKERS_INITIALIZING) or not known:
            return None
        return max(((r, self._since_initializing(r)) for r in known), key=lambda one: (one[1], one[0].span_id))

    def _since_initializing(self, newest: Record) -> float:
        first = newest
        for record in reversed(self._of_endpoint):
            if record.name == SpanName.PLATFORM_WORKER and record.worker_id == newest.worker_id:
                if record.text(Key.PLATFORM_STATUS) != "INITIALIZING":
                    break
                first = record
        return self._age(first)

    @property
    def normal_start(self) -> tuple[float, int] | None:
        """Seconds within which 95 in 100 starts of the endpoint were ready, and of how many; None: not known."""
        told = [r for r in self.answers if r.number(Key.PLATFORM_START_SECONDS_P95) is not None]
        if not told:
            return None
        return told[-1].number(Key.PLATFORM_START_SECONDS_P95) or 0.0, told[-1].integer(Key.PLATFORM_STARTS) or 0

    @property
    def start_bound(self) -> float:
        """Seconds from which a start is slow for this endpoint."""
        normal = self.normal_start
        if normal is None:
            return UNUSUAL_FROM_SECONDS
        return max(normal[0] * NORMAL_FACTOR, normal[0] + NORMAL_MARGIN_SECONDS)

    @cached_property
    def lines(self) -> tuple[Record, ...]:
        """Lines of the workers' system logs, oldest first, of the time in which a loop is looked for."""
        told = [r for r in self._of_endpoint if r.name == SpanName.PLATFORM_LOG]
        return tuple(r for r in told if self._age(r) <= LOOP_SECONDS)

    def restarted(self) -> dict[str, list[Record]]:
        """Workers whose container was started again and again, with the lines that say so."""
        starts: dict[str, list[Record]] = {}
        for line in self.lines:
            if _START.search(line.text(Key.PLATFORM_LINE)):
                starts.setdefault(line.worker_id, []).append(line)
        return {worker: found for worker, found in starts.items() if len(found) >= STARTS_OF_LOOP}

    def _age(self, record: Record) -> float:
        return max(between(record.last, self.evidence.now), 0.0)
