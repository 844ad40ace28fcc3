"""A connection that says nothing, or never ends what it says, is given up; one that works is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from otlp_bytes import request_of, span
from parts import PATIENCE_SECONDS

from collector import health, http_bounds, ingest
from collector.app import create_app
from collector.settings import Settings

HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
ENOUGH_SECONDS = 1.5


@pytest.fixture
async def port(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """A collector on its own port, as `stallscope serve` runs it, that waits for a head a moment only."""
    monkeypatch.setattr(http_bounds, "HEAD_SECONDS", ENOUGH_SECONDS)
    listener = socket.create_server(("127.0.0.1", 0))
    http_bounds.notice_dead_peers(listener)
    app = create_app(settings, [ingest.router, health.router])
    server = uvicorn.Server(uvicorn.Config(app, http=http_bounds.BoundedHttp, log_level="warning", access_log=False))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110 (the server sets a flag)
        await asyncio.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait for the other side to hang up."""
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", b"POST", HEAD, HEAD + b"X-Slow: a"])
async def test_a_head_that_never_ends_is_given_up(port: int, said: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    assert await closed(reader)
    writer.close()


async def test_a_second_head_on_a_kept_connection_is_bounded_too(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in await reader.readuntil(b'ok"}')
    writer.write(b"GET /healthz HTTP/1.1\r\nX-Slow:")
    assert await closed(reader)
    writer.close()


async def test_many_silent_connections_keep_no_other_from_being_answered(port: int) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in await reader.readuntil(b'ok"}')
    assert all(await asyncio.gather(*(closed(one) for one, _ in silent)))
    for _, one in [*silent, (reader, writer)]:
        one.close()


async def test_a_body_may_take_longer_than_a_head(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = request_of(span()).SerializeToString()
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:10])
    await asyncio.sleep(2 * ENOUGH_SECONDS)
    writer.write(body[10:])
    status = await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS)
    assert status.split()[1] in (b"200", b"503"), "answered: the store has no tables where nobody made them"
    writer.close()
