"""Bytes ↔ OTLP messages: content types, encodings, bounds. Knows nothing of what a span means."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import math
import threading
import zlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import zstandard
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from .errors import BadContentType, BadInput, Overloaded, TooLarge
from .metrics import Metrics

OtlpMessage = TypeVar("OtlpMessage", bound=Message)

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
BODY_LIMIT: Final = "STALLSCOPE_BODY_BYTES"
PIECE_BYTES: Final = 1 << 20
"""Inflated at a time, so that a bomb is noticed at the limit and not after it went off."""
GZIP_INPUT_BYTES: Final = 64 << 10
"""Packed bytes given to the inflater at a time. It copies what it leaves over, so giving it all would cost the square
of the body's size."""
GZIP_MEMBERS: Final = 1_000
BODY_SECONDS: Final = 60.0
"""A body that takes longer to arrive is given up: what it holds of STALLSCOPE_IN_FLIGHT_BYTES is denied to others.
Exporters stop waiting after 10 s themselves."""
RECORDS: Final = 50_000
"""Most resources, scopes and records (each) of one request. An empty one takes 2 bytes, and a thousand times that in
memory and time to walk."""
JSON_CONTAINERS: Final = 3_000_000
"""Most objects and arrays of a JSON body: 50,000 spans of 25 attributes have as many, and each costs microseconds."""
LARGE_BYTES: Final = 4 << 20
"""A protobuf body above it is looked at before it is read, and read alone: it can take thirty times as much memory."""
TINY_FIELDS: Final = 4_000_000
"""Most bytes of a large body with a value of 5 or less: as many as there can be messages of so few bytes, each of which
takes a hundred in memory. Telemetry has one in forty; 64 MiB of empty messages would take 2 GB."""
_TINY: Final = bytes(range(6))
_large: Final = threading.Lock()
ZSTD_WINDOW_BYTES: Final = 8 << 20
"""Largest window that a frame may ask for: what RFC 8878 tells every decoder to allow."""
_GRPC_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 413: 3, 415: 3, 429: 8, 503: 14}
"""google.rpc.Code by HTTP status; 13 (internal) for the rest."""
_LEVELS: Final = ("resource_", "scope_", "spans", "log_records", "metrics")
_HEX_IDS: Final = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


class InFlight:
    """Bytes of request bodies in memory now, over all requests. Shared by threads."""

    def __init__(self, limit_bytes: int, metrics: Metrics) -> None:
        self._limit, self._gauge = limit_bytes, metrics.in_flight
        self._bytes, self._lock = 0, threading.Lock()

    @contextmanager
    def share(self) -> Iterator[Share]:
        """One request's share, given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self._move(-share.taken)

    def _move(self, count: int) -> bool:
        with self._lock:
            if count > 0 and self._bytes + count > self._limit:
                return False
            self._bytes += count
            self._gauge.set(self._bytes)
            return True


class Share:
    """What one request holds of the memory for bodies."""

    __slots__ = ("_all", "taken")

    def __init__(self, in_flight: InFlight) -> None:
        self._all, self.taken = in_flight, 0

    def take(self, count: int) -> None:
        """Raises Overloaded where the memory for bodies is used up."""
        if not self._all._move(count):
            raise Overloaded("too many request bodies are in memory at once (STALLSCOPE_IN_FLIGHT_BYTES)")
        self.taken += count


@dataclass(frozen=True, slots=True)
class Body:
    """A request body as it came, with what is needed to read it."""

    sent: bytes
    encoding: str
    is_json: bool


async def read_body(request: Request, limit_bytes: int, share: Share) -> Body:
    """Take in the body as sent, bounded. Raises BadContentType, TooLarge or Overloaded before reading more."""
    media_type = _media_type(request.headers.get("content-type", ""))
    if media_type not in (PROTOBUF, JSON):
        raise BadContentType(f"Content-Type is {PROTOBUF} or {JSON}, not {media_type[:100] or 'absent'}")
    encoding = request.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip", "x-gzip", "zstd"):
        raise BadContentType(f"Content-Encoding is gzip, zstd or none, not {encoding[:100]}")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise TooLarge(BODY_LIMIT, limit_bytes)
    return Body(await _in_time(_received(request.stream(), limit_bytes, share)), encoding, media_type == JSON)


async def _in_time(receiving: Coroutine[Any, Any, bytes]) -> bytes:
    task = asyncio.create_task(receiving)
    try:
        # Not `wait_for`: before Python 3.12 it can swallow a cancellation that comes together with the result.
        await asyncio.wait({task}, timeout=BODY_SECONDS)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})  # what it took of the share is known from here on
    if task.cancelled():
        raise Overloaded(f"the body did not arrive in {BODY_SECONDS:g} s")
    try:
        return task.result()
    except ClientDisconnect:
        # A worker that is killed while it sends: nobody reads this answer, and it is no fault of ours to be logged.
        raise BadInput("the connection ended before the body did") from None


async def _received(chunks: AsyncIterator[bytes], limit_bytes: int, share: Share) -> bytes:
    received = bytearray()
    async for chunk in chunks:
        if len(received) + len(chunk) > limit_bytes:
            raise TooLarge(BODY_LIMIT, limit_bytes)
        share.take(len(chunk))
        received += chunk
    return bytes(received)


def parse(body: Body, kind: type[OtlpMessage], limit_bytes: int, share: Share) -> OtlpMessage:
    """The message in a body. Long work for a large body: run it beside the event loop.

    Raises BadInput where it cannot be read, TooLarge where it inflates past the limit.
    """
    inflated = inflate(body, limit_bytes, share)
    message = _from_json(inflated, kind) if body.is_json else _from_protobuf(inflated, kind)
    refuse_countless(message)
    return message


def refuse_countless(message: Message) -> None:
    """Bound what all who read the message walk through: `resource_*`, in them `scope_*`, in them the records."""
    level: list[Any] = [message]
    for _ in range(3):
        name = next(field.name for field in level[0].DESCRIPTOR.fields if field.name.startswith(_LEVELS))
        count = sum(len(getattr(part, name)) for part in level)
        if count > RECORDS:
            what = name.replace("_", " ")
            raise TooLarge(f"{what} in one request", RECORDS, what)
        level = [child for part in level for child in getattr(part, name)]
        if not level:
            return


def inflate(body: Body, limit_bytes: int, share: Share) -> bytes:
    """The body with its Content-Encoding undone, bounded while inflating."""
    if body.encoding == "identity":
        return body.sent
    pieces = _unzstd(body.sent) if body.encoding == "zstd" else _gunzip(body.sent)
    inflated = bytearray()
    try:
        for piece in pieces:
            if len(inflated) + len(piece) > limit_bytes:
                raise TooLarge(f"{BODY_LIMIT} (inflated)", limit_bytes)
            share.take(len(piece))
            inflated += piece
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise BadInput(f"the body is no sound {body.encoding}: {error}") from error
    return bytes(inflated)


def _gunzip(data: bytes) -> Iterator[bytes]:
    """A gzip file is one member after another."""
    given, members = 0, 0
    rest = b""  # given to a member, and not used by it
    while rest or given < len(data):
        if members == GZIP_MEMBERS:
            raise BadInput(f"the body is no sound gzip: it has more than {GZIP_MEMBERS} members")
        members += 1
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while not member.eof:
            if not rest:
                rest = data[given : given + GZIP_INPUT_BYTES]
                given += len(rest)
            starved = not rest
            piece = member.decompress(rest, PIECE_BYTES)
            rest = member.unconsumed_tail
            if piece:
                yield piece
            elif starved and not member.eof:
                raise EOFError("it ends too early")
        rest = member.unused_data


def _unzstd(data: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    with decompressor.stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
        while piece := reader.read(PIECE_BYTES):
            yield piece


def _from_protobuf(data: bytes, kind: type[OtlpMessage]) -> OtlpMessage:
    large = len(data) > LARGE_BYTES
    if large and len(data) - len(data.translate(None, _TINY)) > TINY_FIELDS:
        raise TooLarge("bytes of 5 or less in a protobuf body", TINY_FIELDS, "of them")
    try:
        with _large if large else nullcontext():
            return kind.FromString(data)
    except DecodeError as error:
        raise BadInput(f"the body is no {kind.DESCRIPTOR.name}: {error}") from error


def _from_json(data: bytes, kind: type[OtlpMessage]) -> OtlpMessage:
    if data.count(b"{") + data.count(b"[") > JSON_CONTAINERS:
        raise TooLarge("objects and arrays in a JSON body", JSON_CONTAINERS, "of them")
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            raise BadInput(f"the body is no {kind.DESCRIPTOR.name}: it is no JSON object")
        _ids_to_base64(document)
        return json_format.ParseDict(document, kind(), ignore_unknown_fields=True)
    except (ValueError, TypeError, AttributeError, RecursionError, json_format.Error) as error:
        raise BadInput(f"the body is no {kind.DESCRIPTOR.name}: {str(error)[:300]}") from error


def _ids_to_base64(document: dict[str, Any]) -> None:
    """OTLP/JSON writes ids in hex, where the JSON mapping of protobuf has base64. Changes `document`.

    An id that is no hex becomes empty, so that its record is refused alone and not the whole request.
    """
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            for key in _HEX_IDS:
                if isinstance(value.get(key), str):
                    value[key] = _base64_of(value[key])
            waiting.extend(value[key] for key in value if key not in ("attributes", "body"))


def _base64_of(hexadecimal: str) -> str:
    try:
        return base64.b64encode(binascii.unhexlify(hexadecimal)).decode()
    except (binascii.Error, ValueError):
        return ""


def _media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


# ---------------------------------------------------------------------------------------------------------- answers


def success(response: Message, body: Body) -> Response:
    """200 with an Export…ServiceResponse in the request's type."""
    return _answer(200, response, is_json=body.is_json)


def failure(status: int, message: str, content_type: str) -> Response:
    """A google.rpc.Status in the request's type; a type that is not spoken here is answered as protobuf, OTLP's
    default, unless it speaks of JSON."""
    return _answer(status, status_of(status, message), is_json="json" in _media_type(content_type))


def status_of(http_status: int, message: str, retry_after_seconds: float | None = None) -> Status:
    """An error as google.rpc.Status; with RetryInfo where it passes."""
    status = Status(code=_GRPC_CODES.get(http_status, 13), message=message)
    if retry_after_seconds is not None:
        status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=max(1, math.ceil(retry_after_seconds)))))
    return status


def _answer(status: int, message: Message, *, is_json: bool) -> Response:
    if is_json:
        return Response(json_format.MessageToJson(message, indent=None), status, media_type=JSON)
    return Response(message.SerializeToString(), status, media_type=PROTOBUF)
