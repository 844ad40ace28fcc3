"""Connections that cost only themselves: uvicorn bounds neither the time of a request's head nor dead peers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS: Final = 20.0
"""How long a connection may take to send the head of a request, from its opening or from the head's first byte."""
IDLE_SECONDS: Final = 60
"""A peer that has been silent for so long is asked whether it is still there (TCP keep-alive),"""
PROBES: Final = 3
"""and given up after as many unanswered questions, ten seconds apart."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol that gives up a connection whose next head does not come to an end."""

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._stop_waiting()
        self._giving_up = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


def notice_dead_peers(listener: socket.socket) -> None:
    """Connections that `listener` accepts find out when their peer is gone without a word."""
    options: dict[str, Any] = {"TCP_KEEPIDLE": IDLE_SECONDS, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": PROBES}
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):  # not all of them on every system
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
