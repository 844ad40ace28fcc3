"""Who changed what: on record before it is done, for the administrator of that tenant alone."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from urllib.parse import quote

import httpx
import pytest
from clickhouse_server import ClickHouseServer
from guarded import TOKEN, bearer, token_settings
from parts import PASSWORD, served, server_url

from collector import asgi, migrate
from collector.clickhouse import Database
from collector.settings import Settings
from collector.watch.ledger import Condition, changes, write

KEY = quote("bad_host:a/b:1", safe="")


@pytest.fixture
async def db(clickhouse: ClickHouseServer) -> AsyncIterator[Database]:
    """A store with one finding of the victim."""
    db = await Database.open(Settings(database_url=server_url(clickhouse)))  # type: ignore[arg-type]
    await migrate.apply(db, retention_days=14)
    now = datetime.now(timezone.utc)
    await write(db, changes({}, [Condition("victim", "bad_host", "a/b", "error", now, "a host is bad")], now))
    yield db
    await db.close()


@pytest.fixture
async def client(db: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A dashboard over it."""
    url = f"clickhouse://stallscope:{PASSWORD}@{db.target.host}:{db.target.port}/{db.target.database}"
    settings = Settings(database_url=url, **token_settings())  # type: ignore[arg-type]
    async with served(asgi.dashboard_only(settings)) as asking:
        yield asking


async def test_each_change_is_on_record_with_who_asked_for_it(client: httpx.AsyncClient) -> None:
    path = f"/api/v1/findings/{KEY}/acknowledge"
    assert (await client.post(path, headers=bearer("victim", "admin"))).status_code == 200
    secret = "sk-" + "a1B2" * 8
    assert (
        await client.post(f"/api/v1/findings/{secret}/reopen", headers=bearer("victim", "admin"))
    ).status_code == 404
    assert (await client.post(path, headers=bearer("victim", "read"))).status_code == 403
    assert (await client.post(path, headers=bearer("attacker", "admin"))).status_code == 404
    answer = (await client.get("/api/v1/audit", headers=bearer("victim", "admin"))).json()
    second, first = answer["items"]
    name = hashlib.sha256(TOKEN["victim", "admin"].encode()).hexdigest()[:12]
    assert set(first) == {"at", "token", "address", "request"}
    assert (first["token"], first["address"], first["request"]) == (name, "127.0.0.1", f"POST {path}")
    assert secret not in second["request"]
    assert second["request"].endswith("/reopen")
    page = (await client.get("/api/v1/audit?limit=1", headers=bearer("victim", "admin"))).json()
    following = f"/api/v1/audit?limit=1&cursor={page['next_cursor']}"
    assert (await client.get(following, headers=bearer("victim", "admin"))).json()["items"] == [first]


async def test_it_is_for_administrators_of_that_tenant(client: httpx.AsyncClient) -> None:
    assert (await client.post(f"/api/v1/findings/{KEY}/acknowledge", headers=bearer("victim", "admin"))).is_success
    assert (await client.get("/api/v1/audit", headers=bearer("victim", "read"))).status_code == 403
    assert (await client.get("/api/v1/audit", headers=bearer("attacker", "admin"))).json()["items"] == []


async def test_without_a_record_there_is_no_change(client: httpx.AsyncClient, db: Database) -> None:
    await db.command("RENAME TABLE audit TO audit_away")
    done = await client.post(f"/api/v1/findings/{KEY}/acknowledge", headers=bearer("victim", "admin"))
    assert done.status_code >= 500
    (finding,) = (await client.get("/api/v1/findings", headers=bearer("victim", "read"))).json()["items"]
    assert finding["state"] == "open"
