"""The loop that asks the platform and stores what it tells, through the same path as everybody's spans.

Fails softly: a route that does not answer is a gap, which is stored, shown and asked for again later; the rest goes
on. What the store did not take is told again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Final

import httpx
from prometheus_client import CollectorRegistry, Counter, Gauge

from collector import staging
from collector.app import Parts, SourceState, end_tasks
from collector.diagnosis.records import SECOND_NS
from collector.errors import StallscopeError
from collector.platform import spans
from collector.platform.runpod import Runpod
from collector.platform.spans import Told
from collector.platform.starts import STARTS_KEPT, stored_starts, usual
from collector.platform.views import READY, Endpoint, Fleet, LogLine, PlatformError, Queue, Release, Worker
from collector.settings import Settings, SettingsError
from collector.writer import Request
from sdk_exporter.contract import Key

log = logging.getLogger(__name__)

TOLD_AGAIN_SECONDS: Final = 60.0
"""What has not changed is told again after this, so that "it is so" and "nobody looked" differ."""
LISTED_SECONDS: Final = 120.0
"""How often the list of endpoints and their newest releases are asked for."""
ENDPOINTS_MAX: Final = 200
STREAMS_MAX: Final = 16
"""Log streams that are open at once: of workers that are not ready first."""
LINES_MAX: Final = 5_000
"""Lines that wait for the store; more are counted and dropped, the newest first."""
FLUSH_SECONDS: Final = 1.0
REOPEN_SECONDS: Final = 10.0
"""After a stream that the platform ended: each opening is a request."""
BACK_OFF_MAX: Final = 300.0
"""What fails is asked for again after the usual pause, then twice that, up to this."""
CURSORS_KEPT: Final = 10_000


@dataclass(slots=True)
class _Gap:
    """Since when a route of an endpoint cannot be asked, and when it will be again (monotonic)."""

    since_ns: int
    error: PlatformError
    failures: int
    again_at: float
    told_at: float = 0.0


@dataclass(slots=True)
class _Known:
    """What was learnt of one endpoint, and what of it was stored."""

    endpoint: Endpoint
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=STARTS_KEPT))
    starting: dict[str, float] = field(default_factory=dict)  # worker → monotonic, first seen initializing
    workers: dict[str, Worker] = field(default_factory=dict)  # as stored
    facts: Mapping[str, spans.Value] = field(default_factory=dict)  # as stored
    told_at: float = float("-inf")
    release: Release | None = None
    release_at: float = float("-inf")
    queue: Queue | None = None
    asked_ns: int = 0  # the newest answer
    dropped: int = 0


class _Numbers:
    """What the poller says of itself to Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "stallscope_platform_requests_total",
            "Requests to the platform's API, by route and result (ok, http_<status>, timeout, network, shape).",
            ["route", "result"],
            registry=registry,
        )
        self.spans = Counter(
            "stallscope_platform_spans_total", "Spans that the platform's answers made.", registry=registry
        )
        self.dropped = Counter(
            "stallscope_platform_log_lines_dropped_total", "Log lines for which there was no room.", registry=registry
        )
        self.gaps = Gauge(
            "stallscope_platform_gaps", "Routes of endpoints that cannot be asked now.", registry=registry
        )
        self.answered = Gauge(
            "stallscope_platform_last_answer_timestamp_seconds",
            "When the platform last answered about an endpoint, Unix time; 0: never.",
            registry=registry,
        )


class Poller:
    """Its `open` is an `app.Edge`: it polls from when the app is up until it closes."""

    def __init__(self, settings: Settings, *, requests_a_minute: float | None = None) -> None:
        """Raises SettingsError without a key."""
        if not settings.platform_key.get_secret_value():
            raise SettingsError("--platform needs an API key: STALLSCOPE_PLATFORM_KEY_FILE names a file that holds one")
        self._settings, self._requests_a_minute = settings, requests_a_minute
        self._only = frozenset(filter(None, (one.strip() for one in settings.platform_endpoints.split(","))))
        self._known: dict[str, _Known] = {}
        self._gaps: dict[tuple[str, str], _Gap] = {}  # (endpoint, route)
        self._streams: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._cursors: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lines: deque[Told] = deque()
        self._listed_at = float("-inf")
        self._told_store = ""

    @asynccontextmanager
    async def open(self, parts: Parts) -> AsyncIterator[None]:
        """Poll meanwhile."""
        self._parts, self._numbers = parts, _Numbers(parts.metrics.registry)
        more = {} if self._requests_a_minute is None else {"requests_a_minute": self._requests_a_minute}
        async with httpx.AsyncClient(follow_redirects=False, trust_env=True) as client:
            self._api = Runpod(
                self._settings.platform_api_url,
                self._settings.platform_invoke_url,
                self._key,
                client,
                count=lambda route, result: self._numbers.requests.labels(route, result).inc(),
                **more,
            )
            parts.sources["platform"] = self.state
            tasks = [asyncio.create_task(self._keep_asking()), asyncio.create_task(self._keep_storing_lines())]
            try:
                yield
            finally:
                await end_tasks([*tasks, *self._streams.values()])

    def state(self) -> SourceState:
        """How it goes, for `/readyz` and `/status`."""
        newest = max((known.asked_ns for known in self._known.values()), default=0)
        heard = f"last answer at {_clock(newest)}" if newest else "no answer yet"
        problems = [f"{_subject(key)} since {_clock(gap.since_ns)}: {gap.error}" for key, gap in self._gaps.items()]
        if self._told_store:
            problems.append(f"what it told could not be stored: {self._told_store}")
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        said = "; ".join([f"{heard}, {len(self._known)} endpoints", *problems[:3]]) + more
        return SourceState(ok=not problems, detail=said)

    def _key(self) -> str:
        """The key as its file has it now; one that cannot be read leaves the one before in force."""
        try:
            self._settings = self._settings.read_again()
        except SettingsError as error:
            log.warning("the platform's key stays as it is: %s", error)
        return self._settings.platform_key.get_secret_value()

    # --------------------------------------------------------------------------------------------------------- rounds

    async def _keep_asking(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._round()
            except Exception:  # broad: a bug of ours about one answer must not end the view of all endpoints
                log.exception("a round of the platform poller failed")
            await asyncio.sleep(max(self._settings.platform_seconds - (time.monotonic() - began), 0.1))

    async def _round(self) -> None:
        if time.monotonic() - self._listed_at >= LISTED_SECONDS and self._due("", "endpoints"):
            await self._list()
        for known in list(self._known.values()):
            await self._ask(known)
        self._choose_streams()

    async def _list(self) -> None:
        try:
            found = await self._api.endpoints()
        except PlatformError as error:
            await self._note_gap("", "endpoints", error)
            if not self._known:  # those that were named can be asked for without the list
                await self._take_up([Endpoint(one) for one in sorted(self._only)])
            return
        self._close_gap("", "endpoints")
        self._listed_at = time.monotonic()
        await self._take_up([one for one in found if not self._only or one.id in self._only][:ENDPOINTS_MAX])

    async def _take_up(self, endpoints: Sequence[Endpoint]) -> None:
        new = [one.id for one in endpoints if one.id not in self._known]
        before = await stored_starts(self._parts.db, self._settings.platform_tenant, new)
        for endpoint in endpoints:
            known = self._known.setdefault(endpoint.id, _Known(endpoint))
            known.endpoint = endpoint
            known.starts.extend(before.get(endpoint.id, ()))
        gone = self._known.keys() - {one.id for one in endpoints}
        for endpoint_id in gone:
            del self._known[endpoint_id]
            self._gaps = {key: gap for key, gap in self._gaps.items() if key[0] != endpoint_id}

    async def _ask(self, known: _Known) -> None:
        """One endpoint: its workers, its queue, now and then its release. One that fails leaves the others."""
        endpoint, began_ns = known.endpoint.id, time.time_ns()
        fleet = None
        if self._due(endpoint, "workers"):
            try:
                fleet = await self._api.fleet(endpoint)
                self._close_gap(endpoint, "workers")
            except PlatformError as error:
                await self._note_gap(endpoint, "workers", error)
        if self._due(endpoint, "health"):
            try:
                known.queue = await self._api.queue(endpoint)
                self._close_gap(endpoint, "health")
            except PlatformError as error:
                known.queue = None
                await self._note_gap(endpoint, "health", error)
        if time.monotonic() - known.release_at >= LISTED_SECONDS and self._due(endpoint, "releases"):
            try:
                known.release = await self._api.release(endpoint)
                known.release_at = time.monotonic()
                self._close_gap(endpoint, "releases")
            except PlatformError as error:
                await self._note_gap(endpoint, "releases", error)
        if fleet is not None:
            known.asked_ns = time.time_ns()
            self._numbers.answered.set(known.asked_ns / 1e9)
            await self._tell(known, fleet, began_ns)

    async def _tell(self, known: _Known, fleet: Fleet, began_ns: int) -> None:
        """Store what is new of an endpoint and its workers. What was not stored counts as not told."""
        now, now_ns = time.monotonic(), known.asked_ns
        told: list[Told] = []
        for worker in fleet.workers:
            started = self._start_of(known, worker, now)
            if known.workers.get(worker.id) != worker:
                told.append(spans.worker_span(known.endpoint, worker, now_ns, started))
        facts = spans.endpoint_facts(known.endpoint, fleet, known.queue, known.release, usual(known.starts))
        if known.dropped:
            facts[Key.PLATFORM_LINES_DROPPED] = known.dropped
        if facts != known.facts or now - known.told_at >= TOLD_AGAIN_SECONDS:
            told.append(spans.endpoint_span(known.endpoint, facts, began_ns, now_ns))
        if told and await self._store(told):
            known.workers = {worker.id: worker for worker in fleet.workers}
            known.facts, known.told_at = facts, now

    def _start_of(self, known: _Known, worker: Worker, now: float) -> float | None:
        """How long a worker that has just become ready was initializing; None for all others."""
        if worker.status == "INITIALIZING":
            known.starting.setdefault(worker.id, now)
            while len(known.starting) > len(known.workers) + 1_000:
                del known.starting[next(iter(known.starting))]
            return None
        began = known.starting.pop(worker.id, None)
        if began is None or worker.status not in READY:
            return None
        known.starts.append(now - began)
        return now - began

    # ----------------------------------------------------------------------------------------------------------- gaps

    def _due(self, endpoint: str, route: str) -> bool:
        gap = self._gaps.get((endpoint, route))
        return gap is None or time.monotonic() >= gap.again_at

    async def _note_gap(self, endpoint: str, route: str, error: PlatformError) -> None:
        """Remember it, wait longer each time, and store it for the endpoint at once and then once a minute."""
        now, known = time.monotonic(), self._known.get(endpoint)
        gap = self._gaps.get((endpoint, route))
        if gap is None:
            log.warning("the platform's %s cannot be asked: %s", _subject((endpoint, route)), error)
            since_ns = (known.asked_ns if known else 0) or time.time_ns()
            gap = self._gaps[endpoint, route] = _Gap(since_ns, error, 0, now, now - TOLD_AGAIN_SECONDS)
            self._numbers.gaps.set(len(self._gaps))
        wait = min(self._settings.platform_seconds * 2 ** min(gap.failures, 10), BACK_OFF_MAX)
        gap.error, gap.failures, gap.again_at = error, gap.failures + 1, now + max(wait, error.retry_after_seconds or 0)
        if known and now - gap.told_at >= TOLD_AGAIN_SECONDS:
            span = spans.gap_span(known.endpoint, route, gap.since_ns, time.time_ns(), error)
            if await self._store([span]):
                gap.told_at = now

    def _close_gap(self, endpoint: str, route: str) -> None:
        if self._gaps.pop((endpoint, route), None) is not None:
            self._numbers.gaps.set(len(self._gaps))
            log.info("the platform's %s can be asked again", _subject((endpoint, route)))

    # ----------------------------------------------------------------------------------------------------------- logs

    def _choose_streams(self) -> None:
        """Follow the logs of workers that are not ready, and of all where requests wait; end the others."""
        wanted: dict[tuple[str, str], tuple[bool, _Known]] = {}
        for known in self._known.values():
            waits = known.queue is not None and bool(known.queue.queued)
            for worker in known.workers.values():
                if worker.status not in READY or waits:
                    wanted[known.endpoint.id, worker.id] = (worker.status in READY, known)
        chosen = sorted(wanted, key=lambda key: (key not in self._streams, wanted[key][0]))[:STREAMS_MAX]
        for key in self._streams.keys() - set(chosen):
            self._streams.pop(key).cancel()
            self._close_gap(key[0], f"logs of {key[1]}")
        for key in chosen:
            if key not in self._streams:
                self._streams[key] = asyncio.create_task(self._follow(wanted[key][1], key[1]))

    async def _follow(self, known: _Known, worker: str) -> None:
        """One worker's log, from where it was left, for as long as it is wanted."""
        key, route = (known.endpoint.id, worker), f"logs of {worker}"
        while True:
            try:
                async for line in self._api.log(*key, self._cursors.get(key, "")):
                    self._close_gap(key[0], route)
                    if line is not None:
                        self._take_line(known, key, line)
                error = None
            except PlatformError as failed:
                # A worker that was scaled down since it was listed is no trouble of the platform's.
                error = None if failed.kind == "http_404" else failed
            except Exception as failed:  # broad: one worker's log must not end silently; told as a gap
                log.exception("reading a worker's log failed")
                error = PlatformError("internal_error", type(failed).__name__)
            if error is not None:
                await self._note_gap(key[0], route, error)
            gap = self._gaps.get((key[0], route))
            await asyncio.sleep(max(gap.again_at - time.monotonic(), 0) if gap else REOPEN_SECONDS)

    def _take_line(self, known: _Known, key: tuple[str, str], line: LogLine) -> None:
        if len(self._lines) >= LINES_MAX:
            known.dropped += 1
            self._numbers.dropped.inc()
        else:
            self._lines.append(spans.log_span(known.endpoint, key[1], line, time.time_ns()))
        if line.cursor:
            self._cursors[key] = line.cursor
            self._cursors.move_to_end(key)
            if len(self._cursors) > CURSORS_KEPT:
                self._cursors.popitem(last=False)

    async def _keep_storing_lines(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            lines = list(self._lines)
            if lines and await self._store(lines):
                for _ in lines:
                    self._lines.popleft()

    # ---------------------------------------------------------------------------------------------------------- store

    async def _store(self, told: Iterable[Told]) -> bool:
        """Whether it is stored, or can never be: what is refused alone is counted as everybody's is."""
        tenant, now_ms = self._settings.platform_tenant, time.time_ns() // 1_000_000
        try:
            staged = staging.stage(spans.message_of(told), tenant, now_ms)
            await self._parts.writer.write(Request.of(tenant, staged))
        except StallscopeError as error:
            self._told_store = str(error)
            return False
        self._told_store = ""
        self._numbers.spans.inc(staged.spans)
        self._parts.metrics.stored.inc(staged.spans)
        for reason, count in staged.rejections.reasons.items():
            self._parts.metrics.refused.labels(reason).inc(count)
        return True


def _subject(key: tuple[str, str]) -> str:
    endpoint, route = key
    return f"{route} of endpoint `{endpoint}`" if endpoint else f"list of {route}"


def _clock(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // SECOND_NS, timezone.utc):%H:%M:%SZ}"
