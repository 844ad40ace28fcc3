"""The reading API as a client sees it: over ASGI, on both engines, with hostile ids."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from job_spans import OOM_LINE, Teller
from parts import Clock, served
from pydantic import SecretStr

from collector import api
from collector.alerts.rules import load
from collector.app import create_app
from collector.clickhouse import Database
from collector.digest import Digest
from collector.rows import SpanRow
from collector.settings import Settings
from collector.watch.loop import Watch

HOSTILE = [
    "a/b",
    "a/events",
    "events",
    "100%",
    "a%2Fb",
    "..",
    "?x=1#y",
    "'; DROP TABLE spans; --",
    "<script>alert(1)</script>",
    '"\\\n\t{x:String}',
    "é\U0001f525",
    "x" * 1_024,
]


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock((datetime.now(timezone.utc) - timedelta(minutes=2)).replace(microsecond=0))


@pytest.fixture
async def client(db: Database, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API alone: no digest runs beside it."""
    async with served(create_app(settings, [api.router])) as asking:
        yield asking


async def store(db: Database, spans: Sequence[SpanRow]) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)


def problem(response: httpx.Response) -> tuple[int, str, str, str]:
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert set(body) == {"type", "title", "status", "detail", "code", "retryable"}
    return response.status_code, body["status"] == response.status_code, body["code"], body["detail"]


async def test_the_answer_for_one_request(client: httpx.AsyncClient, db: Database, clock: Clock) -> None:
    worker = Teller(clock.now)
    spans = worker.failed("j")
    spans[0].attributes["exact"] = 2**63 - 1
    spans[0].attributes["nan"] = float("nan")
    await store(db, spans)

    response = await client.get("/api/v1/jobs/j")
    body = response.json()
    assert list(body) == [
        "job_id", "tenant", "endpoint_id", "worker_ids", "state", "final", "revision", "verdict", "attempts", "history",
        "phases", "log_tail", "group", "wasted", "spans",
    ]  # fmt: skip
    assert (response.status_code, body["state"], body["final"], body["revision"]) == (200, "failed", True, 1)
    assert set(body["verdict"]) == {
        "code", "cause", "queue_reason", "title", "sentence", "fault", "retry", "confidence", "inferred", "evidence",
        "advice", "missing", "doc",
    }  # fmt: skip
    assert next(item["text"] for item in body["verdict"]["evidence"] if item["what"] == "log_line") == OOM_LINE
    assert body["group"] == {
        "fingerprint": body["group"]["fingerprint"],
        "count": 1,
        "first_seen": clock.now.strftime("%Y-%m-%dT%H:%M:%S.000000Z"),
    }
    assert [(span["span_id"], span["name"]) for span in body["spans"]] == [(span.span_id, span.name) for span in spans]
    assert body["spans"][0]["attributes"] == {"faas.invocation_id": "j", "exact": 2**63 - 1, "nan": "NaN"}
    assert [(item["code"], item["why"]) for item in body["history"]] == [
        ("handler_failed", "first diagnosis, from job.deliver, job.run (error), job.claimed")
    ]


async def test_a_final_answer_has_a_tag_and_an_open_one_is_not_kept(
    client: httpx.AsyncClient, db: Database, settings: Settings, clock: Clock
) -> None:
    worker = Teller(clock.now)
    await store(db, [*worker.completed("done"), worker.claimed("open", at=100), worker.run_started("open", at=100)])
    await Digest().round(db, settings, clock.advance(101))
    done, still = await client.get("/api/v1/jobs/done"), await client.get("/api/v1/jobs/open")
    again = await client.get("/api/v1/jobs/done", headers={"If-None-Match": done.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert still.headers["cache-control"] == "no-store"
    assert "etag" not in still.headers


async def test_any_id_can_be_asked_for(client: httpx.AsyncClient, db: Database, clock: Clock) -> None:
    worker = Teller(clock.now)
    await store(db, [span for job in HOSTILE for span in worker.completed(job)])
    paths = ["/api/v1/jobs/" + quote(job, safe="").replace(".", "%2E") for job in HOSTILE]
    found = [(await client.get(path)).json().get("job_id") for path in paths]
    assert found == HOSTILE


async def test_an_unknown_request_and_a_forgotten_one_are_told_apart(
    client: httpx.AsyncClient, db: Database, settings: Settings, clock: Clock
) -> None:
    await store(db, [*Teller(clock.now).failed("old"), *Teller(clock.now, tenant="stranger").failed("theirs")])
    await Digest().round(db, settings, clock.advance(60))
    await db.command("TRUNCATE TABLE spans")
    assert problem(await client.get("/api/v1/jobs/old"))[::2] == (404, "past_retention")
    assert problem(await client.get("/api/v1/jobs/never"))[::2] == (404, "never_seen")
    assert problem(await client.get("/api/v1/jobs/theirs"))[::2] == (404, "never_seen")
    assert problem(await client.get("/api/v1/jobs/"))[::2] == (404, "not_found")


async def test_a_list_item_is_the_answer_without_its_records(
    client: httpx.AsyncClient, db: Database, settings: Settings, clock: Clock
) -> None:
    await store(db, Teller(clock.now).failed("j"))
    await Digest().round(db, settings, clock.advance(60))
    whole = (await client.get("/api/v1/jobs/j")).json()
    listed = (await client.get("/api/v1/jobs", params={"state": "failed", "endpoint": "", "cursor": ""})).json()
    assert listed == {
        "items": [{key: value for key, value in whole.items() if key not in ("spans", "phases", "log_tail")}],
        "next_cursor": None,
    }


async def test_what_cannot_be_read_is_refused_by_name(client: httpx.AsyncClient) -> None:
    unreadable = {
        "state=done": "state",
        "fault=mine": "fault",
        "limit=0": "limit",
        "limit=201": "limit",
        "limit=many": "limit",
        "cursor=zzz": "cursor",
        "since=yesterday": "since",
        "since=2026-01-01T00:00:00": "since",
        "until=1": "until",
        "since=0001-01-01T00:00:00%2B23:59": "since",
        "until=9999-12-31T23:59:59-23:59": "until",
        "statte=failed": "statte",
        "state=failed&state=lost": "state",
        f"q={'x' * 257}": "q",
    }
    for query, named in unreadable.items():
        status, same, code, detail = problem(await client.get(f"/api/v1/jobs?{query}"))
        assert (status, same, code, query) == (400, True, "bad_input", query)
        assert named in detail.split(":")[0].split(".")


async def test_lists_of_the_fleet(client: httpx.AsyncClient, db: Database, settings: Settings, clock: Clock) -> None:
    odd = Teller(clock.now, worker="w/1", endpoint="ep/1")
    await store(db, [*odd.failed("j"), odd.heartbeat(4), odd.stop_channel(5, "disabled")])
    await Digest().round(db, settings, clock.advance(60))
    await Watch(load(None)).round(db, settings, clock.now)

    async def got(path: str) -> Any:
        response = await client.get("/api/v1" + path)
        assert response.status_code == 200, response.text
        return response.json()

    group = (await got("/groups"))["items"][0]
    assert {
        "group": await got(f"/groups/{quote(group['fingerprint'], safe='')}"),
        "endpoints": [item["endpoint_id"] for item in (await got("/endpoints"))["items"]],
        "endpoint": (await got("/endpoints/ep%2F1"))["by_verdict"],
        "workers": [item["worker_id"] for item in (await got("/workers?endpoint=ep/1"))["items"]],
        "worker": (await got("/workers/w%2F1"))["stop_channel"]["state"],
        "channels": [item["worker_id"] for item in (await got("/stop-channels"))["items"]],
        "findings": [item["code"] for item in (await got("/findings"))["items"]],
    } == {
        "group": {**group, "stands_out": [], "new_in": None, "regressed": None},
        "endpoints": ["ep/1"],
        "endpoint": {"handler_failed": 1},
        "workers": ["w/1"],
        "worker": "disabled",
        "channels": ["w/1"],
        "findings": ["stop_channel_disabled"],
    }
    for path in ("/groups/none", "/endpoints/none", "/workers/none"):
        assert problem(await client.get("/api/v1" + path))[::2] == (404, "not_found")
    assert await got("/alerts") == {"items": [], "next_cursor": None}


async def test_a_pasted_log_gets_a_bare_verdict(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/api/v1/diagnose",
        json={"log_tail": f"loading\n{OOM_LINE}\n", "phase": "prestart", "exit_code": None, "signal": None},
    )
    verdict = response.json()
    assert (response.status_code, verdict["code"], verdict["cause"]) == (200, "prestart_failed", "cuda_oom")
    assert verdict["evidence"][0]["text"] == OOM_LINE


async def test_a_secret_in_a_pasted_log_does_not_come_back(client: httpx.AsyncClient) -> None:
    secret = "hf_" + "A1b2" * 9
    response = await client.post("/api/v1/diagnose", json={"log_tail": f"{OOM_LINE} token={secret}"})
    assert response.status_code == 200
    assert secret not in response.text


async def test_a_body_that_is_no_question_is_refused(client: httpx.AsyncClient) -> None:
    bodies = [
        b"{",
        b"[]",
        b"{}",
        b'{"log_tail": null}',
        b'{"log_tail": "x", "phase": "lunch"}',
        b'{"log_tail": "x", "exit_code": "1"}',
        b'{"log_tail": "x", "oom_kill": 1}',
        b'{"log_tail": "x", "logs": ""}',
        b'{"log_tail": "\xff"}',
    ]

    async def refused(body: bytes, content_type: str = "application/json; charset=utf-8") -> tuple[object, ...]:
        headers = {"Content-Type": content_type} if content_type else {}
        return problem(await client.post("/api/v1/diagnose", content=body, headers=headers))[::2]

    assert [await refused(body) for body in bodies] == [(400, "bad_input")] * len(bodies)
    assert await refused(b'{"log_tail": "' + b"x" * (1 << 20) + b'"}') == (413, "too_large")
    assert await refused(b"log_tail=x", "application/x-www-form-urlencoded") == (415, "bad_content_type")
    assert await refused(b"{}", "") == (415, "bad_content_type")


async def test_only_a_token_for_reading_reads_and_only_its_own_tenant(
    db: Database, settings: Settings, clock: Clock
) -> None:
    await store(
        db, [*Teller(clock.now, tenant="a").completed("of-a"), *Teller(clock.now, tenant="b").completed("of-b")]
    )
    await Digest().round(db, settings, clock.advance(60))
    guarded = settings.model_copy(
        update={"read_tokens": SecretStr("a:read-a,b:read-b"), "ingest_tokens": SecretStr("a:send-a")}
    )
    async with served(create_app(guarded, [api.router])) as client:

        async def jobs(token: str) -> Any:
            response = await client.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"} if token else {})
            return (
                [item["job_id"] for item in response.json()["items"]] if response.is_success else response.status_code
            )

        assert [await jobs(token) for token in ("read-a", "read-b", "send-a", "wrong", "")] == [
            ["of-a"],
            ["of-b"],
            403,
            401,
            401,
        ]
        routes = [route.path for route in api.router.routes]  # type: ignore[attr-defined]
        answers = {path: (await client.get(path.replace(":id", ""))).status_code for path in routes}
        assert set(answers.values()) <= {401, 405}


async def test_without_a_store_the_answer_says_so(settings: Settings, db: Database) -> None:
    del db  # only so that the database exists
    lost = settings.model_copy(update={"database_url": SecretStr("clickhouse://x:y@127.0.0.1:9/none")})
    app = create_app(lost, [api.router])  # never started: a request still finds the store away
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        response = await client.get("/api/v1/jobs/j")
    assert problem(response)[::2] == (503, "store_unavailable")
    assert int(response.headers["retry-after"]) >= 1


async def test_events_follow_a_request_until_it_is_final(
    db: Database, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "EVENTS_EVERY_SECONDS", 0.05)
    worker, digest = Teller(datetime.now(timezone.utc)), Digest()
    job = "a/events"
    await store(db, [worker.claimed(job), worker.run_started(job)])
    app = create_app(settings, [api.router])
    async with app.router.lifespan_context(app):
        first = await api.answer_of_job(db, "default", job, datetime.now(timezone.utc))
        events: list[tuple[bytes, bytes, dict[str, Any]]] = []
        stream = api._events(db, first)
        async for chunk in stream:
            if chunk.startswith(b":"):
                continue
            event, number, data, _, _ = chunk.split(b"\n")
            events.append((event, number, json.loads(data.removeprefix(b"data: "))))
            if len(events) == 1:
                await store(db, worker.completed(job)[1:])
                digest.touched("default", {job}, set())
                await digest.round(db, settings, datetime.now(timezone.utc))
    assert [(event, item["state"], item["final"]) for event, _, item in events] == [
        (b"event: answer", "running", False),
        (b"event: answer", "completed", True),
    ]


async def test_one_tenants_streams_are_bounded_also_when_they_come_at_once(
    client: httpx.AsyncClient, db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "EVENTS_OF_TENANT", 2)
    monkeypatch.setattr(api, "EVENTS_LONGEST_SECONDS", 0.5)
    await store(db, [Teller(clock.now).claimed("open")])
    answers = await asyncio.gather(*(client.get("/api/v1/jobs/open/events") for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503, 503, 503, 503]
    assert {int(answer.headers["retry-after"]) for answer in answers if answer.status_code == 503} == {30}
    assert (await client.get("/api/v1/jobs/never/events")).status_code == 404
    again = await asyncio.gather(*(client.get("/api/v1/jobs/open/events") for _ in range(2)))
    assert [answer.status_code for answer in again] == [200, 200], "places are given back"


async def test_events_end_when_the_server_stops(db: Database) -> None:
    worker = Teller(datetime.now(timezone.utc))
    await store(db, [worker.claimed("j"), worker.run_started("j")])
    first = await api.answer_of_job(db, "default", "j", datetime.now(timezone.utc))
    chunks = [chunk async for chunk in api._events(db, first, lambda: True)]
    assert [chunk.split(b"\n")[0] for chunk in chunks] == [b"event: answer"]


async def test_events_are_served_as_a_stream(client: httpx.AsyncClient, db: Database, clock: Clock) -> None:
    await store(db, Teller(clock.now).completed("a/b"))
    response = await asyncio.wait_for(client.get("/api/v1/jobs/a%2Fb/events"), 60)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.count("event: answer") == 1
    assert problem(await client.get("/api/v1/jobs/never/events"))[::2] == (404, "never_seen")


async def test_a_pasted_log_is_redacted_beside_the_loop_that_serves_everyone(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(text: str) -> str:
        threads.append(threading.current_thread())
        return real(text)

    real = api.redact
    monkeypatch.setattr(api, "redact", noted)
    answer = await client.post("/api/v1/diagnose", json={"log_tail": OOM_LINE})
    assert answer.json()["cause"] == "cuda_oom"
    assert threads[0] is not threading.main_thread()


async def test_the_api_describes_itself(client: httpx.AsyncClient) -> None:
    described = (await client.get("/api/v1/openapi.json")).json()
    assert set(described["paths"]) == {
        "/api/v1/jobs", "/api/v1/jobs/{job_id}", "/api/v1/jobs/{job_id}/events", "/api/v1/groups",
        "/api/v1/groups/{fingerprint}", "/api/v1/endpoints", "/api/v1/endpoints/{endpoint_id}", "/api/v1/workers",
        "/api/v1/workers/{worker_id}", "/api/v1/stop-channels", "/api/v1/findings", "/api/v1/alerts",
        "/api/v1/findings/{key}", "/api/v1/alerts/{key}", "/api/v1/audit", "/api/v1/diagnose",
    }  # fmt: skip
