"""What the SDK's HTTP session does, through aiohttp's own tracing: every try with its answer, retries included."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import aiohttp

from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import delivery
from sdk_exporter.hooks.channels import Poll
from sdk_exporter.hooks.life import worker

poll: ContextVar[Poll | None] = ContextVar("stallscope_poll", default=None)
"""The poll that the running task makes."""


def trace_config() -> aiohttp.TraceConfig:
    """A new one per session: aiohttp freezes it. Requests that belong to no poll and no result cost two look-ups."""
    config = aiohttp.TraceConfig()
    config.on_request_start.append(_on_start)
    config.on_request_chunk_sent.append(_on_sent)
    config.on_request_end.append(_on_end)
    config.on_request_exception.append(_on_exception)
    config.on_response_chunk_received.append(_on_received)
    return config


async def stay_while_leaving() -> None:
    """No poll goes out any more: the process ends while it waits here."""
    if worker.is_leaving:
        await asyncio.Event().wait()


@never_raise
def note_connections(session: Any) -> None:
    """Let each poll know its connection: what lies unread in it at the worker's end was an answer."""
    connector = session.connector
    connect = connector.connect

    async def connect_and_note(*args: Any, **kwargs: Any) -> Any:
        connection = await connect(*args, **kwargs)
        asked = poll.get()
        if asked is not None:
            await stay_while_leaving()
            asked.transport = getattr(connection, "transport", None)
        return connection

    connector.connect = connect_and_note


# A trace's callback that raises would fail the request: nothing here may. What can go wrong in delivery is guarded
# there; attribute access on aiohttp's own parameters is all that is left.


async def _on_start(_session: Any, _context: SimpleNamespace, _params: Any) -> None:
    result = delivery.current.get()
    if result is not None:
        result.try_begins()


async def _on_sent(_session: Any, _context: SimpleNamespace, params: aiohttp.TraceRequestChunkSentParams) -> None:
    result = delivery.current.get()
    if result is not None:
        result.sent(len(params.chunk))


async def _on_end(_session: Any, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams) -> None:
    result = delivery.current.get()
    if result is not None:
        result.answered(params.response.status)
    asked = poll.get()
    if asked is not None:
        asked.status = params.response.status
        asked.content_type = params.response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


async def _on_exception(_session: Any, _context: SimpleNamespace, params: aiohttp.TraceRequestExceptionParams) -> None:
    result = delivery.current.get()
    if result is not None:
        result.failed(params.exception)


async def _on_received(
    _session: Any, _context: SimpleNamespace, params: aiohttp.TraceResponseChunkReceivedParams
) -> None:
    asked = poll.get()
    if asked is not None:
        asked.body = params.chunk
