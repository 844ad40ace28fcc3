"""Real receivers on loopback: an HTTP server and a mail server that keep what they are given."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from aiosmtpd.controller import Controller


@dataclass(frozen=True)
class Got:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class HttpSink:
    """`answers`: statuses for the next requests; then 202."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)


@contextmanager
def http_sink() -> Iterator[HttpSink]:
    """A server that takes anything."""
    sink, lock = HttpSink(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                sink.got.append(Got(self.command, self.path, headers, body))
                status = sink.answers.pop(0) if sink.answers else 202
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    sink.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield sink
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class MailSink:
    """Letters, parsed."""

    url: str = ""
    got: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.got.append(cast(EmailMessage, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 taken"


@contextmanager
def mail_sink() -> Iterator[MailSink]:
    """A mail server that takes anything."""
    sink = MailSink()
    with socket.create_server(("127.0.0.1", 0)) as free:  # the library cannot be asked for any free port
        port = free.getsockname()[1]
    controller = Controller(sink, hostname="127.0.0.1", port=port)
    controller.start()
    sink.url = f"smtp://127.0.0.1:{port}"
    try:
        yield sink
    finally:
        controller.stop()
