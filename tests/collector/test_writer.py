"""An answer waits for its own spans, requests share inserts, and one bad request takes none with it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from otlp_bytes import request_of, span
from parts import eventually

from collector.clickhouse import Database
from collector.decode import span_rows
from collector.errors import StoreUnavailable
from collector.metrics import Metrics
from collector.rows import SpanRow
from collector.writer import ROWS_PER_INSERT, SpanWriter


def rows(count: int) -> list[SpanRow]:
    """`count` spans that arrived just now."""
    made = span()
    [one], _ = span_rows(request_of(made), "default", made.start_time_unix_nano // 1_000_000)
    return [dataclasses.replace(one, span_id=f"{number:016x}", start_ns=number + 1) for number in range(count)]


async def count(db: Database) -> int:
    """Rows in the store."""
    [row] = await db.query("SELECT count() AS n FROM spans")
    return int(row["n"])


class Counting(Database):
    """A database that remembers the size of each insert."""

    sizes: list[int]

    async def insert(self, table: str, rows: Sequence[Any], *, token: str) -> None:
        """As usual, and remembered."""
        self.sizes.append(len(rows))
        await super().insert(table, rows, token=token)


@pytest.fixture
def counting(db: Database) -> Counting:
    """`db`, remembering."""
    db.__class__ = Counting
    assert isinstance(db, Counting)
    db.sizes = []
    return db


async def test_requests_at_once_share_inserts(counting: Counting) -> None:
    writer = SpanWriter(counting, Metrics())
    many = rows(200)
    first = asyncio.create_task(writer.write(many[:1]))

    async def began() -> bool:
        return bool(counting.sizes)

    await eventually(began)
    await asyncio.gather(first, *(writer.write([row]) for row in many[1:]))
    assert await count(counting) == 200
    assert counting.sizes == [1, 199], "the first at once, all that came meanwhile together"


async def test_a_large_write_goes_in_pieces_and_is_whole(counting: Counting) -> None:
    await SpanWriter(counting, Metrics()).write(rows(ROWS_PER_INSERT + 5))
    assert await count(counting) == ROWS_PER_INSERT + 5
    assert counting.sizes == [ROWS_PER_INSERT, 5]


async def test_a_request_that_cannot_be_stored_takes_no_other_with_it(db: Database) -> None:
    writer = SpanWriter(db, Metrics())
    good, bad = rows(3), dataclasses.replace(rows(1)[0], kind=-1)
    results = await asyncio.gather(
        writer.write(good[:1]), writer.write([bad]), writer.write(good[1:]), return_exceptions=True
    )
    assert results[0] is None
    assert results[2] is None
    assert isinstance(results[1], StoreUnavailable), "the sender is asked to keep what a bug of ours cannot store"
    assert await count(db) == 3


async def test_a_client_that_goes_away_disturbs_nobody(db: Database) -> None:
    writer = SpanWriter(db, Metrics())
    many = rows(50)
    tasks = [asyncio.create_task(writer.write([row])) for row in many]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in results if result is not None and not isinstance(result, asyncio.CancelledError)] == []
    await writer.close()
    assert await count(db) >= 25


async def test_closing_writes_what_waits(db: Database) -> None:
    writer = SpanWriter(db, Metrics())
    waiting = [asyncio.create_task(writer.write([row])) for row in rows(30)]
    await asyncio.sleep(0)
    await writer.close()
    await asyncio.gather(*waiting)
    assert await count(db) == 30
