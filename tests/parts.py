"""What tests share besides fixtures. Not in `conftest.py`: there are several, and an import would find any of them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import httpx
import pytest
import uvicorn
from clickhouse_server import ClickHouseServer
from fastapi import FastAPI

PASSWORD = "only-for-tests"
PATIENCE_SECONDS = 60
"""For what should take a moment: the machine may be busy."""


def skip_or_fail(reason: str) -> None:
    """A part is missing on this machine: skip by name, but never in CI, where everything is there."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition` is true, generously."""
    until = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < until, "it never became true"
        await asyncio.sleep(0.05)


def server_url(server: ClickHouseServer) -> str:
    """A fresh database on the server, not created yet."""
    return f"clickhouse://stallscope:{PASSWORD}@127.0.0.1:{server.http_port}/test_{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def served(app: FastAPI, **client: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `app`, which runs in this process with its life around it."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://127.0.0.1", **client
        ) as asking,
    ):
        yield asking


@asynccontextmanager
async def on_a_port(app: FastAPI) -> AsyncIterator[str]:
    """The address of `app`, which listens on a free port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    running = asyncio.create_task(server.serve(sockets=[listener]))

    async def started() -> bool:
        return server.started

    await eventually(started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running


@dataclass
class Clock:
    """A time that stands still until told."""

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 1, 12, tzinfo=timezone.utc))

    def advance(self, seconds: float) -> datetime:
        """Move on, and return the new time."""
        self.now += timedelta(seconds=seconds)
        return self.now
