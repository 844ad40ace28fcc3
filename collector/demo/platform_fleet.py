"""The platform's management side: endpoints, workers, releases and log streams, as a script sets them.

/v2/serverless   /{endpoint}   /{endpoint}/workers   /{endpoint}/releases   /{endpoint}/workers/{worker}/logs
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

from aiohttp import web

LINES_KEPT: Final = 5_000
BACKFILL: Final = 100
_STATUSES: Final = ("running", "idle", "initializing", "throttled", "unhealthy")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class LoggedLine:
    """A line of a worker's log. `cursor` sorts as the lines were written."""

    cursor: str
    at: str
    source: str
    text: str


@dataclass(slots=True)
class FleetWorker:
    """A worker as the platform shows it."""

    id: str
    status: str = "IDLE"
    version: int = 1
    image: str = "registry.test/painter:1"
    gpu: str = "NVIDIA GeForce RTX 4090"
    data_center: str = "EU-XX-1"
    started_at: str | None = None
    log: list[LoggedLine] = field(default_factory=list)

    def view(self, newest: int) -> dict[str, Any]:
        return {
            "id": self.id,
            "status": self.status,
            "isStale": self.version != newest,
            "version": self.version,
            "gpuCount": 1,
            "image": self.image,
            "uptimeSeconds": None,
            "gpuTypeId": self.gpu,
            "dataCenterId": self.data_center,
            "startedAt": self.started_at,
        }


@dataclass(slots=True)
class FleetEndpoint:
    """An endpoint's settings, workers and releases (newest first)."""

    id: str
    workers_min: int = 0
    workers_max: int = 3
    version: int = 1
    workers: dict[str, FleetWorker] = field(default_factory=dict)
    releases: list[dict[str, Any]] = field(default_factory=list)

    def view(self) -> dict[str, Any]:
        workers = {"min": self.workers_min, "max": self.workers_max}
        return {"id": self.id, "name": f"{self.id} by name", "workers": workers}


class Fleets:
    """All endpoints. A script changes them; pollers see it at their next request, open log streams at once."""

    def __init__(self) -> None:
        self.endpoints: dict[str, FleetEndpoint] = {}
        self.key = ""
        """The only key that is let in; "": any."""
        self._written = asyncio.Event()
        self._lines = 0
        self._cuts = 0
        self._closing = False

    def endpoint(self, endpoint: str) -> FleetEndpoint:
        """The endpoint, made where there is none."""
        return self.endpoints.setdefault(endpoint, FleetEndpoint(endpoint))

    def worker(self, endpoint: str, worker: str, status: str) -> FleetWorker:
        """The worker with this status from now on, made where there is none."""
        found = self.endpoint(endpoint).workers.setdefault(worker, FleetWorker(worker))
        found.status = status
        return found

    def write(
        self, endpoint: str, worker: str, text: str, *, source: str = "system", at: datetime | None = None
    ) -> None:
        """One more line in a worker's log."""
        self._lines += 1
        told = (at or datetime.now(timezone.utc)).isoformat().replace("+00:00", "Z")
        log = self.endpoint(endpoint).workers[worker].log
        log.append(LoggedLine(f"{told}/{self._lines:012}", told, source, text))
        del log[:-LINES_KEPT]
        self._ring()

    def scale_to(self, endpoint: str, most: int, *, release: str = "") -> None:
        """Set the maximum of workers, by a release where one is named."""
        found = self.endpoint(endpoint)
        if release:
            found.version += 1
            diff = [{"field": "workers.max", "old": found.workers_max, "new": most}]
            now = datetime.now(timezone.utc).isoformat()
            told = {"id": release, "version": found.version, "source": "MANUAL", "createdAt": now, "diff": diff}
            found.releases.insert(0, {**told, "workerCount": len(found.workers)})
        found.workers_max = most

    def cut_logs(self) -> None:
        """End all open log streams in the middle of an event."""
        self._cuts += 1
        self._ring()

    def close(self) -> None:
        """End all open log streams: the platform stops."""
        self._closing = True
        self._ring()

    def routes(self) -> dict[str, tuple[str, Handler]]:
        """Path → (name, GET handler)."""
        endpoint = "/v2/serverless/{endpoint}"
        routes = {
            "/v2/serverless": ("endpoints", self._list),
            endpoint: ("endpoint", self._get),
            f"{endpoint}/workers": ("workers", self._workers),
            f"{endpoint}/releases": ("releases", self._releases),
            f"{endpoint}/workers/{{worker}}/logs": ("logs", self._logs),
        }
        return {path: (name, self._guarded(handler)) for path, (name, handler) in routes.items()}

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
                text = '{"title": "Unauthorized", "status": 401}'
                return web.Response(status=401, text=text, content_type="application/problem+json")
            return await handler(request)

        return guarded

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"endpoints": [one.view() for one in self.endpoints.values()]})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self._of(request).view())

    async def _workers(self, request: web.Request) -> web.StreamResponse:
        endpoint = self._of(request)
        counts = Counter(worker.status.lower() for worker in endpoint.workers.values())
        return web.json_response(
            {
                "endpointVersion": endpoint.version,
                "summary": {**{one: counts[one] for one in _STATUSES}, "total": len(endpoint.workers)},
                "workers": [worker.view(endpoint.version) for worker in endpoint.workers.values()],
            }
        )

    async def _releases(self, request: web.Request) -> web.StreamResponse:
        endpoint = self._of(request)
        latest = sum(worker.version == endpoint.version for worker in endpoint.workers.values())
        rollout = {"inProgress": latest != len(endpoint.workers), "workersOnLatest": latest}
        rollout["workersTotal"] = len(endpoint.workers)
        return web.json_response(
            {"endpointVersion": endpoint.version, "rollout": rollout, "releases": endpoint.releases}
        )

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        """Past lines, then new ones until a cut. As on the real platform a resumed stream begins with the line that
        the cursor names, which the reader has."""
        worker = self._of(request).workers.get(request.match_info["worker"])
        if worker is None:
            raise web.HTTPNotFound(
                text='{"title": "Not Found", "status": 404}', content_type="application/problem+json"
            )
        cursor, source = request.headers.get("Last-Event-ID", ""), request.query.get("source")
        tail = int(request.query.get("tail", BACKFILL))
        past = [line for line in worker.log if source in (None, line.source)]
        past = [line for line in past if line.cursor >= cursor] if cursor else past[-tail:] if tail else []
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await answer.prepare(request)
        sent, cuts = past[-1].cursor if past else cursor, self._cuts
        for line in past:
            await answer.write(_event(line))
        while not self._closing and cuts == self._cuts:
            written = self._written
            for line in [one for one in worker.log if one.cursor > sent and source in (None, one.source)]:
                await answer.write(_event(line))
                sent = line.cursor
            await written.wait()
        if cuts != self._cuts and request.transport is not None:
            await answer.write(b'id: half/0\ndata: {"ts": "2026-')
            request.transport.abort()
        return answer

    def _of(self, request: web.Request) -> FleetEndpoint:
        endpoint = self.endpoints.get(request.match_info["endpoint"])
        if endpoint is None:
            raise web.HTTPNotFound(
                text='{"title": "Not Found", "status": 404}', content_type="application/problem+json"
            )
        return endpoint

    def _ring(self) -> None:
        written, self._written = self._written, asyncio.Event()
        written.set()


def _event(line: LoggedLine) -> bytes:
    data = json.dumps({"ts": line.at, "source": line.source, "line": line.text})
    return f"id: {line.cursor}\ndata: {data}\n\n".encode()
