"""A stand-in for the serverless platform: both sides of its protocol, faults on demand, a log of what reached it.

    worker side   /v2/{endpoint}/  job-take  job-take-batch  job-stop  job-done  job-stream  ping
    caller side   /v2/{endpoint}/  run  runsync  status  stream  cancel  retry  purge-queue  health
    management    /v2/serverless: endpoints, workers, releases, log streams (`platform_fleet`)
    test side     /_sim/  fault  stop  events  reset

It does what the platform is known to do and no more: polls are held, an empty input is dropped on the way to the
worker, a cancelled job's stop signal is delivered once, `ttl` deletes and `executionTimeout` times out. What the real
platform decides in private (when a silent worker's job is queued again) is a setting and off by default, so that what
is recorded is what the worker said. State is in memory and bounded; there is no authentication: loopback only.

    python -m collector.demo.platform --port 18080 [--hold 90] [--stop-hold 90] [--requeue-after 0]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiohttp import web

from collector.demo.platform_fleet import Fleets

HOLD_SECONDS: Final = 90.0
"""How long job-take and job-stop are held open when there is nothing to say; the SDK gives up at the same time."""
SYNC_HOLD_SECONDS: Final = 90.0
SYNC_WAIT_SECONDS: Final = (1.0, 300.0)
"""Bounds of `/runsync?wait=`, which is in milliseconds."""
RUN_BYTES: Final = 10 << 20
RUNSYNC_BYTES: Final = 20 << 20
BODY_BYTES: Final = 64 << 20
"""Most bytes of a result: the SDK itself sets no bound."""
EXECUTION_TIMEOUT_MS: Final = 600_000
TTL_MS: Final = 24 * 3600 * 1000
RESULT_SECONDS: Final = 30 * 60.0
SYNC_RESULT_SECONDS: Final = 60.0
WORKER_SILENT_SECONDS: Final = 30.0
"""A worker that has not pinged for this long is no longer counted by `/health`."""
SWEEP_SECONDS: Final = 0.5

EVENTS_KEPT: Final = 20_000
JOBS_KEPT: Final = 5_000
RESULT_BYTES_KEPT: Final = 256 << 20
WORKERS_KEPT: Final = 1_000
STOPS_PER_WORKER: Final = 1_000
CHUNKS_PER_JOB: Final = 1_000
BODY_LOGGED: Final = 4_096
"""Characters of a request body in the event log."""

TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"})

CALLER_ROUTES: Final = frozenset({"run", "runsync", "status", "stream", "cancel", "retry"})

_PLATFORM: Final = web.AppKey("platform", object)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class PlatformEvent:
    """One thing that reached the platform or that it did. `at` is seconds since it started; `number` counts from 0."""

    number: int
    at: float
    kind: str
    endpoint: str = ""
    worker: str = ""
    job: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "at": round(self.at, 3),
            "kind": self.kind,
            "endpoint": self.endpoint,
            "worker": self.worker,
            "job": self.job,
            "detail": dict(self.detail),
        }


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong answer for the next `times` requests on a route, of one endpoint where it is named.

    `delay_seconds` comes first, and `until` is waited for; then the connection is closed (`hangup`), or the request is
    served after all (`serve`), or `status`, `body` and `content_type` are the answer. With `garble` the request is
    served first, and its answer replaced: the platform has done it, and the worker cannot know. `change` is given the
    right answer's text instead, and what it returns is sent.
    """

    status: int = 500
    times: int = 1
    body: str = ""
    content_type: str = "text/plain"
    delay_seconds: float = 0.0
    until: asyncio.Event | None = None
    hangup: bool = False
    serve: bool = False
    garble: bool = False
    change: Callable[[str], str] | None = None
    endpoint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Job:
    """A request as the platform knows it. Times are `time.monotonic()`."""

    id: str
    endpoint: str
    input: dict[str, Any]
    webhook: str | None
    execution_timeout_ms: int
    ttl_ms: int
    is_sync: bool
    created: float = field(default_factory=time.monotonic)
    status: str = "IN_QUEUE"
    taken: float | None = None
    ended: float | None = None
    worker: str = ""
    retries: int = 0
    output: Any = None
    error: Any = None
    result_bytes: int = 0
    chunks: deque[Any] = field(default_factory=lambda: deque(maxlen=CHUNKS_PER_JOB))

    def view(self) -> dict[str, Any]:
        """The body of `/status`; what is not known yet is absent, as on the real platform."""
        seen: dict[str, Any] = {"id": self.id, "status": self.status}
        if self.taken is not None:
            seen["delayTime"] = int((self.taken - self.created) * 1000)
            seen["workerId"] = self.worker
            if self.ended is not None:
                seen["executionTime"] = int((self.ended - self.taken) * 1000)
        optional = {"retries": self.retries or None, "output": self.output, "error": self.error}
        return seen | {key: value for key, value in optional.items() if value is not None}

    def for_worker(self) -> dict[str, Any]:
        """What job-take answers. An empty input is dropped on the way."""
        sent: dict[str, Any] = {"id": self.id, "delayTime": int(((self.taken or self.created) - self.created) * 1000)}
        if self.input:
            sent["input"] = self.input
        if self.webhook:
            sent["webhook"] = self.webhook
        return sent


class Platform:
    """The platform's state and its routes. Use `running_platform()` in a program, or the module as one."""

    def __init__(
        self,
        *,
        hold_seconds: float = HOLD_SECONDS,
        stop_hold_seconds: float = HOLD_SECONDS,
        sync_hold_seconds: float = SYNC_HOLD_SECONDS,
        requeue_after_seconds: float = 0.0,
    ) -> None:
        """`requeue_after_seconds`: a worker silent for so long loses its jobs to the queue; 0 = never."""
        self.hold_seconds = hold_seconds
        self.stop_hold_seconds = stop_hold_seconds
        self.sync_hold_seconds = sync_hold_seconds
        self.requeue_after_seconds = requeue_after_seconds
        self.base = ""
        self._started = time.monotonic()
        self._bell = asyncio.Event()
        self._closing = False
        self._numbered = 0
        self.fleets = Fleets()
        self.reset()

    def reset(self) -> None:
        """Forget all jobs, events, faults and stop signals."""
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.events: deque[PlatformEvent] = deque(maxlen=EVENTS_KEPT)
        self._queues: dict[str, deque[str]] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._stops: OrderedDict[tuple[str, str], deque[tuple[str, str]]] = OrderedDict()
        self._pings: OrderedDict[tuple[str, str], tuple[float, bool]] = OrderedDict()
        self._holds: dict[str, tuple[float, float]] = {}
        self._result_bytes = 0

    # ------------------------------------------------------------------------------------- for programs in-process

    def arm(self, route: str, fault: Fault) -> None:
        """Let the next requests on `route` (`job-done`, `job-stop`, …) meet this fault. Several queue up."""
        self._faults.setdefault(route, []).append(fault)

    def disarm(self, route: str) -> None:
        self._faults.pop(route, None)

    def send_stop(self, endpoint: str, worker: str, body: str, content_type: str = "application/json") -> None:
        """Answer the worker's next stop poll with exactly this body."""
        waiting = self._stops.setdefault((endpoint, worker), deque(maxlen=STOPS_PER_WORKER))
        waiting.append((body, content_type))
        _drop_oldest(self._stops, WORKERS_KEPT)
        self._ring()

    def hold(self, endpoint: str, seconds: float, *, stop_seconds: float) -> None:
        """Hold the polls of one endpoint for other times from now on, those already open too."""
        self._holds[endpoint] = (seconds, stop_seconds)
        self._ring()

    def find_events(self, kind: str, *, worker: str = "", job: str = "", endpoint: str = "") -> list[PlatformEvent]:
        """Events of a kind, oldest first; an empty string matches all."""
        return [
            event
            for event in self.events
            if event.kind == kind
            and (not worker or event.worker == worker)
            and (not job or event.job == job)
            and (not endpoint or event.endpoint == endpoint)
        ]

    async def wait_event(
        self, kind: str, *, worker: str = "", job: str = "", endpoint: str = "", seconds: float = 60.0, count: int = 1
    ) -> PlatformEvent:
        """The `count`-th event of a kind, past or future. Raises TimeoutError naming what did not come."""

        def found() -> list[PlatformEvent]:
            return self.find_events(kind, worker=worker, job=job, endpoint=endpoint)

        what = f"event {kind!r} (worker {worker or 'any'}, job {job or 'any'}, number {count})"
        await self.wait_until(lambda: len(found()) >= count, what=what, seconds=seconds)
        return found()[count - 1]

    async def wait_status(self, job_id: str, *statuses: str, seconds: float = 60.0) -> Job:
        """The job once it has one of the statuses (default: any terminal one)."""
        wanted = frozenset(statuses) or TERMINAL
        what = f"status {'/'.join(sorted(wanted))} of job {job_id}"
        await self.wait_until(lambda: self.jobs[job_id].status in wanted, what=what, seconds=seconds)
        return self.jobs[job_id]

    async def wait_until(self, condition: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Return when `condition()` holds; it is asked after each event. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not condition():
            if not await self._next_change(deadline - time.monotonic()):
                raise TimeoutError(f"waited {seconds:g} s for {what}")

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[_log_and_fault])
        app[_PLATFORM] = self
        for path, routes in self._routes().items():
            resource = app.router.add_resource(path, name=path.split("/")[3])
            for method, handler in routes.items():
                resource.add_route(method, handler)
        for path, (name, handler) in self.fleets.routes().items():
            app.router.add_resource(path, name=name).add_route("GET", handler)
        app.router.add_post("/_sim/fault", self._set_fault)
        app.router.add_post("/_sim/stop", self._set_stop)
        app.router.add_get("/_sim/events", self._get_events)
        app.router.add_post("/_sim/reset", self._do_reset)
        app.cleanup_ctx.append(self._sweeping)
        app.on_shutdown.append(self._close)
        return app

    def _routes(self) -> dict[str, dict[str, Handler]]:
        endpoint = "/v2/{endpoint}"
        return {
            f"{endpoint}/job-take/{{worker}}": {"GET": self._job_take},
            f"{endpoint}/job-take-batch/{{worker}}": {"GET": self._job_take_batch},
            f"{endpoint}/job-stop/{{worker}}": {"GET": self._job_stop},
            f"{endpoint}/job-done/{{worker}}/{{job}}": {"POST": self._job_done},
            f"{endpoint}/job-stream/{{worker}}/{{job}}": {"POST": self._job_stream},
            f"{endpoint}/ping/{{worker}}": {"GET": self._ping},
            f"{endpoint}/run": {"POST": self._run},
            f"{endpoint}/runsync": {"POST": self._runsync},
            f"{endpoint}/status/{{job}}": {"GET": self._status, "POST": self._status},
            f"{endpoint}/stream/{{job}}": {"GET": self._stream},
            f"{endpoint}/cancel/{{job}}": {"POST": self._cancel},
            f"{endpoint}/retry/{{job}}": {"POST": self._retry},
            f"{endpoint}/purge-queue": {"POST": self._purge},
            f"{endpoint}/health": {"GET": self._health},
        }

    # -------------------------------------------------------------------------------------------------- worker side

    async def _job_take(self, request: web.Request) -> web.StreamResponse:
        taken = await self._take(request, 1)
        return web.json_response(taken[0]) if taken else web.Response(status=204)

    async def _job_take_batch(self, request: web.Request) -> web.StreamResponse:
        taken = await self._take(request, max(1, _whole(request.query.get("batch_size"), 1)))
        return web.json_response(taken) if taken else web.Response(status=204)

    async def _take(self, request: web.Request, most: int) -> list[dict[str, Any]]:
        """Up to `most` jobs, at once when there are any, else when one comes or the hold ends."""
        endpoint, worker = request.match_info["endpoint"], request.match_info["worker"]
        began = time.monotonic()
        while True:
            jobs = self._claim(endpoint, worker, most)
            left = self._holds_of(endpoint)[0] - (time.monotonic() - began)
            if jobs or not await self._next_change(left):
                return [job.for_worker() for job in jobs]

    def _holds_of(self, endpoint: str) -> tuple[float, float]:
        return self._holds.get(endpoint, (self.hold_seconds, self.stop_hold_seconds))

    def _claim(self, endpoint: str, worker: str, most: int) -> list[Job]:
        queue, claimed = self._queues.setdefault(endpoint, deque()), list[Job]()
        while queue and len(claimed) < most:
            job = self.jobs.get(queue.popleft())
            if job is not None and job.status == "IN_QUEUE":
                job.worker, job.taken = worker, time.monotonic()
                job.status = "IN_PROGRESS"
                claimed.append(job)
        for job in claimed:
            self._log("claimed", endpoint=endpoint, worker=worker, job=job.id, batch_size=len(claimed))
        return claimed

    async def _job_stop(self, request: web.Request) -> web.StreamResponse:
        endpoint, worker = request.match_info["endpoint"], request.match_info["worker"]
        began = time.monotonic()
        while not (waiting := self._stops.get((endpoint, worker))):
            left = self._holds_of(endpoint)[1] - (time.monotonic() - began)
            if not await self._next_change(left):
                return web.Response(status=204)
        body, content_type = waiting.popleft()
        self._log("stop-sent", endpoint=endpoint, worker=worker, body=body[:BODY_LOGGED])
        return web.Response(text=body, content_type=content_type)

    async def _job_done(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        job = self._job_of(request)
        body = _json_object(raw)
        if body.get("status") == "IN_PROGRESS":  # progress_update() uses the same address
            job.output = body.get("output")
            return web.json_response({})
        worker = request.match_info["worker"]
        if job.status in TERMINAL:
            self._log("late-result", endpoint=job.endpoint, worker=worker, job=job.id, was=job.status)
            return web.json_response({})
        job.output, job.error = body.get("output"), body.get("error")
        self._keep_result(job, len(raw))
        self._end(job, "FAILED" if job.error else "COMPLETED")
        if body.get("stopPod"):
            self._log("stop-pod", endpoint=job.endpoint, worker=worker, job=job.id)
        return web.json_response({})

    async def _job_stream(self, request: web.Request) -> web.StreamResponse:
        self._job_of(request).chunks.append(_json_object(await request.read()))
        return web.json_response({})

    async def _ping(self, request: web.Request) -> web.StreamResponse:
        key = (request.match_info["endpoint"], request.match_info["worker"])
        healthy = request.query.get("status") != "unhealthy"
        self._pings[key] = (time.monotonic(), healthy)
        self._pings.move_to_end(key)
        _drop_oldest(self._pings, WORKERS_KEPT)
        return web.Response()

    # -------------------------------------------------------------------------------------------------- caller side

    async def _run(self, request: web.Request) -> web.StreamResponse:
        job = await self._submit(request, is_sync=False)
        return web.json_response({"id": job.id, "status": job.status})

    async def _runsync(self, request: web.Request) -> web.StreamResponse:
        """The finished job, or after the hold the pending one: a caller that takes that for a result is wrong."""
        job = await self._submit(request, is_sync=True)
        hold = self.sync_hold_seconds
        if "wait" in request.query:
            least, most = SYNC_WAIT_SECONDS
            hold = min(max(_whole(request.query["wait"], 0) / 1000, least), most)
        deadline = time.monotonic() + hold
        while job.status not in TERMINAL and await self._next_change(deadline - time.monotonic()):
            pass
        return web.json_response(job.view())

    async def _submit(self, request: web.Request, *, is_sync: bool) -> Job:
        raw = await request.read()
        if len(raw) > (RUNSYNC_BYTES if is_sync else RUN_BYTES):
            raise _refusal(web.HTTPRequestEntityTooLarge(max_size=RUN_BYTES, actual_size=len(raw)), "body too large")
        body = _json_object(raw)
        policy = body.get("policy") or {}
        if not isinstance(body.get("input"), dict) or not isinstance(policy, dict):
            raise _refusal(web.HTTPBadRequest(), "input must be an object")
        endpoint = request.match_info["endpoint"]
        job = Job(
            id=("sync-" if is_sync else "") + f"{uuid.uuid4()}-u1",
            endpoint=endpoint,
            input=body["input"],
            webhook=body.get("webhook"),
            execution_timeout_ms=_whole(policy.get("executionTimeout"), EXECUTION_TIMEOUT_MS),
            ttl_ms=_whole(policy.get("ttl"), TTL_MS),
            is_sync=is_sync,
        )
        self._make_room()
        self.jobs[job.id] = job
        self._enqueue(job, "submitted")
        return job

    async def _status(self, request: web.Request) -> web.StreamResponse:
        job = self._job_of(request)
        if "ttl" in request.query:
            job.ttl_ms = _whole(request.query["ttl"], job.ttl_ms)
        return web.json_response(job.view())

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        job = self._job_of(request)
        chunks = list(job.chunks)
        job.chunks.clear()
        return web.json_response({"status": job.status, "stream": chunks})

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        job = self._job_of(request)
        if job.status not in TERMINAL:
            was_running = job.status == "IN_PROGRESS"
            self._end(job, "CANCELLED")
            if was_running:
                self._signal_stop(job)
        return web.json_response({"id": job.id, "status": job.status})

    async def _retry(self, request: web.Request) -> web.StreamResponse:
        job = self._job_of(request)
        if job.status not in ("FAILED", "TIMED_OUT"):
            raise _refusal(web.HTTPBadRequest(), "only a failed or timed out job can be retried")
        job.output = job.error = job.taken = job.ended = None
        self._enqueue(job, "retried")
        return web.json_response({"id": job.id, "status": job.status})

    async def _purge(self, request: web.Request) -> web.StreamResponse:
        queued = [self.jobs.get(job_id) for job_id in self._queues.pop(request.match_info["endpoint"], ())]
        removed = [job for job in queued if job is not None and job.status == "IN_QUEUE"]
        for job in removed:
            self._end(job, "CANCELLED")
        return web.json_response({"removed": len(removed), "status": "completed"})

    async def _health(self, request: web.Request) -> web.StreamResponse:
        """Counters of one endpoint. An unknown endpoint has zeros: this is no existence check, as on the real one."""
        endpoint, now = request.match_info["endpoint"], time.monotonic()
        jobs = [job for job in self.jobs.values() if job.endpoint == endpoint]
        live = {
            worker: healthy
            for (of_endpoint, worker), (at, healthy) in self._pings.items()
            if of_endpoint == endpoint and now - at < WORKER_SILENT_SECONDS
        }
        ready = {worker for worker, healthy in live.items() if healthy}
        busy = {job.worker for job in jobs if job.status == "IN_PROGRESS"}

        def count(*statuses: str) -> int:
            return sum(job.status in statuses for job in jobs)

        return web.json_response(
            {
                "jobs": {
                    "completed": count("COMPLETED"),
                    "failed": count("FAILED", "TIMED_OUT"),
                    "inProgress": count("IN_PROGRESS"),
                    "inQueue": count("IN_QUEUE"),
                    "retried": sum(job.retries for job in jobs),
                },
                "workers": {
                    "idle": len(ready - busy),
                    "initializing": 0,
                    "ready": len(ready),
                    "running": len(busy),
                    "throttled": 0,
                    "unhealthy": len(live) - len(ready),
                },
            }
        )

    # ---------------------------------------------------------------------------------------------------- test side

    async def _set_fault(self, request: web.Request) -> web.StreamResponse:
        body = _json_object(await request.read())
        fault = Fault(
            status=body.get("status", 500),
            times=body.get("n", 1),
            body=body.get("body", ""),
            content_type=body.get("ctype", "text/plain"),
            delay_seconds=body.get("delay", 0.0),
            hangup=body.get("hangup", False),
            serve=body.get("pass", False),
            garble=body.get("garble", False),
            endpoint=body.get("endpoint"),
        )
        self.arm(str(body.get("route", "")), fault)
        return web.json_response({"ok": True})

    async def _set_stop(self, request: web.Request) -> web.StreamResponse:
        body = _json_object(await request.read())
        try:
            self.send_stop(body["endpoint"], body["worker"], body["body"], body.get("ctype", "application/json"))
        except KeyError as missing:
            raise _refusal(web.HTTPBadRequest(), f"{missing} is missing") from None
        return web.json_response({"ok": True})

    async def _get_events(self, request: web.Request) -> web.StreamResponse:
        """Events with a number of at least `from` (default 0); `kind` narrows them."""
        first, kind = _whole(request.query.get("from"), 0), request.query.get("kind")
        events = [e.as_json() for e in self.events if e.number >= first and kind in (None, e.kind)]
        return web.json_response({"now": round(self._age(), 3), "events": events})

    async def _do_reset(self, request: web.Request) -> web.StreamResponse:
        self.reset()
        self._ring()
        return web.json_response({"ok": True})

    # ------------------------------------------------------------------------------------------------------- inside

    def log_arrival(self, request: web.Request, kind: str, body: bytes) -> None:
        """One event per request, before anything is done with it. The key itself is not kept."""
        place = request.match_info
        detail: dict[str, Any] = {
            "query": dict(request.query),
            "authorized": bool(request.headers.get("Authorization")),
        }
        if request.method == "POST":
            detail |= {"bytes": len(body), "body": body[:BODY_LOGGED].decode("utf-8", "replace")}
            detail["content_type"] = request.headers.get("Content-Type", "")
        worker, job = place.get("worker", ""), place.get("job", "")
        self._log(kind, endpoint=place.get("endpoint", ""), worker=worker, job=job, **detail)

    async def answer_caller(
        self, request: web.Request, route: str, handler: Handler, body: bytes
    ) -> web.StreamResponse:
        """Answer a call of the caller's side, and log what was said, or that nobody was there to hear it."""
        place = request.match_info
        detail: dict[str, Any] = {"route": route, "began": self._age()}
        detail["body"] = body[:BODY_LOGGED].decode("utf-8", "replace")
        try:
            answer = await self.meet_fault(request, route, handler)
        except web.HTTPException as refusal:
            answer = refusal
        except asyncio.CancelledError:
            self._log("abandoned", endpoint=place["endpoint"], job=place.get("job", ""), **detail)
            raise
        said = _said_in(answer)
        detail |= {"status": answer.status, "said": str(said.get("status", ""))}
        job = place.get("job") or str(said.get("id", ""))
        self._log("answered", endpoint=place["endpoint"], job=job, **detail)
        if isinstance(answer, web.HTTPException):
            raise answer
        return answer

    async def meet_fault(self, request: web.Request, route: str, handler: Handler) -> web.StreamResponse:
        """The wrong answer that is armed for this request, or the right one."""
        fault = self._spend_fault(route, request.match_info.get("endpoint"))
        if fault is None:
            return await handler(request)
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.until is not None:
            await fault.until.wait()
        place = request.match_info
        where = {key: place.get(key, "") for key in ("endpoint", "worker", "job")}
        self._log("fault", **where, route=route, status=fault.status, hangup=fault.hangup, left=fault.times - 1)
        if fault.serve or fault.garble or fault.change is not None:
            answer = await handler(request)
            if fault.change is not None and isinstance(answer, web.Response) and answer.text is not None:
                return web.Response(text=fault.change(answer.text), content_type=answer.content_type)
            if not fault.garble:
                return answer
        if fault.hangup and request.transport is not None:
            request.transport.abort()
        headers = {**fault.headers, "Content-Type": fault.content_type}
        return web.Response(status=fault.status, text=fault.body, headers=headers)

    def _spend_fault(self, route: str, endpoint: str | None) -> Fault | None:
        armed = self._faults.get(route, [])
        for index, fault in enumerate(armed):
            if fault.times > 0 and fault.endpoint in (None, endpoint):
                armed[index] = replace(fault, times=fault.times - 1)
                self._faults[route] = [one for one in armed if one.times > 0]
                return fault
        return None

    def _enqueue(self, job: Job, kind: str) -> None:
        job.status = "IN_QUEUE"
        self._queues.setdefault(job.endpoint, deque()).append(job.id)
        self._log(kind, endpoint=job.endpoint, job=job.id)

    def _end(self, job: Job, status: str) -> None:
        job.status, job.ended = status, time.monotonic()
        self._log("ended", endpoint=job.endpoint, worker=job.worker, job=job.id, status=status)

    def _signal_stop(self, job: Job) -> None:
        self.send_stop(job.endpoint, job.worker, json.dumps({"jobsToStop": [job.id]}))

    def _keep_result(self, job: Job, size: int) -> None:
        """Hold a result; the oldest give way when together they are too many bytes."""
        job.result_bytes = size
        self._result_bytes += size
        for other in self.jobs.values():
            if self._result_bytes <= RESULT_BYTES_KEPT:
                return
            if other.status in TERMINAL:
                self._forget_result(other)

    def _forget_result(self, job: Job) -> None:
        self._result_bytes -= job.result_bytes
        job.output, job.error, job.result_bytes = None, None, 0

    def _make_room(self) -> None:
        """Drop the oldest finished job when there are too many; refuse when all are open."""
        if len(self.jobs) < JOBS_KEPT:
            return
        oldest = next((job for job in self.jobs.values() if job.status in TERMINAL), None)
        if oldest is None:
            raise _refusal(web.HTTPTooManyRequests(), "too many open jobs")
        self._delete(oldest)

    def _delete(self, job: Job) -> None:
        self._forget_result(job)
        del self.jobs[job.id]

    def _job_of(self, request: web.Request) -> Job:
        job = self.jobs.get(request.match_info["job"])
        if job is None or job.endpoint != request.match_info["endpoint"]:
            raise _refusal(web.HTTPNotFound(), "job not found")
        return job

    async def _sweeping(self, app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sweep_for_ever())
        yield
        task.cancel()

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = time.monotonic()
            for job in list(self.jobs.values()):
                self._sweep(job, now)

    def _sweep(self, job: Job, now: float) -> None:
        kept = SYNC_RESULT_SECONDS if job.is_sync else RESULT_SECONDS
        if job.ttl_ms and now - job.created > job.ttl_ms / 1000:  # deleted even while it runs
            self._delete(job)
            self._log("ttl-expired", endpoint=job.endpoint, worker=job.worker, job=job.id, was=job.status)
        elif job.ended is not None and now - job.ended > kept:
            self._delete(job)
        elif job.status == "IN_PROGRESS" and job.taken is not None:
            self._sweep_running(job, now, job.taken)

    def _sweep_running(self, job: Job, now: float, taken: float) -> None:
        if job.execution_timeout_ms and now - taken > job.execution_timeout_ms / 1000:
            job.error = "job timed out"
            self._end(job, "TIMED_OUT")
            self._signal_stop(job)
            return
        heard, _ = self._pings.get((job.endpoint, job.worker), (taken, True))
        if not self.requeue_after_seconds or now - max(heard, taken) <= self.requeue_after_seconds:
            return
        if job.retries:
            job.error = f"job timed out after {job.retries} retries"
            self._end(job, "FAILED")
        else:
            job.retries += 1
            self._enqueue(job, "requeued")

    def _log(self, kind: str, *, endpoint: str = "", worker: str = "", job: str = "", **detail: Any) -> None:
        self.events.append(PlatformEvent(self._numbered, self._age(), kind, endpoint, worker, job, detail))
        self._numbered += 1
        self._ring()

    def _age(self) -> float:
        return time.monotonic() - self._started

    def _ring(self) -> None:
        """Wake all that wait for a change. Each ring has its own event, so nobody misses one or waits for a reset."""
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _next_change(self, seconds: float) -> bool:
        """True after the next change, False when none came in time or the platform is closing."""
        if seconds <= 0 or self._closing:
            return False
        try:
            await asyncio.wait_for(self._bell.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return not self._closing

    async def _close(self, app: web.Application) -> None:
        """Let held polls answer, so that closing does not wait for them."""
        self._closing = True
        self.fleets.close()
        self._ring()


@web.middleware
async def _log_and_fault(request: web.Request, handler: Handler) -> web.StreamResponse:
    platform = request.app[_PLATFORM]
    route = request.match_info.route.name
    if not isinstance(platform, Platform) or route is None:  # a test-side or unknown address
        return await handler(request)
    body = await request.read()
    platform.log_arrival(request, route, body)
    if route not in CALLER_ROUTES:
        return await platform.meet_fault(request, route, handler)
    return await platform.answer_caller(request, route, handler, body)


def _said_in(answer: web.StreamResponse) -> dict[str, Any]:
    """The JSON object of an answer, empty where it is none."""
    try:
        said = json.loads(answer.text or "") if isinstance(answer, web.Response) else None
    except (ValueError, UnicodeError, RecursionError):
        said = None
    return said if isinstance(said, dict) else {}


def _refusal(error: web.HTTPException, why: str) -> web.HTTPException:
    error.content_type = "application/json"
    error.text = json.dumps({"error": why})
    return error


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise _refusal(web.HTTPBadRequest(), "the body must be a JSON object")
    return body


def _whole(value: Any, default: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


def _drop_oldest(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)


@asynccontextmanager
async def running_platform(
    *,
    port: int = 0,
    hold_seconds: float = HOLD_SECONDS,
    stop_hold_seconds: float = HOLD_SECONDS,
    sync_hold_seconds: float = SYNC_HOLD_SECONDS,
    requeue_after_seconds: float = 0.0,
) -> AsyncIterator[Platform]:
    """A platform that listens on loopback; its address is `platform.base` (`http://127.0.0.1:PORT`)."""
    platform = Platform(
        hold_seconds=hold_seconds,
        stop_hold_seconds=stop_hold_seconds,
        sync_hold_seconds=sync_hold_seconds,
        requeue_after_seconds=requeue_after_seconds,
    )
    # A held poll whose client has gone must not claim a job, hence the cancellation.
    runner = web.AppRunner(platform.app(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        platform.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield platform
    finally:
        await runner.cleanup()


def worker_env(
    base: str, endpoint: str = "endpoint-a", worker: str = "worker-a", *, ping_seconds: int = 1, home: str | None = None
) -> dict[str, str]:
    """The environment that a worker of this platform needs: all that the SDK reads.

    `home`: a directory without the SDK's credentials file, which would win over the key given here.
    """
    address = f"{base}/v2/{endpoint}"
    return {
        "RUNPOD_WEBHOOK_GET_JOB": f"{address}/job-take/$ID?gpu=NONE",  # the SDK appends `&…`, so a query must be there
        "RUNPOD_WEBHOOK_POST_OUTPUT": f"{address}/job-done/$RUNPOD_POD_ID/$ID?gpu=NONE",
        "RUNPOD_WEBHOOK_POST_STREAM": f"{address}/job-stream/$RUNPOD_POD_ID/$ID?gpu=NONE",
        "RUNPOD_WEBHOOK_PING": f"{address}/ping/$RUNPOD_POD_ID",
        "RUNPOD_PING_INTERVAL": str(ping_seconds * 1000),  # below one second the SDK pings without pause
        "RUNPOD_POD_ID": worker,
        "RUNPOD_POD_HOSTNAME": f"{worker}-host",
        "RUNPOD_ENDPOINT_ID": endpoint,
        "RUNPOD_AI_API_KEY": "stand-in-key",  # without one the SDK does not ping at all
        "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",  # they want 4 GB of memory and a public DNS server
        "RUNPOD_SKIP_GPU_CHECK": "true",
        **({"HOME": home} if home is not None else {}),
    }


async def _serve(options: argparse.Namespace) -> None:
    async with running_platform(
        port=options.port,
        hold_seconds=options.hold,
        stop_hold_seconds=options.stop_hold,
        requeue_after_seconds=options.requeue_after,
    ) as platform:
        print(platform.base, flush=True)
        await asyncio.Event().wait()


def main(arguments: list[str] | None = None) -> int:
    """Run the platform as a program; its address is the first line on stdout."""
    parser = argparse.ArgumentParser(prog="python -m collector.demo.platform", description="A platform stand-in.")
    parser.add_argument("--port", type=int, default=18080, help="0: any free one")
    parser.add_argument("--hold", type=float, default=HOLD_SECONDS, help="seconds that job-take is held")
    parser.add_argument("--stop-hold", type=float, default=HOLD_SECONDS, help="seconds that job-stop is held")
    parser.add_argument("--requeue-after", type=float, default=0.0, help="seconds of silence; 0: never")
    parser.add_argument("--env", metavar="ENDPOINT", help="print a worker's environment as shell lines, and end")
    options = parser.parse_args(arguments)
    if options.env is not None:
        for name, value in worker_env(f"http://127.0.0.1:{options.port}", options.env).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    try:
        asyncio.run(_serve(options))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
