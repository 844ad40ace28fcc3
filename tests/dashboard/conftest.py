"""The pages in front of a real store. One engine is enough here: the queries behind them are held to both elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from browsing import browsing, serving
from parts import PATIENCE_SECONDS, served
from pydantic import SecretStr
from selenium.webdriver import Chrome
from visitors import Visitor

from collector import asgi
from collector.clickhouse import Database
from collector.settings import Settings
from dashboard import surroundings


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the store may take longer than a page waits for what stands around a request."""
    monkeypatch.setattr(surroundings, "SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def database_url(embedded_path: Path) -> str:
    """A fresh database on the embedded engine."""
    return f"chdb://{embedded_path}?database=test_{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def visitor(db: Database, server: httpx.AsyncClient) -> Visitor:
    """A visitor of the whole application."""
    return Visitor(server, db)


@pytest.fixture
async def lost_visitor() -> AsyncIterator[Visitor]:
    """A visitor of an application whose store is away."""
    away = Settings(database_url=SecretStr("clickhouse://u:p@127.0.0.1:9/none"), query_seconds=2)
    async with served(asgi.server(away)) as client:
        yield Visitor(client)


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """The machine's Chromium."""
    with browsing() as chrome:
        yield chrome


@pytest.fixture(scope="module")
def plain_browser() -> Iterator[Chrome]:
    """The same with JavaScript switched off."""
    with browsing(javascript=False) as chrome:
        yield chrome


@pytest.fixture
def address(settings: Settings) -> Iterator[str]:
    """Where a real server answers."""
    with serving(settings) as found:
        yield found
