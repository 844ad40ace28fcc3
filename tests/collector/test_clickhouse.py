"""The store behind one face: the same on both engines, bounded, and clear about what went wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clickhouse_server import ClickHouseServer, free_port
from otlp_bytes import RESOURCE
from parts import PASSWORD, server_url
from pydantic import SecretStr

from collector import migrate
from collector.clickhouse import Database, target_of
from collector.errors import StoreRefused, StoreUnavailable
from collector.rows import SPAN_COLUMNS, SpanEvent, SpanLink, SpanRow, span_row
from collector.settings import Settings, SettingsError

HOSTILE = "quote ' \" back \\ tab \t line \n nul \0 bell \a percent %s {x} é 漢 🎉 '; DROP TABLE spans; --"


def row(**changes: object) -> SpanRow:
    """A span with something in every field."""
    whole = SpanRow(
        tenant="default",
        arrived_ms=time.time_ns() // 1_000_000,
        start_ns=2**63 - 1,
        end_ns=2**63 - 1,
        trace_id="ab" * 16,
        span_id="cd" * 8,
        parent_id="ef" * 8,
        job_id=HOSTILE,
        endpoint_id="endpoint-1",
        worker_id="worker-1",
        boot_id="b" * 32,
        name="job.run",
        kind=255,
        status="error",
        status_message=HOSTILE,
        attributes={
            "int": -(2**63),
            "double": 0.1,
            "whole": 3.0,
            "none": None,
            "list": [1, [HOSTILE]],
            "map": {"a": {}},
        },
        resource=dict(RESOURCE),
        events=[SpanEvent("exception", 2**63 - 1, {"exception.message": HOSTILE})],
        links=[SpanLink("00" * 16, "11" * 8, {"n": 1})],
        scope="scope",
    )
    return dataclasses.replace(whole, **changes)


async def read(db: Database) -> list[SpanRow]:
    """All stored spans."""
    return [span_row(record) for record in await db.query(f"SELECT {SPAN_COLUMNS} FROM spans ORDER BY span_id")]  # noqa: S608


async def test_a_row_comes_back_as_it_went_in(db: Database) -> None:
    await db.insert("spans", [row()], token="one")
    assert await read(db) == [row(arrived_ms=(await read(db))[0].arrived_ms)]
    found = await db.query("SELECT span_id FROM spans WHERE job_id = {job:String}", {"job": HOSTILE})
    assert found == [{"span_id": "cd" * 8}]


async def test_fields_of_a_row_are_the_columns_of_its_table(db: Database) -> None:
    described = await db.query("SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'spans'")
    assert [column["name"] for column in described] == [field.name for field in dataclasses.fields(SpanRow)]


async def test_the_same_token_stores_once(db: Database) -> None:
    for span_id in ("11" * 8, "22" * 8):
        await db.insert("spans", [row(span_id=span_id)], token="one token")
    assert [one.span_id for one in await read(db)] == ["11" * 8]


async def test_the_same_span_in_two_batches_becomes_one_by_merging(db: Database) -> None:
    for token in ("one", "two"):
        await db.insert("spans", [row(arrived_ms=1_000_000_000_000)], token=token)
    await db.command("OPTIMIZE TABLE spans FINAL")
    assert len(await read(db)) <= 1  # and none once its age is past: this arrival is long ago


async def test_errors_say_whether_waiting_helps(db: Database) -> None:
    with pytest.raises(StoreUnavailable, match="159"):
        await db.query("SELECT count() FROM numbers(1000000000000)", seconds=0.3)
    with pytest.raises(StoreUnavailable, match="migrations are pending"):
        await db.query("SELECT * FROM no_such_table")
    for wrong in ("SELEC 1", "SELECT {x:Int64}", "SELECT nope FROM spans"):
        with pytest.raises(StoreRefused, match="code"):
            await db.query(wrong)
    with pytest.raises(StoreRefused, match="396"):
        await db.query("SELECT number FROM numbers(11)", max_rows=10)
    with pytest.raises(StoreRefused, match="cannot be stored"):
        await db.insert("spans", [row(start_ns="not a number")], token="bad")
    assert await db.query("SELECT 1 AS one") == [{"one": 1}], "and the handle is as good as before"


async def test_queries_run_side_by_side_and_never_hold_up_the_loop(db: Database) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    async def slow() -> tuple[float, float]:
        [found] = await db.query("SELECT toUnixTimestamp64Micro(now64(6)) AS began, sleep(2)")
        return found["began"] / 1e6, time.time()

    ticking = asyncio.create_task(tick())
    spans = await asyncio.gather(*(slow() for _ in range(4)))
    ticking.cancel()
    assert sorted(began for began, _ in spans)[1] < min(ended for _, ended in spans), "one waited for the other"
    assert ticks > 10


async def test_slow_readers_do_not_hold_up_an_insert(db: Database) -> None:
    slow = [asyncio.create_task(db.query("SELECT sleep(2)")) for _ in range(20)]
    await asyncio.sleep(0)  # they are asked before the insert
    began = time.perf_counter()
    await db.insert("spans", [row()], token="t")
    assert time.perf_counter() - began < 2
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_closed_database_says_so(settings: Settings) -> None:
    db = await Database.open(settings)
    await db.command("DROP DATABASE {name:Identifier}", {"name": db.target.database})
    await db.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await db.query("SELECT 1")


async def test_a_second_process_on_the_embedded_store_is_told_why(embedded_path: Path) -> None:
    code = (
        "import asyncio, sys\nfrom pydantic import SecretStr\n"
        "from collector.clickhouse import Database\nfrom collector.settings import Settings\n"
        "asyncio.run(Database.open(Settings(database_url=SecretStr('chdb://' + sys.argv[1]))))"
    )
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code, str(embedded_path)], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 1
    assert "StoreUnavailable: cannot open the embedded store" in run.stderr
    assert "another process has it open" in run.stderr
    assert "DB::Exception" not in run.stderr, "the engine itself prints nothing"


async def test_a_server_that_is_not_there_or_refuses_the_password(clickhouse: ClickHouseServer) -> None:
    nobody = Settings(database_url=SecretStr(f"clickhouse://127.0.0.1:{free_port()}/x"))
    with pytest.raises(StoreUnavailable):
        await Database.open(nobody)
    wrong = server_url(clickhouse).replace(PASSWORD, "wrong-one")
    with pytest.raises(StoreUnavailable, match="516") as refused:
        await Database.open(Settings(database_url=SecretStr(wrong)))
    assert "wrong-one" not in str(refused.value)


async def test_a_database_outlives_a_restart_of_its_server(tmp_path: Path, clickhouse: ClickHouseServer) -> None:
    users = {"stallscope": {"password": PASSWORD}}
    first = ClickHouseServer(tmp_path / "ch", users=users)
    await asyncio.to_thread(first.start)
    try:
        db = await Database.open(Settings(database_url=SecretStr(server_url(first))))
        await migrate.apply(db, retention_days=14)
        await db.insert("spans", [row()], token="before")
        first.kill()
        with pytest.raises(StoreUnavailable):
            await db.insert("spans", [row(span_id="22" * 8)], token="during")
        second = ClickHouseServer(tmp_path / "ch", users=users, http_port=first.http_port, tcp_port=first.tcp_port)
        await asyncio.to_thread(second.start)
        await db.insert("spans", [row(span_id="22" * 8)], token="during")
        assert [one.span_id for one in await read(db)] == ["22" * 8, "cd" * 8]
        await db.close()
        await asyncio.to_thread(second.stop)
    finally:
        first.kill()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgres://x", "begins with"),
        ("chdb://", "absolute path"),
        ("chdb://relative/path", "absolute path"),
        ("clickhouse:///db", "no host"),
        ("clickhouse://host:port/db", "[Pp]ort"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        target_of(url)


def test_urls_are_read_in_full_and_hide_the_password() -> None:
    target = target_of("clickhouses://us%40er:p%3Aw%2F@db.example/name")
    assert (target.host, target.port, target.user, target.password) == ("db.example", 8443, "us@er", "p:w/")
    assert (target.database, target.secure) == ("name", True)
    assert "p:w/" not in f"{target!r} {target}"
    assert target_of("chdb:///a%20b/c").path == Path("/a b/c")
