"""What the journal has acknowledged comes to the store, whatever happens to process, store, disk or file."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from clickhouse_server import ClickHouseServer
from collector_process import started
from otlp_bytes import PROTOBUF, request_of, span
from parts import PASSWORD, eventually, on_a_port, server_url
from pydantic import SecretStr

from collector import health, ingest, metrics, migrate
from collector.app import create_app
from collector.clickhouse import Database
from collector.errors import StoreUnavailable
from collector.journal import SEGMENT_BYTES, Journal
from collector.metrics import Metrics
from collector.settings import Settings, SettingsError
from collector.writer import Batch, Request

LIMIT = 64 << 20


def request(text: str, spans: int = 1) -> Request:
    """A request whose bytes are `text`."""
    return Request("acme", [text.encode()], spans, {f"job-{text[:20]}"}, {("worker-1", "boot-1")})


def texts(batch: Batch | None) -> list[str]:
    """What a batch's requests hold."""
    assert batch is not None
    return [b"".join(one.pieces).decode() for one in batch.requests]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An open, empty journal."""
    made = Journal(tmp_path / "journal", LIMIT, Metrics())
    await made.open()
    yield made
    await made.release()


async def reopened(journal: Journal) -> Journal:
    """As after a kill: nothing is finished, the folder is let go."""
    await journal.release()
    again = Journal(journal.folder, journal.limit_bytes, Metrics())
    await again.open()
    return again


async def test_what_was_added_is_stored_in_order_and_then_forgotten(journal: Journal) -> None:
    await asyncio.gather(*(journal.add(request(str(number))) for number in range(20)))
    assert journal.bytes_waiting > 0
    batch = await journal.next()
    assert texts(batch) == [str(number) for number in range(20)]
    assert batch is not None
    assert batch.requests[3].job_ids == ["job-3"]
    assert batch.requests[3].worker_boots == [("worker-1", "boot-1")]
    await journal.settle(batch, None)
    assert journal.bytes_waiting == 0
    assert journal.age_seconds == 0
    await journal.close()
    assert await journal.next() is None


async def test_after_a_kill_the_batch_that_was_tried_is_the_same_with_the_same_token(journal: Journal) -> None:
    await asyncio.gather(*(journal.add(request(str(number))) for number in range(5)))
    tried = await journal.next()
    again = await reopened(journal)
    await again.add(request("later"))
    assert await again.next() == tried, "what came later is not mixed in"
    assert tried is not None
    await again.settle(tried, None)
    assert texts(await again.next()) == ["later"]
    await again.release()


async def test_a_batch_that_the_store_did_not_take_is_given_again(journal: Journal) -> None:
    await journal.add(request("one"))
    tried = await journal.next()
    assert tried is not None
    await journal.settle(tried, StoreUnavailable("away"))
    assert await journal.next() is tried
    await journal.close()
    await journal.settle(tried, StoreUnavailable("away"))
    assert await journal.next() is None, "a server that stops leaves it on the disk"


async def test_a_torn_or_damaged_end_loses_nothing_that_was_acknowledged_before(journal: Journal) -> None:
    for number in range(3):
        await journal.add(request(f"record {number}"))
    await journal.release()
    [file] = journal.folder.glob("*.journal")
    whole = file.read_bytes()
    for torn in (whole[:-1], whole[: len(whole) // 3 * 3 - 30], whole + b"\x00", whole + os.urandom(40)):
        file.write_bytes(torn)
        again = Journal(journal.folder, LIMIT, Metrics())
        await again.open()
        found = texts(await again.next())
        assert found == [f"record {number}" for number in range(3 if len(torn) > len(whole) else 2)]
        await again.release()
        (journal.folder / "position").unlink()


async def test_damage_in_the_middle_ends_its_file_and_nothing_else(journal: Journal) -> None:
    await journal.add(request("x" * SEGMENT_BYTES))
    await journal.add(request("of the second file"))
    await journal.release()
    first = min(journal.folder.glob("*.journal"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    again = Journal(journal.folder, LIMIT, Metrics())
    await again.open()
    assert texts(await again.next()) == ["of the second file"]
    await again.release()


async def test_stored_files_are_deleted_and_the_cap_is_of_what_waits(tmp_path: Path) -> None:
    journal = Journal(tmp_path, SEGMENT_BYTES + (1 << 20), Metrics())
    await journal.open()
    for _ in range(3):
        await journal.add(request("x" * SEGMENT_BYTES))
        with pytest.raises(StoreUnavailable, match="STALLSCOPE_JOURNAL_BYTES"):
            await journal.add(request("y" * (2 << 20)))
        batch = await journal.next()
        assert batch is not None
        await journal.settle(batch, None)
    await journal.release()
    assert len([name for name in os.listdir(tmp_path) if name.endswith(".journal")]) <= 1


async def test_two_processes_do_not_share_a_folder_and_a_bad_one_is_said(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="another process has"):
        await Journal(journal.folder, LIMIT, Metrics()).open()
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SettingsError, match="cannot use"):
        await Journal(file / "journal", LIMIT, Metrics()).open()


async def test_an_unreadable_position_stores_all_again(journal: Journal) -> None:
    await journal.add(request("one"))
    batch = await journal.next()
    assert batch is not None
    await journal.release()
    (journal.folder / "position").write_text("{half")
    again = Journal(journal.folder, LIMIT, Metrics())
    await again.open()
    assert texts(await again.next()) == ["one"]
    await again.release()


FULL_DISK = """
import asyncio, subprocess, sys
from pathlib import Path
from collector.errors import StoreUnavailable
from collector.journal import Journal
from collector.metrics import Metrics
from collector.writer import Request

async def main():
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
    journal = Journal(folder, 1 << 30, Metrics())
    await journal.open()
    kept = []
    for number in range(400):
        try:
            await journal.add(Request("acme", [b"%08d" % number * 256], 1))
            kept.append(number)
        except StoreUnavailable as error:
            refused = str(error)
    batch, found = await journal.next(), []
    for _ in range(2):
        found += [int(one.pieces[0][:8]) for one in batch.requests]
        await journal.settle(batch, None)
        await journal.add(Request("acme", [b"%08d" % 999 * 256], 1))
        batch = await journal.next()
    print(refused, len(kept) > 50, found == [*kept, 999])
asyncio.run(main())
"""


def test_a_full_disk_is_refused_in_clear_words_and_recovers_by_itself(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", FULL_DISK, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "unshare" in found.stderr and "Operation not permitted" in found.stderr:
        pytest.skip("no private mounts here")
    assert found.stdout == "the journal cannot be written: No space left on device True True\n", found.stderr


# ------------------------------------------------------------------------------------------------- the whole collector


def body(*jobs: str) -> bytes:
    """A request with a span for each job."""
    return request_of(*(span(job_id=job) for job in jobs)).SerializeToString()


async def jobs_of(db: Database) -> list[str]:
    """The stored spans' jobs."""
    return [row["job_id"] for row in await db.query("SELECT job_id FROM spans ORDER BY job_id")]


async def test_the_store_may_be_away_and_what_was_acknowledged_comes_when_it_is_back(tmp_path: Path) -> None:
    store = ClickHouseServer(tmp_path / "ch", users={"stallscope": {"password": PASSWORD}}, log_level="warning")
    store.start()
    try:
        settings = Settings(
            database_url=SecretStr(server_url(store)), journal_dir=str(tmp_path / "journal"), journal_bytes=1 << 20
        )
        db = await Database.open(settings)
        await migrate.apply(db, retention_days=14)
        news: set[str] = set()
        app = create_app(
            settings,
            [ingest.router, health.router, metrics.router],
            on_stored=lambda tenant, job_ids, boots: news.update(job_ids),
        )
        async with on_a_port(app) as url, httpx.AsyncClient(base_url=url, headers=PROTOBUF, timeout=60) as client:
            assert (await client.post("/v1/traces", content=body("while-well"))).status_code == 200

            async def stored(*jobs: str) -> bool:
                return await jobs_of(db) == sorted(jobs)

            await eventually(lambda: stored("while-well"))
            store.kill()
            assert (await client.post("/v1/traces", content=body("while-away"))).status_code == 200
            ready = await client.get("/readyz")
            assert ready.status_code == 503
            assert ready.json()["journal"]["bytes"] > 0
            assert "stallscope_journal_bytes 0.0" not in (await client.get("/metrics")).text
            big = request_of(span(job_id="big", attributes={"x": "x" * 16_000}), *(span() for _ in range(20_000)))
            full = await client.post("/v1/traces", content=big.SerializeToString())
            assert full.status_code == 503
            assert "retry-after" in full.headers
            store.start()
            await eventually(lambda: stored("while-well", "while-away"))
            assert news >= {"while-well", "while-away"}
        await db.close()
    finally:
        store.kill()


@pytest.mark.timeout(600)
async def test_a_killed_collector_stores_what_it_had_acknowledged_when_it_is_back(
    tmp_path: Path, clickhouse: ClickHouseServer, unused_tcp_port: int
) -> None:
    url = server_url(clickhouse)
    environment = {"STALLSCOPE_DATABASE_URL": url, "STALLSCOPE_JOURNAL_DIR": str(tmp_path)}
    address = f"http://127.0.0.1:{unused_tcp_port}/v1/traces"
    db = await Database.open(Settings(database_url=SecretStr(url)))
    process = started(unused_tcp_port, environment)  # without tables: nothing can be stored yet
    acked: list[str] = []
    try:

        async def taken() -> bool:
            try:
                async with httpx.AsyncClient(headers=PROTOBUF, timeout=60) as client:
                    job = f"job-{len(acked)}"
                    if (await client.post(address, content=body(job))).status_code == 200:
                        acked.append(job)
            except httpx.TransportError:
                await asyncio.sleep(0.1)
            return len(acked) == 5

        async def tried() -> bool:
            position = tmp_path / "position"
            return position.exists() and json.loads(position.read_text())["planned"] is not None

        await eventually(taken, 180)
        await eventually(tried)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        await migrate.apply(db, retention_days=14)
        process = started(unused_tcp_port, environment)

        async def there() -> bool:
            return await jobs_of(db) == acked

        await eventually(there, 180)
    finally:
        process.kill()
        process.wait(60)
        await db.close()
