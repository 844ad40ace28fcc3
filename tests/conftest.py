"""Shared real parts: a ClickHouse of each kind, the application in this process, a clock that only moves when told."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import clickhouse_connect
import httpx
import pytest
from clickhouse_server import ClickHouseServer, find_library
from parts import PASSWORD, Clock, served, server_url, skip_or_fail
from pydantic import SecretStr

from collector import migrate
from collector.clickhouse import Database
from collector.settings import Settings


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """A real server for the session."""
    try:
        find_library()
    except FileNotFoundError as error:
        skip_or_fail(f"no ClickHouse server: {error}")
    users = {
        "stallscope": {"password": PASSWORD},
        "reader": {"password": PASSWORD, "grants": ["GRANT SELECT ON *.*"]},
    }
    with ClickHouseServer(tmp_path_factory.mktemp("clickhouse"), users=users, log_level="warning") as server:
        yield server


@pytest.fixture(scope="session")
def embedded_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The one path of the embedded engine in this process: another is refused while it is open.

    A handle is kept open for the session, so that the engine is started once and not for every test.
    """
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    path = tmp_path_factory.mktemp("embedded") / "store"
    handle = clickhouse_connect.get_client(interface="chdb", path=str(path))
    yield path
    handle.close()


@pytest.fixture(params=["embedded", "server"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Where a fresh, empty database is, on each of the two engines in turn."""
    if request.param == "server":
        return server_url(request.getfixturevalue("clickhouse"))
    return f"chdb://{request.getfixturevalue('embedded_path')}?database=test_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(database_url: str) -> Settings:
    """Settings with a store of their own and no tokens."""
    return Settings(database_url=SecretStr(database_url))


@pytest.fixture
async def empty_db(settings: Settings) -> AsyncIterator[Database]:
    """A database without tables."""
    db = await Database.open(settings)
    yield db
    await db.command("DROP DATABASE IF EXISTS {name:Identifier}", {"name": db.target.database})
    await db.close()


@pytest.fixture
async def db(empty_db: Database, settings: Settings) -> Database:
    """A database with all tables."""
    await migrate.apply(empty_db, retention_days=settings.retention_days)
    return empty_db


@pytest.fixture
async def server(db: Database, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole application, on a store of its own that `db` reads too."""
    from collector import asgi  # brings every page and rule: only for the tests that want the whole

    async with served(asgi.server(settings)) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    """A clock that the test moves."""
    return Clock()
