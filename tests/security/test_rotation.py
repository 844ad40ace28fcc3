"""Tokens change while the server runs: the old and the new are both let in for a while, and then the new alone."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from guarded import bearer, token_settings
from parts import eventually, served

from collector import asgi, auth
from collector.auth import KeyRing
from collector.clickhouse import Database
from collector.settings import Settings, SettingsError


@pytest.fixture(params=["embedded"])
def database_url(request: pytest.FixtureRequest, embedded_path: Path) -> str:
    """One engine is enough: tokens are not the store's."""
    return f"chdb://{embedded_path}?database={request.node.name[:40].replace('[', '_').replace(']', '')}"


class Files:
    """Files of tokens, as a mounted Secret has them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.env = {}
        for kind in ("ingest", "read", "admin"):
            self.write(kind, f"acme:{kind}-old")
            self.env[f"STALLSCOPE_{kind.upper()}_TOKENS_FILE"] = str(folder / kind)

    def write(self, kind: str, text: str) -> None:
        """Put another file in its place, as Kubernetes does."""
        fresh = self._folder / f"{kind}.new"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self._folder / kind)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A token of each kind."""
    return Files(tmp_path)


@pytest.fixture
async def client(
    db: Database, files: Files, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A server whose tokens are in files, which it reads often."""
    monkeypatch.setattr(auth, "READ_AGAIN_SECONDS", 0.02)
    settings = Settings.from_env({"STALLSCOPE_DATABASE_URL": database_url, **files.env})
    async with served(asgi.server(settings)) as asking:
        yield asking


async def becomes(client: httpx.AsyncClient, secret: str, status: int) -> None:
    """Wait until the list of requests answers so to this token."""

    async def so() -> bool:
        headers = {"authorization": f"Bearer {secret}"}
        return (await client.get("/api/v1/jobs", headers=headers)).status_code == status

    await eventually(so)


async def test_a_token_is_replaced_without_a_moment_in_which_none_works(
    client: httpx.AsyncClient, files: Files
) -> None:
    await becomes(client, "read-old", 200)
    files.write("read", "acme:read-old,acme:read-new")
    await becomes(client, "read-new", 200)
    await becomes(client, "read-old", 200)
    files.write("read", "acme:read-new\n")
    await becomes(client, "read-old", 401)
    await becomes(client, "read-new", 200)
    signed_in = await client.get("/api/v1/jobs", headers={"cookie": f"{auth.COOKIE}=read-old"})
    assert signed_in.status_code == 401, "who signed in with it is signed out"
    assert "stallscope_token_changes_total" in (await client.get("/metrics")).text


async def test_what_cannot_be_used_leaves_the_earlier_tokens_in_force(
    client: httpx.AsyncClient, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for text in ("bad tenant:x", "acme:read-new,other:read-new"):
        before = len(caplog.records)
        files.write("read", text)

        async def told(before: int = before) -> bool:
            return len(caplog.records) > before

        await eventually(told)
        await becomes(client, "read-old", 200)
    assert "read-new" not in caplog.text


def test_files_that_were_emptied_do_not_open_the_server_to_this_machine(files: Files, tmp_path: Path) -> None:
    ring = KeyRing(Settings.from_env(files.env))
    for kind in ("ingest", "read", "admin"):
        files.write(kind, "")
    ring.read_again()
    assert not ring.tokens.none_set
    assert ring.tokens.may_read("read-old") == "acme"
    (tmp_path / "read").unlink()
    ring.read_again()
    assert ring.tokens.may_read("read-old") == "acme"


def test_a_kind_of_token_may_be_taken_away_whole(files: Files) -> None:
    ring = KeyRing(Settings.from_env(files.env))
    files.write("admin", "")
    ring.read_again()
    assert ring.tokens.may_change("admin-old") is None


def test_what_was_given_as_text_is_what_it_was(files: Files) -> None:
    settings = Settings.from_env({**files.env, "STALLSCOPE_RETENTION_DAYS": "3"})
    files.write("read", "acme:read-new")
    again = settings.read_again()
    assert (again.retention_days, again.read_tokens.get_secret_value()) == (3, "acme:read-new")
    (Path(files.env["STALLSCOPE_READ_TOKENS_FILE"])).write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="STALLSCOPE_READ_TOKENS_FILE"):
        settings.read_again()


@pytest.mark.parametrize(
    ("metrics_tokens", "secret", "status"), [("", "", 401), ("scrape", "", 401), ("scrape", "scrape", 200)]
)
async def test_with_several_tenants_metrics_need_a_token_of_their_own(
    db: Database, settings: Settings, metrics_tokens: str, secret: str, status: int
) -> None:
    guarded = Settings(**{**dict(settings), **token_settings(), "metrics_tokens": metrics_tokens})
    async with served(asgi.server(guarded)) as client:
        answer = await client.get("/metrics", headers={"authorization": f"Bearer {secret}"} if secret else {})
        assert answer.status_code == status
        assert (await client.get("/api/v1/jobs", headers={"authorization": "Bearer scrape"})).status_code in (401, 403)
        assert (await client.get("/metrics", headers=bearer("victim", "admin"))).status_code == 403
