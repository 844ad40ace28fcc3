"""From a finding to a word that somebody gets: once, with its recovery, whoever restarts or dies."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from fleet import Fleet, Worker
from pydantic import SecretStr
from sinks import Got, HttpSink, http_sink

from collector.alerts.rules import RuleSet, load, parse
from collector.alerts.webhook import Webhook
from collector.digest import Digest
from collector.watch.ledger import act, rows_of
from collector.watch.loop import Watch
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

BOTH = pytest.mark.parametrize("database_url", ["embedded", "server"], indirect=True)


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as taking:
        yield taking


def watcher(sink: HttpSink, rules: RuleSet | None = None) -> Watch:
    return Watch(rules or load(None), {"webhook": Webhook(sink.url)}, settle_seconds=0.1)


def told(sink: HttpSink) -> list[tuple[str, str]]:
    return [(got.json["rule"], got.json["kind"]) for got in sink.got]


async def _disabled_everywhere(fleet: Fleet) -> list[Worker]:
    workers = fleet.add(3)
    await fleet.calm()
    html = {"violation": "content_type", "status": 200, "content_type": "text/html"}
    await fleet.tell(*(one.channel(fleet.now, "violating", polls=1, age=1.0, **html) for one in workers))
    await fleet.live(30)
    await fleet.tell(*(one.channel(fleet.now, "violating", polls=30, age=31.0, **html) for one in workers))
    return workers


async def _well_again(fleet: Fleet, workers: list[Worker]) -> None:
    for polls in (2, 3):
        await fleet.tell(*(one.channel(fleet.now, "ok", polls=polls, failures=0, age=0.1) for one in workers))
        await fleet.live(15)


@BOTH
async def test_one_incident_is_one_word_and_one_recovery_with_two_watchers(fleet: Fleet, sink: HttpSink) -> None:
    one, other = watcher(sink), watcher(sink)
    workers = await _disabled_everywhere(fleet)
    await fleet.calm(one, other)
    await fleet.live(60, one, other)
    assert told(sink) == [("DeadStopChannel", "open")]
    assert "is dead on 3 of 3 workers" in sink.got[0].json["sentence"]
    await _well_again(fleet, workers)
    await fleet.live(120, one, other)
    assert told(sink) == [("DeadStopChannel", "open"), ("DeadStopChannel", "resolved")]
    assert sink.got[0].json["dedup_key"] == sink.got[1].json["dedup_key"]


async def test_a_restart_tells_nothing_twice(fleet: Fleet, sink: HttpSink) -> None:
    await _disabled_everywhere(fleet)
    await fleet.calm(watcher(sink))
    assert told(sink) == [("DeadStopChannel", "open")]
    await fleet.calm(watcher(sink))
    await fleet.live(45, watcher(sink))
    assert told(sink) == [("DeadStopChannel", "open")]


async def test_a_claim_of_a_killed_collector_is_overtaken(fleet: Fleet, sink: HttpSink) -> None:
    workers = await _disabled_everywhere(fleet)
    await fleet.calm()
    (alert,), _ = await rows_of(fleet.db, "default", fleet.now - timedelta(days=1), findings=False)
    doomed = watcher(sink)
    postman = doomed._postman
    (due,) = await postman._all_due(fleet.db, [alert], fleet.now)
    await postman._record(fleet.db, [postman._step(due, "claimed", round(fleet.now.timestamp() * 1000), "")])
    await fleet.live(15, watcher(sink))
    assert sink.got == []
    survivor = watcher(sink)
    await fleet.live(75, survivor)
    assert told(sink) == [("DeadStopChannel", "open")]
    assert workers


async def test_a_failed_delivery_is_tried_again_with_the_same_id_and_recorded(fleet: Fleet, sink: HttpSink) -> None:
    sink.answers = [503, 429]
    mine = watcher(sink)
    await _disabled_everywhere(fleet)
    await fleet.calm(mine)
    await fleet.live(60, mine)
    assert len({got.headers["webhook-id"] for got in sink.got}) == 1
    assert len(sink.got) == 3
    steps = await fleet.db.query("SELECT state, detail FROM deliveries WHERE state != 'claimed' ORDER BY at_ms")
    assert [tuple(step.values()) for step in steps] == [("failed", "HTTP 503"), ("failed", "HTTP 429"), ("sent", "")]


async def test_a_refusal_is_not_repeated_for_ever(fleet: Fleet, sink: HttpSink) -> None:
    sink.answers = [404] * 50
    mine = watcher(sink)
    await _disabled_everywhere(fleet)
    await fleet.calm(mine)
    await fleet.live(300, mine)
    assert len(sink.got) == 3


async def test_a_recovery_is_told_only_to_who_heard_of_it(fleet: Fleet, sink: HttpSink) -> None:
    sink.answers = [404] * 50
    mine = watcher(sink)
    workers = await _disabled_everywhere(fleet)
    await fleet.calm(mine)
    await _well_again(fleet, workers)
    tries = len(sink.got)
    await fleet.live(150, mine)
    assert all(got.json["kind"] == "open" for got in sink.got)
    assert len(sink.got) <= max(tries, 3)


async def test_an_alert_that_grows_tenfold_is_told_again(fleet: Fleet, sink: HttpSink) -> None:
    mine = watcher(sink)
    first, *others = fleet.add(12)
    await fleet.calm(mine)
    await fleet.tell(first.channel(fleet.now, "failing", consecutive=40, polls=40, age=40.0))
    await fleet.live(15, mine)
    assert told(sink) == [("DeadStopChannel", "open")]
    await fleet.tell(*(one.channel(fleet.now, "failing", consecutive=40, polls=40, age=40.0) for one in others))
    await fleet.live(30, mine)
    assert told(sink) == [("DeadStopChannel", "open"), ("DeadStopChannel", "spread")]
    assert "12 of 12" in sink.got[1].json["sentence"]


async def test_silences_and_snoozes_keep_quiet_until_they_end(fleet: Fleet, sink: HttpSink) -> None:
    until = fleet.now + timedelta(seconds=400)
    text = f'silences:\n- until: "{until.isoformat()}"\n  comment: moving\n  endpoint: llama-*\n'
    quiet = watcher(sink, parse(text, "mine.yaml", over=load(None)))
    await _disabled_everywhere(fleet)
    await fleet.calm(quiet)
    assert sink.got == []
    (alert,), _ = await rows_of(fleet.db, "default", fleet.now - timedelta(days=1), findings=False)
    key = f"{alert.key}:{alert.occurrence}"
    snoozed = await act(fleet.db, "default", key, "snooze", fleet.now, until=until + timedelta(seconds=60))
    assert snoozed.state == "acknowledged"
    fleet.now = until + timedelta(seconds=5)
    await fleet.live(15, quiet)
    assert sink.got == []
    fleet.now = until + timedelta(seconds=65)
    await fleet.look(quiet)
    assert told(sink) == [("DeadStopChannel", "open")]


async def _digested(fleet: Fleet, *jobs: str) -> None:
    digest = Digest()
    digest.touched("default", jobs, [])
    await digest.round(fleet.db, fleet.settings, fleet.now)


@BOTH
async def test_a_stranded_claim_alerts_but_not_while_telemetry_is_lost(fleet: Fleet, sink: HttpSink) -> None:
    workers = fleet.add(5)
    mine = watcher(sink)
    await fleet.calm(mine)
    await fleet.tell(workers[0].span(fleet.now, SpanName.JOB_CLAIMED, job="guessed"))
    fleet.silent = {worker.name for worker in workers[:4]}
    await fleet.live(150, mine)
    await _digested(fleet, "guessed")
    await fleet.live(15, mine)
    assert told(sink) == [("TelemetryLost", "open")]
    held = await fleet.db.query("SELECT max(held) AS n FROM rule_evaluations WHERE rule = 'StrandedClaims'")
    assert held[0]["n"] == 1
    # What a death record says is no guess.
    told_dead = workers[4]
    await fleet.tell(
        told_dead.span(fleet.now, SpanName.JOB_CLAIMED, job="certain"),
        told_dead.span(
            fleet.now,
            SpanName.DEATH,
            status="error",
            told={Key.DEATH_SIGNAL: "SIGKILL", Key.DEATH_JOBS_IN_HAND: ["certain"]},
        ),
    )
    await _digested(fleet, "certain")
    await fleet.look(mine)
    assert ("StrandedClaims", "open") in told(sink)


@BOTH
async def test_the_failure_rate_needs_a_minimum_and_names_requests(fleet: Fleet, sink: HttpSink) -> None:
    (worker,) = fleet.add(1)
    mine = watcher(sink)
    await fleet.calm(mine)
    jobs = [f"job-{number}" for number in range(12)]
    for job in jobs[:9]:
        await fleet.tell(*_failed(worker, fleet, job))
    await _digested(fleet, *jobs[:9])
    await fleet.live(15, mine)
    assert ("FailureRate", "open") not in told(sink)
    for job in jobs[9:]:
        await fleet.tell(*_failed(worker, fleet, job))
    await _digested(fleet, *jobs[9:])
    await fleet.live(75, mine)
    (first,) = told(sink)
    rows, _ = await rows_of(fleet.db, "default", fleet.now - timedelta(days=1), findings=False)
    words = {row.rule: row.sentence for row in rows}
    assert words["FailureRate"] == "12 of 12 requests of endpoint llama-chat failed in the last 15 min (100 %)."
    assert words["NewFailureGroup"].startswith("New failure on endpoint llama-chat: ")
    fleet.now += timedelta(minutes=65)
    await fleet.look(mine)
    await fleet.live(75, mine)
    await fleet.live(75, mine)
    fleet.now += timedelta(minutes=5)
    await fleet.look(mine)
    assert told(sink) == [first, (first[0], "resolved")], "one failure, one incident"


def _failed(worker: Worker, fleet: Fleet, job: str) -> list[object]:
    delivered = {Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True}
    return [
        worker.span(fleet.now, SpanName.JOB_CLAIMED, job=job, ago=3),
        worker.span(fleet.now, SpanName.JOB_RUN + STARTED_SUFFIX, job=job, ago=2, told={Key.SPAN_ID: f"{1:016x}"}),
        worker.span(fleet.now, SpanName.JOB_RUN, job=job, ago=1, status="error", told={Key.ERROR_TYPE: "ValueError"}),
        worker.span(fleet.now, SpanName.JOB_DELIVER, job=job, told=delivered),
    ]


async def _all_dead(fleet: Fleet, workers: list[Worker]) -> None:
    await fleet.tell(*(one.channel(fleet.now, "failing", consecutive=40, polls=40, age=40.0) for one in workers))


async def test_fifty_endpoints_at_once_are_one_word_and_one_recovery(fleet: Fleet, sink: HttpSink) -> None:
    for number in range(50):
        fleet.add(1, f"endpoint-{number:02}")
    mine, other = watcher(sink), watcher(sink)
    await fleet.calm(mine, other)
    await _all_dead(fleet, fleet.workers)
    await fleet.live(60, mine, other)
    assert told(sink) == [("DeadStopChannel", "open")]
    assert sink.got[0].json["sentence"].startswith("DeadStopChannel on 50 endpoints since ")
    assert "endpoint-00, endpoint-01" in sink.got[0].json["sentence"]
    await _well_again(fleet, fleet.workers[:40])
    await fleet.live(75, mine, other)
    assert len(sink.got) == 1, "ten are dead still"
    await _well_again(fleet, fleet.workers[40:])
    await fleet.live(75, mine, watcher(sink))
    assert told(sink) == [("DeadStopChannel", "open"), ("DeadStopChannel", "resolved")]


async def test_a_storm_that_comes_by_and_by_is_two_words_and_a_later_incident_one_more(
    fleet: Fleet, sink: HttpSink
) -> None:
    for number in range(34):
        fleet.add(1, f"endpoint-{number:02}")
    mine = watcher(sink)
    await fleet.calm(mine)
    for workers in (fleet.workers[:1], fleet.workers[1:2], fleet.workers[2:3], fleet.workers[3:31]):
        await _all_dead(fleet, workers)
        await fleet.live(15, mine)
    assert told(sink) == [("DeadStopChannel", kind) for kind in ("open", "open", "spread")]
    first, storm, grown = (got.json["sentence"] for got in sink.got)
    assert "endpoint endpoint-00 is dead" in first
    assert storm.startswith("DeadStopChannel on 3 endpoints")
    assert grown.startswith("DeadStopChannel on 31 endpoints")
    fleet.now += timedelta(minutes=20)
    await fleet.tell(*(worker.beat(fleet.now) for worker in fleet.workers))
    await _all_dead(fleet, fleet.workers[32:33])
    await fleet.live(45, mine)
    assert "endpoint endpoint-32 is dead" in sink.got[3].json["sentence"], "it is another incident"


async def test_two_endpoints_are_two_words(fleet: Fleet, sink: HttpSink) -> None:
    one, two = fleet.add(1, "one"), fleet.add(1, "two")
    mine = watcher(sink)
    await fleet.calm(mine)
    for workers in (one, two):
        await _all_dead(fleet, workers)
        await fleet.live(15, mine)
    assert len(sink.got) == 1, "the second waits: it may be the beginning of a storm"
    await fleet.live(45, mine)
    assert [got.json["endpoint_id"] for got in sink.got] == ["one", "two"]


async def test_more_than_thirty_words_in_ten_minutes_wait_and_are_not_lost(fleet: Fleet, sink: HttpSink) -> None:
    """Workers of no known endpoint: nothing says that they have anything in common."""
    fleet.workers = [Worker(f"worker-{number}", endpoint="") for number in range(35)]
    mine = watcher(sink)
    await fleet.calm(mine)
    await _all_dead(fleet, fleet.workers)
    await fleet.live(30, mine)
    assert len(sink.got) == 30
    fleet.now += timedelta(seconds=600)
    await fleet.tell(*(one.beat(fleet.now) for one in fleet.workers))
    await fleet.look(mine)
    assert len({got.headers["webhook-id"] for got in sink.got}) == len(sink.got) == 35


async def test_the_dead_mans_switch_beats_only_while_the_watcher_sees(fleet: Fleet, sink: HttpSink) -> None:
    mine = dataclasses.replace(fleet.watch, heartbeat_url=f"{sink.url}/ping")
    await fleet.live(90, mine)
    assert [(got.method, got.path) for got in sink.got] == [("GET", "/ping")] * 2
    await fleet.db.command("DROP TABLE deliveries")
    await fleet.db.command("DROP TABLE findings")
    await fleet.live(90, mine)
    assert len(sink.got) == 2


async def test_changed_rules_are_taken_up_and_a_mistake_leaves_those_before(
    fleet: Fleet, sink: HttpSink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("disable: [DeadStopChannel]", encoding="utf-8")
    fleet.settings = fleet.settings.model_copy(
        update={"alert_rules": str(file), "alert_webhook_url": SecretStr(sink.url)}
    )
    mine = Watch.of(fleet.settings)
    await _disabled_everywhere(fleet)
    await fleet.calm(mine)
    assert sink.got == []
    file.write_text("rules:\n- name: oops", encoding="utf-8")
    await fleet.live(15, mine)
    assert f"{file}:2: " in caplog.text
    assert sink.got == []
    file.write_text("disable: [CrashLoop]", encoding="utf-8")
    await fleet.live(30, mine)
    assert told(sink) == [("DeadStopChannel", "open")]


async def test_a_watcher_that_cannot_ask_tells_people_without_the_store(fleet: Fleet, sink: HttpSink) -> None:
    mine = watcher(sink)
    await fleet.live(30, mine)
    await fleet.db.command("RENAME TABLE spans TO away")
    await fleet.look(mine)
    fleet.now += timedelta(seconds=61)
    await fleet.look(mine)
    fleet.now += timedelta(seconds=61)
    await fleet.look(mine)
    assert told(sink) == [("TelemetryLost", "open")]
    assert "could not ask the store" in sink.got[0].json["sentence"]
    await fleet.db.command("RENAME TABLE away TO spans")
    await fleet.live(200, mine)
    assert told(sink) == [("TelemetryLost", "open"), ("TelemetryLost", "resolved")]
    assert _dedup(sink.got[0]) == _dedup(sink.got[1])


def _dedup(got: Got) -> str:
    return str(json.loads(got.body)["dedup_key"])
