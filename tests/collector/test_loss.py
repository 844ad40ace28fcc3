"""Collector and ClickHouse killed at random moments under load: nothing acknowledged is lost, nothing is shown twice.

Half of the rounds with a journal, half without; then the store is away for a while. `make soak` plays fifty rounds and
keeps the store away for a minute; here it is a few rounds and seconds.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from clickhouse_server import ClickHouseServer, free_port
from collector_process import started
from otlp_bytes import PROTOBUF, request_of, span
from parts import PASSWORD, eventually, server_url
from pydantic import SecretStr

from collector import migrate
from collector.clickhouse import Database
from collector.settings import Settings

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "4"))
AWAY_SECONDS = float(os.environ.get("SOAK_AWAY_SECONDS", "1.5"))
SENDERS, SPANS = 4, 20
RESTART_SECONDS = 180
"""A process that starts on a busy machine."""


@dataclass
class Collector:
    """The process, wherever it listens now."""

    environment: dict[str, str]
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, on a port of its own."""
        self.port = free_port()
        self.process = started(self.port, self.environment)

    def kill(self) -> None:
        """End at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)


@dataclass
class Senders:
    """Exporters that send a batch again until it is acknowledged."""

    collector: Collector
    acked: set[str] = field(default_factory=set)
    stopping: bool = False
    answers: dict[int, int] = field(default_factory=dict)

    async def send(self) -> None:
        """Batch after batch, until told to stop; a batch that was begun is brought to its end."""
        async with httpx.AsyncClient(headers=PROTOBUF, timeout=60) as client:
            while not self.stopping:
                spans = [span() for _ in range(SPANS)]
                body = request_of(*spans).SerializeToString()
                while not await self._sent(client, body):  # noqa: ASYNC110 (a process answers, or not yet)
                    await asyncio.sleep(0.05)
                self.acked.update(one.span_id.hex() for one in spans)

    async def _sent(self, client: httpx.AsyncClient, body: bytes) -> bool:
        try:
            answer = await client.post(f"http://127.0.0.1:{self.collector.port}/v1/traces", content=body)
        except httpx.TransportError:
            return False
        self.answers[answer.status_code] = self.answers.get(answer.status_code, 0) + 1
        return answer.status_code == 200


@dataclass
class Scene:
    """A store, a collector and their senders."""

    store: ClickHouseServer
    collector: Collector
    senders: Senders
    db: Database
    tasks: list[asyncio.Task[None]]

    async def more_acked(self) -> None:
        """Wait until the senders get on."""
        before = len(self.senders.acked)

        async def grown() -> bool:
            return len(self.senders.acked) > before

        await eventually(grown, RESTART_SECONDS)

    async def everything_is_there_once(self) -> None:
        """Let the senders finish and compare."""
        self.senders.stopping = True
        await asyncio.gather(*self.tasks)

        async def all_stored() -> bool:
            rows = await self.db.query("SELECT DISTINCT span_id FROM spans", max_rows=10_000_000)
            return {row["span_id"] for row in rows} >= self.senders.acked

        await eventually(all_stored, RESTART_SECONDS)
        twice = "SELECT span_id FROM spans FINAL GROUP BY span_id HAVING count() > 1"
        assert await self.db.query(twice) == []
        assert set(self.senders.answers) <= {200, 503}


@pytest.fixture(params=["", "journal"], ids=["acknowledged-by-the-store", "acknowledged-by-the-journal"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """Everything running and under load."""
    store = ClickHouseServer(tmp_path / "ch", users={"stallscope": {"password": PASSWORD}}, log_level="warning")
    store.start()
    url = server_url(store)
    environment = {"STALLSCOPE_DATABASE_URL": url}
    if request.param:
        environment["STALLSCOPE_JOURNAL_DIR"] = str(tmp_path / "journal")
    collector = Collector(environment)
    db = await Database.open(Settings(database_url=SecretStr(url)))
    try:
        await migrate.apply(db, retention_days=14)
        collector.start()
        senders = Senders(collector)
        tasks = [asyncio.create_task(senders.send()) for _ in range(SENDERS)]
        made = Scene(store, collector, senders, db, tasks)
        await made.more_acked()
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        collector.kill()
        await db.close()
        store.kill()


@pytest.mark.timeout(600 + 60 * ROUNDS + 4 * AWAY_SECONDS)
async def test_kills_and_an_absent_store_lose_nothing_and_show_nothing_twice(scene: Scene) -> None:
    chance = random.Random(ROUNDS)  # noqa: S311
    for number in range(ROUNDS // 2):
        await scene.more_acked()
        await asyncio.sleep(chance.random())
        if number % 2:
            await asyncio.to_thread(scene.store.kill)
            await asyncio.to_thread(scene.store.start)
        else:
            scene.collector.kill()
            scene.collector.start()
    await scene.more_acked()
    await asyncio.to_thread(scene.store.kill)
    await asyncio.sleep(AWAY_SECONDS)
    if "STALLSCOPE_JOURNAL_DIR" in scene.collector.environment:
        await scene.more_acked()
    await asyncio.to_thread(scene.store.start)
    await scene.more_acked()
    await scene.everything_is_there_once()
