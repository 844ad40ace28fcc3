"""OTLP/gRPC: another way to the same functions as `ingest`. Knows calls, messages and status codes; no meaning.

gRPC's own reading would hold messages and what they inflate to in memory that nobody counts, before any token was
looked at. So a call is taken as a stream of one message, which is read when its sender is known and there is room,
and inflating is left to `otlp`, which has the bounds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import Message

from . import ingest, otlp
from .app import Parts, problem_of
from .auth import Sender, sender_of, sender_on_this_machine
from .errors import BadInput, Overloaded, StallscopeError
from .tls import TlsFiles, grpc_credentials

log = logging.getLogger(__name__)

MESSAGE_BYTES: Final = 16 << 20
"""Most bytes of a message as sent, where STALLSCOPE_BODY_BYTES is not smaller: four times what gRPC takes by default.
Unlike HTTP it does not tell how long a message is, so one that is being read counts as this long."""
READ_SECONDS: Final = 15.0
"""How long a call may wait for its turn and take to send its message."""
DRAIN_SECONDS: Final = 10.0
"""How long open calls may take to end when the server stops."""
GZIP: Final = b"\x1f\x8b"
"""What gzip begins with. No protobuf does: 0x1f would be a field of wire type 7, which does not exist."""
_IDENTITY_AND_GZIP: Final = 1 << 0 | 1 << 2

_SERVICES: Final[tuple[tuple[str, str, ingest.Take], ...]] = (
    ("opentelemetry.proto.collector.trace.v1.TraceService", "traces", ingest.take_traces),
    ("opentelemetry.proto.collector.logs.v1.LogsService", "logs", ingest.take_logs),
    ("opentelemetry.proto.collector.metrics.v1.MetricsService", "metrics", ingest.take_metrics),
)

Messages: TypeAlias = AsyncIterator[bytes]
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class GrpcEdge:
    """A port that speaks OTLP/gRPC. Its `open` is an `app.Edge`."""

    def __init__(self, host: str, port: int, tls: TlsFiles | None = None) -> None:
        self._host, self.port, self._tls = host, port, tls
        self._server: grpc.aio.Server | None = None
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def open(self, parts: Parts) -> AsyncIterator[None]:
        """Listen; `port` is then the real one, also where 0 was asked for. Raises RuntimeError where it is taken."""
        self._server = _server(parts)
        address = f"{_bracketed(self._host)}:{self.port}"
        if self._tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, grpc_credentials(self._tls))
        await self._server.start()
        try:
            yield
        finally:
            await self.begin_to_close()

    def begin_to_close(self) -> asyncio.Task[None]:
        """Take no new call and give open ones their time. What it returns is done when the last has ended."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close-grpc")
        return self._closing

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.stop(DRAIN_SECONDS)


def _server(parts: Parts) -> grpc.aio.Server:
    limit = min(parts.settings.body_bytes, MESSAGE_BYTES)
    server = grpc.aio.server(
        options=[
            ("grpc.keepalive_time_ms", 60_000),  # a peer that is gone without a word is noticed
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.server_handshake_timeout_ms", 20_000),  # of a connection that says nothing; gRPC's own are 120
            ("grpc.so_reuseport", 0),  # two servers on one port would each get half of the calls
            ("grpc.max_receive_message_length", limit),
            ("grpc.per_message_decompression", 0),
            ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
        ]
    )
    turns = asyncio.Semaphore(max(1, parts.settings.in_flight_bytes // limit))
    for service, signal, take in _SERVICES:
        method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(
            _Method(parts, turns, signal, take).export
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    return server


@dataclass(frozen=True, slots=True)
class _Method:
    """`Export` of one signal."""

    parts: Parts
    turns: asyncio.Semaphore
    signal: str
    take: ingest.Take

    async def export(self, messages: Messages, context: Context) -> bytes:
        try:
            with self.parts.metrics.grpc_calls.track_inprogress():
                answer = await self._answer(messages, context)
        except grpc.aio.BaseError:  # ours by gRPC's own `abort`, or its loss of the call
            raise
        except Exception as error:  # broad: whatever it was, the sender must be told whether to send again
            await self._refuse(error, context)
            raise AssertionError("abort does not return") from error
        self._count(200)
        return answer.SerializeToString()

    async def _answer(self, messages: Messages, context: Context) -> Message:
        sender = _sender(self.parts, context)
        self.parts.rates.admit(sender.token)
        self.parts.congestion.refuse_when_late()
        with self.parts.in_flight.share() as share:
            body = await self._read(messages, share)
            with self.parts.congestion.waiting():
                return await self.take(ingest.Delivery(self.parts, sender, body, share))

    async def _read(self, messages: Messages, share: otlp.Share) -> otlp.Body:
        try:
            return await asyncio.wait_for(self._in_turn(messages, share), READ_SECONDS)
        except asyncio.TimeoutError:
            raise Overloaded(f"the message was not read within {READ_SECONDS:g} s") from None

    async def _in_turn(self, messages: Messages, share: otlp.Share) -> otlp.Body:
        async with self.turns:
            async for message in messages:
                share.take(len(message))
                return otlp.Body(message, "gzip" if message.startswith(GZIP) else "identity", is_json=False)
        raise BadInput("the call holds no message")

    async def _refuse(self, error: Exception, context: Context) -> None:
        problem = problem_of(error)
        if problem.status >= 500 and not problem.retryable:
            log.error("OTLP/gRPC %s: %s", self.signal, problem.code, exc_info=error)
        self._count(problem.status)
        retry_after = error.retry_after_seconds if isinstance(error, StallscopeError) else None
        status = otlp.status_of(problem.status, problem.detail, retry_after)
        details = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(_CODES[status.code], problem.detail, details)

    def _count(self, status: int) -> None:
        self.parts.metrics.requests.labels(self.signal, str(status)).inc()


_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def _sender(parts: Parts, context: Context) -> Sender:
    """Raises NotSignedIn or NotAllowed."""
    if parts.tokens.none_set:
        return sender_on_this_machine(parts.tokens, _host_of(context.peer()))
    told = dict(context.invocation_metadata() or ())
    return sender_of(parts.tokens, str(told.get("authorization", "")))


def _host_of(peer: str) -> str:
    """`ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000` → the address."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
