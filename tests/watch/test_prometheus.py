"""A real Alertmanager and a real Prometheus on loopback: the one receives our alerts, the other scrapes our metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from debian import ALERTMANAGER, running
from fleet import Fleet, Worker
from parts import eventually, on_a_port
from pydantic import SecretStr
from sinks import HttpSink, http_sink

from collector import asgi
from collector.alerts.alertmanager import Alertmanager
from collector.alerts.rules import load
from collector.clickhouse import Database
from collector.settings import Settings
from collector.watch.loop import Watch

RULES = Path(__file__).parents[2] / "helm" / "alerts" / "stallscope.rules.yaml"


@pytest.fixture
def paged() -> Iterator[HttpSink]:
    """Who Alertmanager tells."""
    with http_sink() as sink:
        yield sink


@pytest.fixture
def alertmanager(paged: HttpSink, tmp_path: Path) -> Iterator[str]:
    told = {"url": f"{paged.url}/page", "send_resolved": True}
    route = {"receiver": "pages", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    written = {"route": route, "receivers": [{"name": "pages", "webhook_configs": [told]}]}
    config = tmp_path / "alertmanager.json"  # JSON is YAML
    config.write_text(json.dumps(written), encoding="utf-8")
    arguments = (f"--config.file={config}", f"--storage.path={tmp_path / 'alerts'}", "--cluster.listen-address=")
    listen = "--web.listen-address=127.0.0.1:{port}"
    with running(ALERTMANAGER, *arguments, listen, log=tmp_path / "alertmanager.log") as address:
        yield address


async def _ready(address: str) -> None:
    async def answers() -> bool:
        try:
            return (await client.get(f"{address}/-/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async with httpx.AsyncClient() as client:
        await eventually(answers)


def _told(paged: HttpSink) -> list[tuple[str, str]]:
    return [(one["labels"]["alertname"], one["status"]) for got in paged.got for one in got.json["alerts"]]


async def test_alertmanager_takes_an_alert_and_its_end_and_pages(
    fleet: Fleet, alertmanager: str, paged: HttpSink
) -> None:
    await _ready(alertmanager)
    fleet.now = datetime.now(timezone.utc) - timedelta(minutes=8)  # so that its end has come, too
    mine = Watch(
        load(None), {"alertmanager": Alertmanager(alertmanager)}, public_url="https://s.example", settle_seconds=0.05
    )
    (worker,) = fleet.add(1)
    await fleet.calm(mine)
    html = {"violation": "content_type", "status": 200, "content_type": "text/html"}
    for polls in (1, 30):
        await fleet.tell(worker.channel(fleet.now, "violating", polls=polls, age=1.0 + polls, **html))
        await fleet.live(30, mine)

    async def was_told(what: tuple[str, str]) -> None:
        async def it_was() -> bool:
            return what in _told(paged)

        await eventually(it_was)

    await was_told(("DeadStopChannel", "firing"))
    (alert,) = (one for got in paged.got for one in got.json["alerts"])
    since = fleet.now - timedelta(seconds=60)
    words = f"is dead on 1 of 1 workers since {since:%H:%M} (HTTP 200, text/html)."
    assert alert["annotations"]["summary"].endswith(words)
    assert alert["annotations"]["runbook_url"] == "https://s.example/docs/runbooks/dead-stop-channel"
    for polls in (2, 3):
        await fleet.tell(worker.channel(fleet.now, "ok", polls=polls, failures=0, age=0.1))
        await fleet.live(15, mine)
    await fleet.live(75, mine)
    await was_told(("DeadStopChannel", "resolved"))
    steps = await fleet.db.query("SELECT kind, state FROM deliveries WHERE state != 'claimed' ORDER BY at_ms")
    assert {step["state"] for step in steps} == {"sent"}
    assert [step["kind"] for step in steps][-1] == "resolved"


async def test_prometheus_scrapes_a_server_and_its_rules_fire(
    db: Database, settings: Settings, alertmanager: str, paged: HttpSink, tmp_path: Path
) -> None:
    watching = settings.model_copy(update={"watch_seconds": 1.0, "alert_alertmanager_url": SecretStr(alertmanager)})
    now, worker = datetime.now(timezone.utc), Worker("w-1")
    fleet = Fleet(db, watching, Watch(load(None)))
    await fleet.tell(worker.beat(now), worker.channel(now, "failing", consecutive=40, polls=40, age=40.0, status=503))
    async with on_a_port(asgi.server(watching)) as server:
        with running("prometheus", *_prometheus(server, alertmanager, tmp_path), log=tmp_path / "prometheus.log") as it:
            await _ready(it)
            async with httpx.AsyncClient(base_url=it) as client:
                await eventually(lambda: _is(client, 'stallscope_findings_open{code="stop_channel_dead"}', "1"))
                await eventually(lambda: _is(client, 'up{job="stallscope"}', "1"))

                async def fires() -> bool:
                    names = {name for name, status in _told(paged) if status == "firing"}
                    return {"StallscopeStopChannelDead", "DeadStopChannel", "Watchdog"} <= names

                await eventually(fires)
                rules = (await client.get("/api/v1/rules")).json()["data"]["groups"]
                assert {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}


def _prometheus(server: str, alertmanager: str, directory: Path) -> tuple[str, ...]:
    def target(address: str) -> list[dict[str, Any]]:
        return [{"targets": [address.removeprefix("http://")]}]

    config = directory / "prometheus.json"
    written = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "stallscope", "static_configs": target(server)}],
        "alerting": {"alertmanagers": [{"static_configs": target(alertmanager)}]},
    }
    config.write_text(json.dumps(written), encoding="utf-8")
    return (
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'metrics'}",
        "--web.listen-address=127.0.0.1:{port}",
    )


async def _is(client: httpx.AsyncClient, query: str, value: str) -> bool:
    answer = (await client.get("/api/v1/query", params={"query": query})).json()
    return [one["value"][1] for one in answer["data"]["result"]] == [value]
