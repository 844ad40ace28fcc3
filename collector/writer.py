"""Rows → stored. The answer waits until the store has them: acknowledged means stored."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .clickhouse import Database
from .errors import StoreRefused, StoreUnavailable
from .metrics import Metrics
from .rows import SpanRow

log = logging.getLogger(__name__)

ROWS_PER_INSERT: Final = 10_000
"""A batch is closed here. An insert costs the store about 5 ms and one part whatever its size, so small requests share
one: rows gather while the insert before them runs, and a lone request never waits."""


@dataclass(slots=True)
class _Waiting:
    rows: Sequence[SpanRow]
    stored: asyncio.Future[None]


class SpanWriter:
    """Writes spans, one insert at a time; what arrives meanwhile goes together into the next."""

    def __init__(self, db: Database, metrics: Metrics) -> None:
        self._db, self._metrics = db, metrics
        self._waiting: deque[_Waiting] = deque()
        self._pump: asyncio.Task[None] | None = None

    async def write(self, rows: Sequence[SpanRow]) -> None:
        """Return when `rows` are stored. Raises StoreUnavailable when they are not known to be: send them again."""
        if not rows:
            return
        waiting = _Waiting(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._metrics.waiting_rows.inc(len(rows))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._write_all(), name="write-spans")
        await waiting.stored

    async def close(self) -> None:
        """Finish what waits. Nothing may be written afterwards."""
        if self._pump is not None:
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _write_all(self) -> None:
        while self._waiting:
            await self._write_batch(self._next_batch())

    def _next_batch(self) -> list[_Waiting]:
        batch, size = [self._waiting.popleft()], 0
        while self._waiting and (size := size + len(batch[-1].rows)) < ROWS_PER_INSERT:
            batch.append(self._waiting.popleft())
        return batch

    async def _write_batch(self, batch: list[_Waiting]) -> None:
        """One insert for all. If the store refuses it, each alone: one bad row must not take others with it."""
        error = await self._insert([row for waiting in batch for row in waiting.rows])
        for waiting in batch:
            if isinstance(error, StoreRefused) and len(batch) > 1:
                _settle(waiting, await self._insert(waiting.rows))
            else:
                _settle(waiting, error)
            self._metrics.waiting_rows.dec(len(waiting.rows))

    async def _insert(self, rows: Sequence[SpanRow]) -> Exception | None:
        began, token = time.perf_counter(), uuid.uuid4().hex
        try:
            for start in range(0, len(rows), ROWS_PER_INSERT):
                await self._db.insert("spans", rows[start : start + ROWS_PER_INSERT], token=f"{token}-{start}")
            return None
        except (StoreUnavailable, StoreRefused) as error:
            self._metrics.insert_failures.inc()
            return error
        except Exception as error:  # broad: whatever it was, somebody waits for an answer
            log.exception("an insert failed in an unknown way")
            self._metrics.insert_failures.inc()
            return error
        finally:
            self._metrics.insert_seconds.observe(time.perf_counter() - began)


def _settle(waiting: _Waiting, error: Exception | None) -> None:
    if waiting.stored.done():  # its client went away meanwhile
        return
    if error is None:
        waiting.stored.set_result(None)
    elif isinstance(error, StoreUnavailable):
        waiting.stored.set_exception(StoreUnavailable(str(error)))
    else:
        # A refusal is a bug of ours: the sender must keep its spans, which only a retryable answer makes it do.
        log.error("spans cannot be stored: %s", error, exc_info=error)
        waiting.stored.set_exception(StoreUnavailable(str(error), retry_after_seconds=60.0))
