"""The application around the routes: it comes up, says how it is, and answers errors in the asker's form."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from clickhouse_server import ClickHouseServer
from fastapi import APIRouter, Request, Response
from google.rpc.status_pb2 import Status
from otlp_bytes import PROTOBUF, request_of, span
from parts import PASSWORD, PATIENCE_SECONDS, eventually, served, server_url
from pydantic import SecretStr

from collector import asgi, health, ingest, metrics, migrate
from collector.app import Problem, create_app, db_of, decoded, raw_path_tail
from collector.clickhouse import Database
from collector.errors import NotFound, StoreUnavailable
from collector.settings import Settings


async def test_is_ready_once_the_store_answers_and_has_its_tables(server: httpx.AsyncClient) -> None:
    assert (await server.get("/healthz")).json() == {"status": "ok"}
    ready = await server.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    numbers = await server.get("/metrics")
    assert "stallscope_store_ready 1.0" in numbers.text


async def test_comes_up_without_a_store_keeps_spans_with_their_sender_and_recovers(
    tmp_path: Path, clickhouse: ClickHouseServer
) -> None:
    store = ClickHouseServer(tmp_path / "ch", users={"stallscope": {"password": PASSWORD}})
    settings = Settings(database_url=SecretStr(server_url(store)))
    body = request_of(span()).SerializeToString()
    async with served(asgi.collector_only(settings)) as client:
        try:
            assert (await client.get("/healthz")).status_code == 200
            away = await client.get("/readyz")
            assert away.status_code == 503
            assert "does not answer" in away.json()["reason"]
            answer = await client.post("/v1/traces", content=body, headers=PROTOBUF)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert Status.FromString(answer.content).code == 14
            assert PASSWORD not in answer.text
            await asyncio.to_thread(store.start)

            async def waits_for_tables() -> bool:
                return "migrations wait" in (await client.get("/readyz")).text

            await eventually(waits_for_tables)
            assert (await client.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 503
            other = await Database.open(settings)
            await migrate.apply(other, retention_days=14)

            async def ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await eventually(ready)
            assert (await client.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 200
            assert await other.query("SELECT count() AS n FROM spans") == [{"n": 1}]
            await other.close()
            store.kill()
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 503
        finally:
            store.kill()


async def test_a_store_that_accepts_and_never_answers_holds_nothing_up(clickhouse: ClickHouseServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        settings = Settings(
            database_url=SecretStr(f"clickhouse://127.0.0.1:{hole.getsockname()[1]}/x"), insert_seconds=0.5
        )
        async with served(create_app(settings, [health.router, ingest.router])) as client:
            assert (await client.get("/readyz")).status_code == 503
            body = request_of(span()).SerializeToString()
            answer = await client.post("/v1/traces", content=body, headers=PROTOBUF, timeout=60)
            assert answer.status_code == 503


router = APIRouter()


@router.get("/boom")
def boom() -> None:
    """A bug."""
    raise RuntimeError("with a detail that nobody outside should read")


@router.get("/away")
def away() -> None:
    """Store trouble."""
    raise StoreUnavailable("the store does not answer", retry_after_seconds=2.1)


@router.get("/api/v1/unknown")
def unknown() -> None:
    """No such job."""
    raise NotFound("nothing was ever received about it", "never_seen")


@router.get("/number")
def number(of: int) -> int:
    """A parameter that must be a number."""
    return of


@router.get("/tail/{rest:path}")
def tail(request: Request) -> list[str]:
    """What the client wrote."""
    raw = raw_path_tail(request, "/tail/")
    return [raw, decoded(raw)]


@router.get("/database")
async def database(request: Request) -> str:
    """Which database answers."""
    [row] = await db_of(request).query("SELECT currentDatabase() AS name")
    return str(row["name"])


def page(_: Request, problem: Problem) -> Response:
    """A page of an error."""
    return Response(f"<h1>{problem.status} {problem.code}</h1>", problem.status, media_type="text/html")


@pytest.fixture
async def client(clickhouse: ClickHouseServer) -> AsyncIterator[httpx.AsyncClient]:
    """An app with routes that fail."""
    settings = Settings(database_url=SecretStr(server_url(clickhouse)))
    async with served(create_app(settings, [router, ingest.router], error_page=page)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status", "code", "retryable", "retry_after"),
    [
        ("/boom", 500, "internal_error", False, None),
        ("/away", 503, "store_unavailable", True, "3"),
        ("/api/v1/unknown", 404, "never_seen", False, None),
        ("/number?of=x", 400, "bad_input", False, None),
        ("/nowhere", 404, "not_found", False, None),
    ],
)
async def test_an_error_is_a_problem_document(
    client: httpx.AsyncClient, path: str, status: int, code: str, retryable: bool, retry_after: str | None
) -> None:
    answer = await client.get(path)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "code", "retryable"}
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem["retryable"] is retryable
    assert answer.headers.get("retry-after") == retry_after
    assert "nobody outside" not in answer.text


async def test_a_browser_gets_a_page_and_the_api_never_does(client: httpx.AsyncClient) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    assert (await client.get("/away", headers=browser)).text == "<h1>503 store_unavailable</h1>"
    assert (await client.get("/away", headers=browser)).headers["retry-after"] == "3"
    for data in ("/api/v1/unknown", "/nowhere.json", "/nowhere.md"):
        assert (await client.get(data, headers=browser)).headers["content-type"] == "application/problem+json"
    wrong_method = await client.get("/v1/traces", headers=browser)
    assert (wrong_method.status_code, wrong_method.headers["content-type"]) == (405, "application/x-protobuf")


@pytest.mark.parametrize(
    ("path", "raw", "text"),
    [
        ("/tail/plain", "plain", "plain"),
        ("/tail/a%2Fb", "a%2Fb", "a/b"),
        ("/tail/a%252Fb", "a%252Fb", "a%2Fb"),
        ("/tail/a/events?x=%2F", "a/events", "a/events"),
        ("/tail/%C3%A9%FF", "%C3%A9%FF", "é\ufffd"),
        ("/tail/", "", ""),
    ],
)
async def test_ids_are_read_from_the_raw_path(client: httpx.AsyncClient, path: str, raw: str, text: str) -> None:
    assert (await client.get(path)).json() == [raw, text]


async def test_background_tasks_start_when_the_store_is_ready_and_again_when_they_fail(
    settings: Settings, db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.app.RETRY_SECONDS", (0.01,))
    runs: list[object] = []
    done = asyncio.Event()

    async def loop(db: Database, settings: Settings) -> None:
        runs.append(await db.query("SELECT 1 AS one"))
        if len(runs) < 3:
            raise RuntimeError("stumbles")
        done.set()
        await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING):
        async with served(create_app(settings, [metrics.router], tasks=[loop])) as client:
            await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
            assert 'stallscope_task_failures_total{task="loop"} 2.0' in (await client.get("/metrics")).text
    assert caplog.text.count("stumbles") >= 2


async def test_the_server_never_traces_itself(clickhouse: ClickHouseServer) -> None:
    """A global tracer provider would get the server's own requests, which it would export to itself."""
    from opentelemetry import trace  # global state of the process: only here
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    seen = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    trace.set_tracer_provider(provider)
    settings = Settings(database_url=SecretStr(server_url(clickhouse)))
    async with served(create_app(settings, [health.router, ingest.router])) as client:
        assert (await client.post("/v1/traces", content=b"", headers=PROTOBUF)).status_code == 200
        await client.get("/healthz")
    assert seen.get_finished_spans() == ()
    assert trace.get_tracer_provider() is provider
