"""An answer waits for its own spans, requests share inserts, and one bad request takes none with it."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from otlp_bytes import request_of, span
from parts import eventually

from collector import staging
from collector import writer as writer_module
from collector.cli.doctor import _quarantine
from collector.clickhouse import Database
from collector.decode import Rejections, span_rows
from collector.metrics import Metrics
from collector.rows import SPAN_COLUMNS, SpanRow, span_row
from collector.writer import SPANS_PER_INSERT, Request, SpanWriter


def rows(count: int) -> list[SpanRow]:
    """`count` spans that arrived just now."""
    made = span()
    [one], _ = span_rows(request_of(made), "default", made.start_time_unix_nano // 1_000_000)
    return [dataclasses.replace(one, span_id=f"{number + 1:016x}", start_ns=number + 1) for number in range(count)]


def request(some: Sequence[SpanRow]) -> Request:
    """What a request with these spans comes to."""
    return Request.of("default", staging.stage_rows(some, Rejections()))


async def count(db: Database) -> int:
    """Rows in the store."""
    [row] = await db.query("SELECT count() AS n FROM spans")
    return int(row["n"])


class Counting(Database):
    """A database that remembers the size of each insert of spans."""

    sizes: list[int]

    async def insert_message(self, table: str, data: bytes, schema: Path, message: str, *, token: str) -> None:
        """As usual, and remembered."""
        self.sizes.append(staging.count(data))
        await super().insert_message(table, data, schema, message, token=token)


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
    first = asyncio.create_task(writer.write(request(many[:1])))

    async def began() -> bool:
        return bool(counting.sizes)

    await eventually(began)
    await asyncio.gather(first, *(writer.write(request([row])) for row in many[1:]))
    assert await count(counting) == 200
    assert counting.sizes == [1, 199], "the first at once, all that came meanwhile together"
    await writer.close()


async def test_many_large_requests_go_in_several_inserts(counting: Counting) -> None:
    writer, half = SpanWriter(counting, Metrics()), SPANS_PER_INSERT // 2
    many = rows(2 * half + 5)
    pieces = [many[:half], many[half : 2 * half], many[2 * half :]]
    await asyncio.gather(*(writer.write(request(some)) for some in pieces))
    assert await count(counting) == len(many)
    assert counting.sizes == [2 * half, 5]
    await writer.close()


async def test_what_the_store_refuses_is_found_and_set_aside_alone(db: Database) -> None:
    await db.command("ALTER TABLE spans ADD CONSTRAINT sound CHECK name NOT LIKE 'poison%'")
    metrics = Metrics()
    writer, many = SpanWriter(db, metrics), rows(40)
    many[7] = dataclasses.replace(many[7], name="poison one")
    many[8] = dataclasses.replace(many[8], name="poison two")
    await asyncio.gather(writer.write(request(many[:20])), writer.write(request(many[20:])))
    await writer.close()
    select = f"SELECT {SPAN_COLUMNS} FROM spans ORDER BY start_ns"  # noqa: S608 (a constant)
    stored = [span_row(row) for row in await db.query(select)]
    assert stored == [row for row in many if not row.name.startswith("poison")]
    aside = await db.query("SELECT tenant, spans, reason, data FROM quarantine ORDER BY data")
    assert [(row["tenant"], row["spans"]) for row in aside] == [("default", 1), ("default", 1)]
    assert all("sound" in row["reason"] for row in aside), "the store's own reason: the constraint"
    assert {b"poison one" in base64.b64decode(row["data"]) for row in aside} == {True, False}
    assert metrics.quarantined._value.get() == 2
    found = await _quarantine(db)
    assert not found.ok
    assert found.detail.startswith("2 spans")


async def test_the_quarantine_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "QUARANTINE_ROWS", 3)
    await db.command("ALTER TABLE spans ADD CONSTRAINT sound CHECK name NOT LIKE 'poison%'")
    writer = SpanWriter(db, Metrics())
    await writer.write(request([dataclasses.replace(row, name="poison") for row in rows(8)]))
    await writer.close()
    assert await db.query("SELECT count() AS n FROM quarantine") == [{"n": 3}]
    assert await count(db) == 0


async def test_a_client_that_goes_away_disturbs_nobody(db: Database) -> None:
    writer = SpanWriter(db, Metrics())
    tasks = [asyncio.create_task(writer.write(request([row]))) for row in rows(50)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in results if result is not None and not isinstance(result, asyncio.CancelledError)] == []
    await writer.close()
    assert await count(db) >= 25


async def test_closing_writes_what_waits(db: Database) -> None:
    writer = SpanWriter(db, Metrics())
    waiting = [asyncio.create_task(writer.write(request([row]))) for row in rows(30)]
    await asyncio.sleep(0)
    await writer.close()
    await asyncio.gather(*waiting)
    assert await count(db) == 30
