"""Asks Runpod: its REST API (v2) for endpoints, workers, releases and logs, its invoke API for the queue.

Within the API's limits: at most `REQUESTS_A_MINUTE`, and nothing at all while a window of its quota is used up or a
`Retry-After` runs. Every answer is bounded in bytes and read without trust.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar
from urllib.parse import quote

import httpx

from collector.platform import views
from collector.platform.views import LogLine, PlatformError

REQUESTS_A_MINUTE: Final = 40
"""Of the 60 that a key may make: others use the key too."""
BURST: Final = 10
ANSWER_BYTES: Final = 8 << 20
LINE_BYTES: Final = 64 << 10
"""Of one line of an event stream; a longer one is no event."""
DATA_LINES: Final = 16
"""Of one event; its rest is left out, and then it is no JSON."""
SECONDS: Final = 15.0
QUIET_SECONDS: Final = 120.0
"""A log stream that says nothing for so long is opened again: its peer may be gone."""
RETRY_AFTER_MAX: Final = 3_600.0
BACKFILL_LINES: Final = 200

View = TypeVar("View")

_WINDOW: Final = re.compile(r'"(\w{1,32})"\s*;\s*r=(\d{1,9})\s*;\s*t=(\d{1,6})')


class _Quota:
    """How often one API may still be asked."""

    def __init__(self, requests_a_minute: float) -> None:
        self._rate = requests_a_minute / 60
        self._allowed, self._counted_at = float(BURST), time.monotonic()
        self._not_before = 0.0

    def wait(self, seconds: float) -> None:
        """Nothing may be asked for so long."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    async def turn(self) -> None:
        """Wait until a request may be made. Raises PlatformError at once where that is long."""
        while True:
            now = time.monotonic()
            wait = self._not_before - now
            if wait > SECONDS:
                raise PlatformError("rate_limited", f"the quota is used up for {wait:.0f} s more", wait)
            self._allowed = min(self._allowed + (now - self._counted_at) * self._rate, float(BURST))
            self._counted_at = now
            if wait <= 0 and self._allowed >= 1:
                self._allowed -= 1
                return
            await asyncio.sleep(max(wait, (1 - self._allowed) / self._rate, 0.01))


class Runpod:
    """One key's view. `read_key` is asked before each request, so that a key that was changed is in force at once."""

    def __init__(
        self,
        api_url: str,
        invoke_url: str,
        read_key: Callable[[], str],
        client: httpx.AsyncClient,
        *,
        requests_a_minute: float = REQUESTS_A_MINUTE,
        count: Callable[[str, str], None] = lambda route, result: None,
    ) -> None:
        self._api, self._invoke = api_url.rstrip("/"), invoke_url.rstrip("/")
        self._read_key, self._client, self._count = read_key, client, count
        # Two APIs, each with limits of its own.
        self._api_quota, self._invoke_quota = _Quota(requests_a_minute), _Quota(requests_a_minute)

    async def endpoints(self) -> tuple[views.Endpoint, ...]:
        """All endpoints that the key may see."""
        return await self._get("endpoints", f"{self._api}/serverless", views.endpoints_of)

    async def fleet(self, endpoint: str) -> views.Fleet:
        """The active workers of an endpoint."""
        return await self._get("workers", f"{self._of(endpoint)}/workers", views.fleet_of)

    async def release(self, endpoint: str) -> views.Release | None:
        """The newest release of an endpoint."""
        return await self._get("releases", f"{self._of(endpoint)}/releases", views.release_of)

    async def queue(self, endpoint: str) -> views.Queue:
        """The requests of an endpoint, by the invoke API, which has limits of its own."""
        return await self._get("health", f"{self._invoke}/{quote(endpoint, safe='')}/health", views.queue_of)

    async def log(self, endpoint: str, worker: str, cursor: str) -> AsyncIterator[LogLine | None]:
        """None once the stream is open, then lines of a worker's system log, past ones first, until it ends.

        `cursor`: of the last line that was read; "": none was. The container's own log is not asked for: it is the
        user's output. Raises PlatformError.
        """
        query: dict[str, str] = {"source": "system"}
        if not cursor:
            query["tail"] = str(BACKFILL_LINES)
        url = f"{self._of(endpoint)}/workers/{quote(worker, safe='')}/logs"
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": cursor} if cursor else {})}
        quota = self._api_quota
        await quota.turn()
        try:
            timeout = httpx.Timeout(SECONDS, read=QUIET_SECONDS)
            request = self._client.stream("GET", url, params=query, headers=self._headers(headers), timeout=timeout)
            async with request as answer:
                self._check("logs", answer, quota)
                yield None
                async for event_id, data in _events(answer.aiter_bytes()):
                    line = views.log_line_of(event_id, data)
                    if line is not None and line.source == "system":
                        yield line
        except httpx.ReadTimeout:
            return  # nothing was said for long
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._network("logs", error) from None

    def _of(self, endpoint: str) -> str:
        return f"{self._api}/serverless/{quote(endpoint, safe='')}"

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        key = self._read_key()
        if not key.isascii() or not key.isprintable():
            raise PlatformError("key", "the key has characters that no header can carry")
        return {"Authorization": f"Bearer {key}", **more}

    async def _get(self, route: str, url: str, read: Callable[[object], View]) -> View:
        quota = self._invoke_quota if route == "health" else self._api_quota
        await quota.turn()
        try:
            headers = self._headers({"Accept": "application/json"})
            async with self._client.stream("GET", url, headers=headers, timeout=SECONDS) as answer:
                self._check(route, answer, quota)
                body = await _bounded(answer)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._network(route, error) from None
        try:
            found = read(json.loads(body))
        except (ValueError, RecursionError):
            self._count(route, "shape")
            raise PlatformError("shape", "the answer is no JSON") from None
        except PlatformError as error:
            self._count(route, error.kind)
            raise
        self._count(route, "ok")
        return found

    def _check(self, route: str, answer: httpx.Response, quota: _Quota) -> None:
        """Note what the answer says of the quota. Raises PlatformError unless it is 200."""
        wait = _wait_of(answer.headers)
        if wait:
            quota.wait(wait)
        if answer.status_code != 200:
            self._count(route, f"http_{answer.status_code}")
            raise PlatformError(f"http_{answer.status_code}", f"HTTP {answer.status_code}", wait or None)
        if route == "logs":
            self._count(route, "ok")

    def _network(self, route: str, error: Exception) -> PlatformError:
        slow = isinstance(error, httpx.TimeoutException)
        kind, text = ("timeout", f"no answer in {SECONDS:g} s") if slow else ("network", type(error).__name__)
        self._count(route, kind)
        return PlatformError(kind, text)


async def _bounded(answer: httpx.Response) -> bytes:
    # Not by `asyncio.wait_for`, which before Python 3.12 can swallow a cancellation.
    parts, size, until = [], 0, time.monotonic() + SECONDS
    async for part in answer.aiter_bytes():
        size += len(part)
        if time.monotonic() > until:
            raise httpx.ReadTimeout("the answer comes too slowly")
        if size > ANSWER_BYTES:
            raise PlatformError("shape", f"the answer has more than {ANSWER_BYTES >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _wait_of(headers: httpx.Headers) -> float:
    """Seconds until the API may be asked again: the longest that `Retry-After` or a used-up window tells; 0: now."""
    told = headers.get("retry-after", "").strip()
    waits = [float(told)] if re.fullmatch(r"[0-9]{1,6}", told) else []
    waits += [float(seconds) for _, left, seconds in _WINDOW.findall(headers.get("ratelimit", "")) if int(left) == 0]
    return min(max(waits, default=0.0), RETRY_AFTER_MAX)


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str]]:
    """(id, data) of each whole event of a stream. One that was cut is left for the next stream."""
    event_id, data = "", list[str]()
    async for line in _lines(parts):
        if line == "":
            if data:
                yield event_id, "\n".join(data)
            data = []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id" and "\0" not in value:
            event_id = value[:256]
        elif name == "data" and len(data) < DATA_LINES:
            data.append(value)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Lines without their ends. Too long a one is skipped, however long it goes on."""
    held, skipping = b"", False
    async for part in parts:
        *whole, held = (held + part).replace(b"\r\n", b"\n").split(b"\n")
        for line in whole:
            if not skipping and len(line) <= LINE_BYTES:
                yield line.decode("utf-8", "replace")
            skipping = False
        if len(held) > LINE_BYTES:
            held, skipping = b"", True
