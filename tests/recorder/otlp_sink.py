"""A small real OTLP/HTTP collector for tests: it parses what it is sent, and answers as told."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass
class Answer:
    """What the next request gets."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    rejected: int = 0


@dataclass(frozen=True)
class SeenSpan:
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str]]


class Sink:
    """`with Sink() as sink:` listens on loopback until the end of the block."""

    def __init__(self, port: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self.spans: list[SeenSpan] = []
        self.bodies: list[bytes] = []
        self.requests: list[tuple[float, dict[str, str], int]] = []
        self.answers: list[Answer] = []
        self.always: Answer | None = None
        self._changed = threading.Condition()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                sink._take(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Sink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        raw = gzip.decompress(body) if handler.headers.get("Content-Encoding") == "gzip" else body
        with self._changed:
            answer = self.answers.pop(0) if self.answers else self.always or Answer()
            self.requests.append((time.monotonic(), dict(handler.headers), answer.status))
            self.bodies.append(raw)
            if answer.status == 200:
                self.spans += spans_of(raw)
            self._changed.notify_all()
        response = ExportTraceServiceResponse()
        if answer.rejected:
            response.partial_success.rejected_spans = answer.rejected
            response.partial_success.error_message = "no"
        data = response.SerializeToString()
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", "application/x-protobuf")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def wait_for(self, condition: Callable[[Sink], Any], seconds: float = 30.0) -> Any:
        """The first true value of `condition`, looked at after each request."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not (value := condition(self)):
                left = deadline - time.monotonic()
                assert left > 0, f"only {[span.name for span in self.spans]} came"
                self._changed.wait(left)
            return value

    def named(self, name: str) -> list[SeenSpan]:
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> SeenSpan:
        (span,) = self.named(name)
        return span


def spans_of(raw: bytes) -> list[SeenSpan]:
    return [
        SeenSpan(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.status.code,
            {item.key: _value(item.value) for item in span.attributes},
            {item.key: _value(item.value) for item in group.resource.attributes},
            [(event.name, {item.key: _value(item.value) for item in event.attributes}) for event in span.events],
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        )
        for group in ExportTraceServiceRequest.FromString(raw).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
