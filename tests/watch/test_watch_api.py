"""Findings and alerts as the API and the pages tell them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest
from fleet import Fleet
from parts import served
from pydantic import SecretStr
from sinks import http_sink

from collector import asgi
from collector.alerts.rules import load
from collector.alerts.webhook import Webhook
from collector.settings import Settings
from collector.watch.loop import Watch

ADMIN, READER, STRANGER = "admin-token", "reader-token", "stranger-token"


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Pages and API over the fleet's store; nobody watches there but the test."""
    with_tokens = settings.model_copy(
        update={
            "admin_tokens": SecretStr(ADMIN),
            "read_tokens": SecretStr(f"{READER},other:{STRANGER}"),
        }
    )
    async with served(asgi.dashboard_only(with_tokens), headers={"authorization": f"Bearer {READER}"}) as asking:
        yield asking


async def _dead(fleet: Fleet, endpoint: str = "llama/chat <b>") -> None:
    (worker,) = fleet.add(1, endpoint)
    with http_sink() as sink:
        fleet.watch = Watch(load(None), {"webhook": Webhook(sink.url)}, settle_seconds=0.05)
        await fleet.calm()
        await fleet.tell(worker.channel(fleet.now, "failing", consecutive=40, polls=40, age=40.0, status=503))
        await fleet.look()


async def test_a_finding_and_its_alert_have_the_fields_of_the_contract(fleet: Fleet, client: httpx.AsyncClient) -> None:
    await _dead(fleet)
    (finding,) = (await client.get("/api/v1/findings")).json()["items"]
    assert set(finding) == {
        "key", "code", "severity", "state", "endpoint_id", "worker_ids", "job_ids", "opened_at", "updated_at",
        "resolved_at", "sentence", "evidence",
    }  # fmt: skip
    assert (finding["code"], finding["state"], finding["resolved_at"]) == ("stop_channel_dead", "open", None)
    assert finding["key"] == "stop_channel_dead:llama/chat <b>:1"
    (alert,) = (await client.get("/api/v1/alerts")).json()["items"]
    assert set(alert) - set(finding) == {"rule", "deliveries"}
    assert (alert["rule"], alert["severity"], alert["sentence"]) == ("DeadStopChannel", "critical", finding["sentence"])
    (delivery,) = alert["deliveries"]
    assert (delivery["channel"], delivery["kind"], delivery["state"]) == ("webhook", "open", "sent")


async def test_lists_are_narrowed_paged_and_kept_apart(fleet: Fleet, client: httpx.AsyncClient) -> None:
    workers = fleet.add(1, "a") + fleet.add(1, "b")
    await fleet.calm()
    for worker in workers:
        await fleet.tell(worker.channel(fleet.now, "disabled"))
        await fleet.live(15)
    codes = "/api/v1/findings?code=stop_channel_disabled"
    first = (await client.get(f"{codes}&limit=1")).json()
    second = (await client.get(f"{codes}&limit=1&cursor={quote(first['next_cursor'])}")).json()
    assert [page["items"][0]["endpoint_id"] for page in (first, second)] == ["b", "a"]
    assert second["next_cursor"] is None
    assert len((await client.get("/api/v1/findings?endpoint=a&state=open")).json()["items"]) == 1
    assert (await client.get("/api/v1/findings?state=resolved")).json()["items"] == []
    assert (await client.get("/api/v1/findings?state=bad")).status_code == 400
    theirs = await client.get("/api/v1/findings", headers={"authorization": f"Bearer {STRANGER}"})
    assert theirs.json()["items"] == []


async def test_an_admin_acknowledges_snoozes_and_reopens(fleet: Fleet, client: httpx.AsyncClient) -> None:
    await _dead(fleet)
    (alert,) = (await client.get("/api/v1/alerts")).json()["items"]
    path = f"/api/v1/alerts/{quote(alert['key'], safe='')}"
    admin = {"authorization": f"Bearer {ADMIN}"}
    assert (await client.post(f"{path}/acknowledge")).status_code == 403
    assert (await client.post(f"{path}/acknowledge", headers=admin)).json()["state"] == "acknowledged"
    assert (await client.get("/api/v1/alerts")).json()["items"][0]["state"] == "acknowledged"
    assert (await client.post(f"{path}/reopen", headers=admin)).json()["state"] == "open"
    assert (await client.post(f"{path}/snooze", headers=admin)).status_code == 400
    until = (fleet.now + timedelta(hours=1)).isoformat()
    snoozed = await client.post(f"{path}/snooze", params={"until": until}, headers=admin)
    assert snoozed.json()["state"] == "acknowledged"
    for wrong in (f"{path}/delete", "/api/v1/alerts/nothing:1/reopen", "/api/v1/alerts/x/reopen"):
        assert (await client.post(wrong, headers=admin)).status_code == 404


async def test_pages_tell_the_same(fleet: Fleet, client: httpx.AsyncClient) -> None:
    await _dead(fleet)
    page = (await client.get("/alerts", headers={"accept": "text/html"})).text
    assert "is dead on 1 of 1 workers" in page
    assert "webhook: open sent" in page
    assert "llama/chat &lt;b&gt;" in page
    twin = (await client.get("/alerts.json")).json()
    assert twin["items"][0]["rule"] == "DeadStopChannel"
    channels = (await client.get("/stop-channels", headers={"accept": "text/html"})).text
    assert "is dead on 1 of 1 workers" in channels


async def test_the_runbook_that_an_alert_names_opens_for_everyone(fleet: Fleet, client: httpx.AsyncClient) -> None:
    for rule in load(None).rules:
        page = await client.get(f"/docs/runbooks/{rule.runbook}", headers={"authorization": ""})
        assert page.status_code == 200, rule.runbook
        assert f"<h1>{rule.name}</h1>" in page.text
        assert "<h2>What to do</h2>" in page.text
    for name in ("nothing", "..%2Fsettings", "%2e%2e", "a" * 5000, "crash-loop.md.md"):
        assert (await client.get(f"/docs/runbooks/{name}")).status_code == 404, name
