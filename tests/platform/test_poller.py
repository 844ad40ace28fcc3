"""The poller against a platform that is slow, refuses, answers nonsense and cuts its streams; and what is stored."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from parts import eventually, served
from scripted import ENDPOINT, KEY

from collector import asgi
from collector.cli import main
from collector.clickhouse import Database
from collector.demo.platform import Fault, Platform
from collector.platform.poller import Poller
from collector.settings import Settings, SettingsError
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

ALWAYS = 100_000


async def told(db: Database, name: str, *, tenant: str = "default") -> list[dict[str, Any]]:
    """Stored spans of a name, each once, oldest first, with their attributes read."""
    rows = await db.query(
        "SELECT * FROM spans WHERE tenant = {tenant:String} AND name = {name:String}"
        " ORDER BY arrived_ms DESC LIMIT 1 BY span_id",
        {"tenant": tenant, "name": name},
    )
    read = [
        {**row, "attributes": json.loads(row["attributes"]), "resource": json.loads(row["resource"])} for row in rows
    ]
    return sorted(read, key=lambda row: (row["start_ns"], row["arrived_ms"]))


async def until_told(db: Database, name: str, count: int, **only: str) -> list[dict[str, Any]]:
    """At least so many of them."""
    found: list[dict[str, Any]] = []

    async def enough() -> bool:
        nonlocal found
        found = [row for row in await told(db, name) if all(row[key] == value for key, value in only.items())]
        return len(found) >= count

    await eventually(enough)
    return found


async def until_state(client: httpx.AsyncClient, *, ok: bool, says: str = "") -> str:
    """What /readyz says of the platform, once it is so. The server is ready all the time."""
    detail = ""

    async def so() -> bool:
        nonlocal detail
        answer = await client.get("/readyz")
        assert answer.status_code == 200
        state = answer.json()["platform"]
        detail = state["detail"]
        return state["ok"] is ok and says in detail

    await eventually(so)
    return detail


async def test_what_the_platform_shows_is_stored_once_per_change(
    db: Database, platform: Platform, polled: httpx.AsyncClient
) -> None:
    platform.fleets.worker(ENDPOINT, "w1", "INITIALIZING")
    workers = await until_told(db, SpanName.PLATFORM_WORKER, 1)
    platform.fleets.worker(ENDPOINT, "w1", "IDLE")
    workers = await until_told(db, SpanName.PLATFORM_WORKER, 2)
    assert [row["attributes"][Key.PLATFORM_STATUS] for row in workers] == ["INITIALIZING", "IDLE"]
    assert workers[1]["attributes"][Key.PLATFORM_START_SECONDS] >= 0
    assert (workers[1]["worker_id"], workers[1]["endpoint_id"]) == ("w1", ENDPOINT)
    assert workers[1]["resource"] == {
        Key.CLOUD_PROVIDER: "runpod", Key.FAAS_NAME: ENDPOINT, Key.SERVICE_NAME: "ep1 by name",
        Key.SERVICE_INSTANCE_ID: "w1", Key.CONTAINER_IMAGE_NAME: "registry.test/painter:1",
        Key.CLOUD_REGION: "EU-XX-1", Key.HW_MODEL: "NVIDIA GeForce RTX 4090",
    }  # fmt: skip
    platform.fleets.scale_to(ENDPOINT, 0, release="rel-2")
    newest = (await until_told(db, SpanName.PLATFORM_ENDPOINT, 3))[-1]["attributes"]
    assert newest[Key.PLATFORM_WORKERS_IDLE] == 1
    assert newest[Key.PLATFORM_JOBS_QUEUED] == 0
    asked = len(platform.find_events("workers"))
    await platform.wait_event("workers", count=asked + 5)
    assert len(await told(db, SpanName.PLATFORM_WORKER)) <= 3  # the new version makes it stale: one more, no more


async def test_log_lines_are_followed_resumed_after_a_cut_and_stored_once(
    db: Database, platform: Platform, polled: httpx.AsyncClient
) -> None:
    platform.fleets.worker(ENDPOINT, "w1", "INITIALIZING")
    secret = "hf_" + "x9Q" * 12
    for text in ("create 20GB volume", f"pulled with token={secret}", "start container"):
        platform.fleets.write(ENDPOINT, "w1", text)
    platform.fleets.write(ENDPOINT, "w1", "the user's own output", source="container")
    await until_told(db, SpanName.PLATFORM_LOG, 3)
    for number in range(4):
        opened = len(platform.find_events("logs"))
        platform.fleets.write(ENDPOINT, "w1", f"line {number} before the cut")
        platform.fleets.cut_logs()
        platform.fleets.write(ENDPOINT, "w1", f"line {number} while nobody reads")
        await platform.wait_event("logs", count=opened + 1)
        await until_told(db, SpanName.PLATFORM_LOG, 3 + 2 * (number + 1))
    lines = [row["attributes"][Key.PLATFORM_LINE] for row in await told(db, SpanName.PLATFORM_LOG)]
    assert len(lines) == 11
    assert len(set(lines)) == 11
    assert "own output" not in str(lines)
    assert secret not in str(lines)
    assert "pulled with" in str(lines)
    raw = await db.query(
        "SELECT count() AS stored FROM spans FINAL WHERE name = {name:String}", {"name": SpanName.PLATFORM_LOG}
    )
    assert raw[0]["stored"] == 11


async def test_a_server_that_starts_again_counts_no_line_twice(
    db: Database, platform: Platform, polling: Settings
) -> None:
    platform.fleets.worker(ENDPOINT, "w1", "UNHEALTHY")
    for number in range(3):
        platform.fleets.write(ENDPOINT, "w1", f"start container {number}")
    for start in (1, 2):
        async with served(asgi.collector_only(polling, [Poller(polling, requests_a_minute=60_000).open])):
            await platform.wait_event("logs", count=start)
            await until_told(db, SpanName.PLATFORM_LOG, 3)
            platform.fleets.write(ENDPOINT, "w1", f"after start {start}")
            await until_told(db, SpanName.PLATFORM_LOG, 3 + start)
    assert len(await told(db, SpanName.PLATFORM_LOG)) == 5


FAULTS = {
    "500": (Fault(500, ALWAYS, "<html>"), "HTTP 500", "http_500"),
    "429": (Fault(429, ALWAYS), "HTTP 429", "http_429"),
    "no JSON": (Fault(200, ALWAYS, "<html>welcome", "text/html"), "no JSON", "shape"),
    "another shape": (Fault(200, ALWAYS, '{"workers": {"w1": 3}}', "application/json"), "no list `workers`", "shape"),
    "a list": (Fault(200, ALWAYS, "[[]]", "application/json"), "no list `workers`", "shape"),
    "hangs up": (Fault(times=ALWAYS, hangup=True), "Error", "network"),
}  # fmt: skip


async def test_a_platform_in_trouble_is_a_gap_that_is_shown(
    db: Database, platform: Platform, polled: httpx.AsyncClient
) -> None:
    await until_told(db, SpanName.PLATFORM_ENDPOINT, 1)
    for number, (fault, says, kind) in enumerate(FAULTS.values(), 1):
        platform.arm("workers", fault)
        detail = await until_state(polled, ok=False, says=says)
        assert "workers of endpoint `ep1` since" in detail
        gap = (await until_told(db, SpanName.PLATFORM_ENDPOINT, number, status="error"))[-1]
        assert gap["attributes"] == {Key.ERROR_TYPE: kind, Key.PLATFORM_ROUTE: "workers"}
        assert says in gap["status_message"]
        assert gap["start_ns"] < gap["end_ns"]
        page = (await polled.get("/status", headers={"Accept": "text/html"})).text
        assert "The platform answers" in page
        assert "ep1" in page
        assert KEY not in page
        metrics = (await polled.get("/metrics")).text
        assert f'stallscope_platform_requests_total{{result="{kind}",route="workers"}}' in metrics
        assert "stallscope_platform_gaps 1.0" in metrics
        platform.disarm("workers")
        await until_state(polled, ok=True)


async def test_entries_that_make_no_sense_are_left_out(
    db: Database, platform: Platform, polled: httpx.AsyncClient
) -> None:
    odd = ["w", None, {"id": 7}, {"id": "w1", "status": ["IDLE"], "version": 1e99, "isStale": "no", "image": {}}]
    answer = json.dumps({"workers": odd, "endpointVersion": "four"})
    platform.arm("workers", Fault(200, ALWAYS, answer, "application/json"))
    worker = (await until_told(db, SpanName.PLATFORM_WORKER, 1))[0]
    assert (worker["worker_id"], worker["attributes"]) == ("w1", {})
    await until_state(polled, ok=True)


async def test_a_slow_platform_holds_nothing_up(db: Database, platform: Platform, polled: httpx.AsyncClient) -> None:
    stuck = asyncio.Event()
    platform.arm("workers", Fault(200, 1, until=stuck, serve=True))
    await platform.wait_event("workers")
    assert (await polled.get("/status.json")).status_code == 200
    assert (await polled.get("/readyz")).status_code == 200
    stuck.set()
    await until_told(db, SpanName.PLATFORM_ENDPOINT, 1)


async def test_a_used_up_quota_is_waited_for(db: Database, platform: Platform, polled: httpx.AsyncClient) -> None:
    """A `Retry-After` of an hour: no further request of any kind to that API."""
    await until_told(db, SpanName.PLATFORM_ENDPOINT, 1)
    platform.arm("workers", Fault(429, ALWAYS, headers={"Retry-After": "3600"}))
    await until_state(polled, ok=False, says="HTTP 429")
    asked, queues = len(platform.find_events("workers")), len(platform.find_events("health"))
    await platform.wait_event("health", count=queues + 3)
    assert len(platform.find_events("workers")) == asked


async def test_a_key_that_changed_is_in_force_at_once(
    db: Database, platform: Platform, polled: httpx.AsyncClient, polling: Settings, tmp_path: Path
) -> None:
    await until_told(db, SpanName.PLATFORM_ENDPOINT, 1)
    platform.fleets.key = "another-key"
    await until_state(polled, ok=False, says="HTTP 401")
    (tmp_path / "key").write_text("another-key\n")
    await until_state(polled, ok=True)


async def test_records_belong_to_the_tenant_that_was_named(db: Database, platform: Platform, polling: Settings) -> None:
    theirs = polling.model_copy(update={"platform_tenant": "acme"})
    async with served(asgi.collector_only(theirs, [Poller(theirs, requests_a_minute=60_000).open])):

        async def stored() -> bool:
            return bool(await told(db, SpanName.PLATFORM_ENDPOINT, tenant="acme"))

        await eventually(stored)
    assert await told(db, SpanName.PLATFORM_ENDPOINT) == []


def test_without_a_key_it_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="STALLSCOPE_PLATFORM_KEY_FILE"):
        Poller(Settings())
    for arguments in (["--platform", "runpod"], ["--platform", "runpod", "--role", "dashboard"]):
        answer = CliRunner().invoke(main, ["serve", "--port", "0", *arguments])
        assert answer.exit_code == 2


async def test_a_crash_loop_is_told_to_who_asks_for_the_request(
    db: Database, platform: Platform, polled: httpx.AsyncClient
) -> None:
    """From the platform's script to the API: no worker told anything."""
    job = "waits-in-vain"
    facts = {Key.FAAS_NAME: ENDPOINT}
    sent = span_of_caller(job, facts)
    answer = await polled.post("/v1/traces", json=sent)
    assert answer.status_code == 200
    platform.fleets.worker(ENDPOINT, "w1", "THROTTLED")
    for _ in range(4):
        platform.fleets.write(ENDPOINT, "w1", "error starting container: no space left on device")
    verdict: dict[str, Any] = {}

    async def told_so() -> bool:
        nonlocal verdict
        found = await polled.get(f"/api/v1/jobs/{job}")
        verdict = found.json().get("verdict", {})
        return bool(verdict.get("queue_reason") == "crash_loop")

    await eventually(told_so)
    assert "the container of worker `w1` was started 4 times in 10 minutes" in verdict["sentence"]
    assert verdict["cause"] == "disk_full"
    assert {item["source"] for item in verdict["evidence"]} == {"caller", "collector", "platform"}


def span_of_caller(job: str, facts: dict[str, str]) -> dict[str, Any]:
    """OTLP/JSON: the caller has just sent the request."""
    now = time.time_ns()
    attributes = {Key.INVOCATION_ID: job, Key.CALLER_STATUS: "IN_QUEUE", Key.SPAN_ID: "b" * 16, **facts}
    span = {
        "traceId": "a" * 32,
        "spanId": "c" * 16,
        "name": SpanName.CALLER_REQUEST + STARTED_SUFFIX,
        "startTimeUnixNano": str(now),
        "endTimeUnixNano": str(now),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }
    resource = {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
