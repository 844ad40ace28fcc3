"""A platform that does as a script says, and a whole server that polls it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from parts import served
from scripted import ENDPOINT, KEY

from collector import asgi
from collector.clickhouse import Database
from collector.demo.platform import Platform, running_platform
from collector.platform.poller import Poller
from collector.settings import Settings


@pytest.fixture
def database_url(embedded_path: Path) -> str:
    """Here the embedded engine alone: what is stored goes through the same writer on both."""
    return f"chdb://{embedded_path}?database=test_{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    """Knows one endpoint without workers."""
    async with running_platform() as platform:
        platform.fleets.endpoint(ENDPOINT)
        yield platform


@pytest.fixture
def polling(settings: Settings, platform: Platform, tmp_path: Path) -> Settings:
    """Settings of a server that polls it ten times a second, with the key in a file."""
    (tmp_path / "key").write_text(KEY)
    more = {"PLATFORM_KEY_FILE": tmp_path / "key", "PLATFORM_SECONDS": "0.1"}
    more |= {"PLATFORM_API_URL": f"{platform.base}/v2", "PLATFORM_INVOKE_URL": f"{platform.base}/v2"}
    more |= {"DATABASE_URL": settings.database_url.get_secret_value(), "DIGEST_SECONDS": "0.2"}
    return Settings.from_env({f"STALLSCOPE_{name}": str(value) for name, value in more.items()})


@pytest.fixture
async def polled(db: Database, polling: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the whole server, which polls."""
    async with served(asgi.server(polling, [Poller(polling, requests_a_minute=60_000).open])) as client:
        yield client
