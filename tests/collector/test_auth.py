"""Tokens: three kinds, each for its own, each seeing its tenant alone. Without any, this machine only."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from clickhouse_server import ClickHouseServer
from fastapi import APIRouter
from google.rpc.status_pb2 import Status
from otlp_bytes import PROTOBUF, request_of, span
from parts import served, server_url
from pydantic import SecretStr

from collector import auth, ingest, migrate
from collector.app import create_app
from collector.auth import AdminTenant, ReadTenant, Tokens
from collector.clickhouse import Database
from collector.settings import Settings, SettingsError

router = APIRouter()


@router.get("/read")
def read(tenant: ReadTenant) -> str:
    """Whose pages these are."""
    return tenant


@router.get("/change")
def change(tenant: AdminTenant) -> str:
    """Whose things these are."""
    return tenant


def tokens(**changes: str) -> Settings:
    """Settings with tokens for two tenants."""
    written = {
        "ingest_tokens": "acme:in-a,other:in-o",
        "read_tokens": "acme:read-a,lone",
        "admin_tokens": "acme:admin-a",
    }
    return Settings(**{name: SecretStr(value) for name, value in {**written, **changes}.items()})


@pytest.fixture
async def client(clickhouse: ClickHouseServer) -> AsyncIterator[httpx.AsyncClient]:
    """A server with tokens."""
    settings = tokens(database_url=server_url(clickhouse))
    db = await Database.open(settings)
    await migrate.apply(db, retention_days=14)
    async with served(create_app(settings, [router, ingest.router])) as client:
        yield client
        await db.close()


def bearer(secret: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {secret}"}


@pytest.mark.parametrize(
    ("path", "secret", "status", "tenant"),
    [
        ("/read", "read-a", 200, "acme"),
        ("/read", "lone", 200, "default"),
        ("/read", "admin-a", 200, "acme"),
        ("/read", "in-a", 403, None),
        ("/read", "read-", 401, None),
        ("/read", "", 401, None),
        ("/change", "admin-a", 200, "acme"),
        ("/change", "read-a", 403, None),
    ],
)
async def test_each_kind_opens_its_own(
    client: httpx.AsyncClient, path: str, secret: str, status: int, tenant: str | None
) -> None:
    for headers in (bearer(secret), {"cookie": f"{auth.COOKIE}={secret}"}):
        answer = await client.get(path, headers=headers)
        assert answer.status_code == status
        if tenant:
            assert answer.json() == tenant
        else:
            assert answer.json()["code"] == "auth_error"


async def test_spans_belong_to_the_tenant_of_the_token(client: httpx.AsyncClient) -> None:
    body = request_of(span()).SerializeToString()
    for secret in ("in-a", "in-o"):
        assert (
            await client.post("/v1/traces", content=body, headers={**PROTOBUF, **bearer(secret)})
        ).status_code == 200
    db: Database = client._transport.app.state.parts.db  # type: ignore[attr-defined]
    found = await db.query("SELECT tenant FROM spans ORDER BY tenant")
    assert [row["tenant"] for row in found] == ["acme", "other"]


@pytest.mark.parametrize(("secret", "status"), [("read-a", 403), ("wrong", 401), ("", 401)])
async def test_spans_without_an_ingest_token_are_refused_before_they_are_read(
    client: httpx.AsyncClient, secret: str, status: int
) -> None:
    answer = await client.post("/v1/traces", content=b"garbage", headers={**PROTOBUF, **bearer(secret)})
    assert answer.status_code == status
    assert "STALLSCOPE_INGEST_TOKENS" in Status.FromString(answer.content).message
    cookie = {"cookie": f"{auth.COOKIE}=in-a"}
    by_cookie = await client.post("/v1/traces", content=b"", headers={**PROTOBUF, **cookie})
    assert by_cookie.status_code == 401, "another site could make a browser send its cookie"


@pytest.mark.parametrize(
    ("peer", "host", "insecure", "status"),
    [
        ("127.0.0.1", "127.0.0.1:4318", False, 200),
        ("::1", "[::1]:4318", False, 200),
        ("127.0.0.1", "localhost", False, 200),
        ("10.0.0.7", "127.0.0.1:4318", False, 403),
        ("127.0.0.1", "evil.example", False, 403),
        ("10.0.0.7", "collector.example", True, 200),
    ],
)
async def test_without_tokens_this_machine_alone_is_answered(
    clickhouse: ClickHouseServer, peer: str, host: str, insecure: bool, status: int
) -> None:
    settings = Settings(database_url=SecretStr(server_url(clickhouse)), insecure=insecure)
    app = create_app(settings, [router])
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(peer, 1)), base_url="http://x") as client,
    ):
        assert (await client.get("/read", headers={"host": host})).status_code == status


@pytest.mark.parametrize("text", ["acme:", ":secret", "bad tenant:x", "a:same,b:same"])
def test_a_list_that_cannot_be_read_stops_the_server_without_showing_it(text: str) -> None:
    with pytest.raises(SettingsError, match="STALLSCOPE_READ_TOKENS") as refused:
        Tokens.of(tokens(read_tokens=text))
    assert "secret" not in str(refused.value).replace("`tenant:secret` or `secret`", "").replace("the same secret", "")
