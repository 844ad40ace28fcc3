"""Assemble the application: its parts, its life, and how an error is answered. Knows no route of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response

from sdk_exporter.contract import VERSION

from . import migrate, otlp
from .auth import KeyRing, Tokens
from .clickhouse import Database
from .congestion import Congestion
from .errors import BadInput, NotFound, StallscopeError
from .journal import Journal
from .metrics import Metrics
from .rates import Rates
from .settings import Settings
from .writer import OnStored, SpanWriter

log = logging.getLogger(__name__)

FIRST_TRY_SECONDS: Final = 10.0
"""How long a start waits for the store before it answers without one."""
RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between tries to reach the store; the last one repeats."""

CANCEL_AGAIN_SECONDS: Final = 0.5

BackgroundTask = Callable[[Database, Settings], Awaitable[None]]
"""A loop that runs beside the server once the store is ready; started again when it fails."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as it is shown: RFC 9457, and the context of an error page."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool


Edge = Callable[["Parts"], AbstractAsyncContextManager[None]]
"""Another way in beside HTTP: open from when the app is up until it closes, before the store does."""
ErrorPage = Callable[[Request, Problem], Response]
"""Shows a problem to a browser."""


@dataclass(slots=True)
class StoreState:
    """Whether the store can be used, and if not, why."""

    reason: str = "the store was not asked yet"
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class SourceState:
    """How it goes with something that this server asks of its own accord. Never makes the server unready."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes share. Reached through `db_of` and its siblings."""

    settings: Settings
    db: Database
    key_ring: KeyRing
    metrics: Metrics
    writer: SpanWriter
    journal: Journal | None
    in_flight: otlp.InFlight
    rates: Rates
    congestion: Congestion
    store: StoreState
    error_page: ErrorPage | None
    sources: dict[str, Callable[[], SourceState]] = field(default_factory=dict)
    """What else is asked for news, by name; an edge adds itself."""

    @property
    def tokens(self) -> Tokens:
        """The tokens in force."""
        return self.key_ring.tokens


def create_app(
    settings: Settings,
    routers: Sequence[APIRouter],
    *,
    on_stored: OnStored | None = None,
    tasks: Sequence[BackgroundTask] = (),
    edges: Sequence[Edge] = (),
    error_page: ErrorPage | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The application with these routes. It comes up without a store too, and then keeps trying to reach it.

    Raises SettingsError where a setting cannot be used.
    """
    db, metrics = Database(settings), Metrics()
    journal = Journal(Path(settings.journal_dir), settings.journal_bytes, metrics) if settings.journal_dir else None
    parts = Parts(
        settings=settings,
        db=db,
        key_ring=KeyRing(settings, lambda result: metrics.token_changes.labels(result).inc()),
        metrics=metrics,
        writer=SpanWriter(db, metrics, backlog=journal, on_stored=on_stored),
        journal=journal,
        in_flight=otlp.InFlight(settings.in_flight_bytes, metrics),
        rates=Rates(settings.ingest_rate, monotonic),
        congestion=Congestion(monotonic),
        store=StoreState(),
        error_page=error_page,
    )
    app = FastAPI(
        title="Stallscope",
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_life(parts, tasks, edges),
        # FastAPI traces itself wherever a global tracer provider exists: a collector that exports to itself would
        # feed on its own requests.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.parts = parts
    for router in routers:
        app.include_router(router)
    for kind in (StallscopeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer_error)
    return app


# ------------------------------------------------------------------------------------------- what a route asks for


def parts_of(request: HTTPConnection) -> Parts:
    """Everything the app was made of."""
    parts = request.app.state.parts
    if not isinstance(parts, Parts):  # the app's state is untyped; say it here rather than deep in a route
        raise TypeError("create_app has not run")
    return parts


def db_of(request: HTTPConnection) -> Database:
    """The store."""
    return parts_of(request).db


def settings_of(request: HTTPConnection) -> Settings:
    """The settings that this app was made with."""
    return parts_of(request).settings


def count_request(request: Request, status: int) -> None:
    """Count an answer of `/v1/*` by signal; a path that is none is `other`, so that a client cannot make up labels."""
    signal = request.url.path.removeprefix("/v1/")
    known = signal if signal in ("traces", "logs", "metrics") else "other"
    parts_of(request).metrics.requests.labels(known, str(status)).inc()


class _IdConvertor(Convertor[str]):
    """`{job_id:id}` in a route: any text, line breaks too, on which `{…:path}` would answer 404."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _IdConvertor())


def raw_path_tail(request: HTTPConnection, prefix: str) -> str:
    """What follows `prefix` in the path as the client wrote it, still percent-encoded (`decoded` undoes that).

    Routes match the decoded path, in which the job id `a%2Fb` looks like two segments. Take a suffix such as
    `/events` off this text first and decode the rest: only a slash that was sent as a slash separates.
    """
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    path = raw.partition(b"?")[0].decode("latin-1")
    return path[len(prefix) :] if path.startswith(prefix) else ""


def decoded(raw: str) -> str:
    """A part of `raw_path_tail` with its percent-encoding undone, once."""
    return unquote(raw, errors="replace")


# --------------------------------------------------------------------------------------------------------- its life


def _life(
    parts: Parts, tasks: Sequence[BackgroundTask], edges: Sequence[Edge]
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if parts.journal is not None:
            await parts.journal.open()
            parts.writer.start()
        running = [asyncio.create_task(_reach_store(parts), name="reach-store")]
        running.append(asyncio.create_task(parts.key_ring.keep_reading(), name="read-tokens"))
        running += [asyncio.create_task(_keep_running(task, parts), name=task.__name__) for task in tasks]
        try:
            await _first_try(parts.store)
            async with AsyncExitStack() as open_edges:
                for edge in edges:
                    await open_edges.enter_async_context(edge(parts))
                yield
        finally:
            await parts.writer.close()
            if parts.journal is not None:
                await parts.journal.release()
            await end_tasks(running)
            await parts.db.close()

    return lifespan


async def end_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel and wait. Cancelled again until they have ended: `asyncio.wait_for` before Python 3.12 can swallow one."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)


async def _first_try(store: StoreState) -> None:
    try:
        await asyncio.wait_for(store.asked.wait(), FIRST_TRY_SECONDS)
    except asyncio.TimeoutError:
        log.warning("started without the store: it has not answered in %g s", FIRST_TRY_SECONDS)


async def _reach_store(parts: Parts) -> None:
    """Try until the store answers and has its tables. On the embedded store pending migrations are applied."""
    tries = 0
    while not parts.store.ready.is_set():
        try:
            await _prepare(parts)
        except StallscopeError as error:
            if str(error) != parts.store.reason:
                log.warning("not ready: %s", error)
            parts.store.reason = str(error)
        else:
            parts.store.reason = ""
            parts.store.ready.set()
            parts.metrics.store_ready.set(1)
        parts.store.asked.set()
        if not parts.store.ready.is_set():
            await asyncio.sleep(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
            tries += 1


async def _prepare(parts: Parts) -> None:
    await parts.db.connect()
    if parts.db.embedded:
        await migrate.apply(parts.db, retention_days=parts.settings.retention_days)
    await migrate.check(parts.db)


async def _keep_running(task: BackgroundTask, parts: Parts) -> None:
    await parts.store.ready.wait()
    while True:
        try:
            await task(parts.db, parts.settings)
            return
        except Exception as error:  # broad: one loop's error must not end the others, nor silently this one
            parts.metrics.task_failures.labels(task.__name__).inc()
            log.warning("%s failed and starts again: %s", task.__name__, error, exc_info=not _expected(error))
        await asyncio.sleep(RETRY_SECONDS[-1])


def _expected(error: Exception) -> bool:
    return isinstance(error, StallscopeError) and error.retryable


# ------------------------------------------------------------------------------------------------ answers to errors


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to any error: a Status in the request's own type for OTLP, a page for a browser, else a problem."""
    problem, headers = problem_of(error), _headers_of(error)
    if problem.status >= 500 and not _expected(error):
        log.error("%s %s: %s", request.method, request.url.path, problem.code, exc_info=error)
    parts = parts_of(request)
    if request.url.path.startswith("/v1/"):
        count_request(request, problem.status)
        response = otlp.failure(problem.status, problem.detail, request.headers.get("content-type", ""))
    elif parts.error_page is not None and _is_browser(request):
        response = parts.error_page(request, problem)
    else:
        response = JSONResponse(asdict(problem), problem.status, media_type="application/problem+json")
    for name, value in headers.items():
        response.headers.setdefault(name, value)
    return response


def problem_of(error: Exception) -> Problem:
    """What may be told of an error. Of one that is not ours: nothing but that it happened."""
    if isinstance(error, NotFound):
        return _problem(error.status, error.reason, error.title, str(error))
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return problem_of(BadInput(f"{where}: {first['msg']}"))
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_input")
        return _problem(error.status_code, code, str(error.detail), str(error.detail))
    if isinstance(error, StallscopeError):
        return _problem(error.status, error.code, error.title, str(error), retryable=error.retryable)
    return _problem(
        500, StallscopeError.code, StallscopeError.title, "An error of the server; its log has the details."
    )


def _problem(status: int, code: str, title: str, detail: str, *, retryable: bool = False) -> Problem:
    return Problem(f"urn:stallscope:error:{code}", title, status, detail, code, retryable)


def _headers_of(error: Exception) -> dict[str, str]:
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if isinstance(error, StallscopeError) and error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, StallscopeError) and error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def _is_browser(request: Request) -> bool:
    path = request.url.path
    is_data = path.startswith("/api/") or path.endswith((".json", ".md"))
    return not is_data and "text/html" in request.headers.get("accept", "")
