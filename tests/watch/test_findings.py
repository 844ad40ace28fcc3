"""What the watcher finds, over a real store with a clock that only moves when told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from clickhouse_server import ClickHouseServer
from fleet import Fleet, Worker
from parts import server_url
from pydantic import SecretStr

from collector import migrate
from collector.alerts.rules import load
from collector.answers import answer_of_job
from collector.clickhouse import Database
from collector.digest import Digest
from collector.settings import Settings
from collector.watch.ledger import act
from collector.watch.loop import Watch
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

BOTH = pytest.mark.parametrize("database_url", ["embedded", "server"], indirect=True)


async def _dying_channels(fleet: Fleet, workers: list[Worker]) -> None:
    """The channel answers HTML: told at the first bad answer, and again when it comes to 30 s and 3 polls."""
    html = {"violation": "content_type", "status": 200, "content_type": "text/html; charset=utf-8"}
    await fleet.tell(*(one.channel(fleet.now, "violating", polls=1, age=1.0, **html) for one in workers))
    await fleet.live(30)
    await fleet.tell(*(one.channel(fleet.now, "violating", polls=30, age=31.0, **html) for one in workers))
    await fleet.live(15)


@BOTH
async def test_a_dead_stop_channel_is_one_finding_of_the_endpoint(fleet: Fleet) -> None:
    workers = fleet.add(14)
    await fleet.calm()
    began = fleet.now
    await _dying_channels(fleet, workers)
    finding = await fleet.the("stop_channel_dead")
    assert finding.sentence == (
        f"Stop channel of endpoint llama-chat is dead on 14 of 14 workers since {began:%H:%M} (HTTP 200, text/html)."
    )
    assert (finding.state, finding.opened_at, len(finding.worker_ids)) == ("open", began, 14)
    assert fleet.now - began <= timedelta(seconds=60)
    # One good answer is not enough; the second is.
    await fleet.tell(*(one.channel(fleet.now, "ok", polls=2, age=0.1) for one in workers))
    await fleet.live(15)
    assert (await fleet.the("stop_channel_dead")).state == "open"
    await fleet.tell(*(one.channel(fleet.now, "ok", polls=1, failures=0, age=0.1) for one in workers))
    await fleet.live(15)
    resolved = await fleet.the("stop_channel_dead")
    assert (resolved.state, resolved.key) == ("resolved", finding.key)


async def test_it_comes_back_as_another_occurrence(fleet: Fleet) -> None:
    workers = fleet.add(2)
    await fleet.calm()
    await _dying_channels(fleet, workers)
    for polls in (2, 3):
        await fleet.tell(*(one.channel(fleet.now, "ok", polls=polls, age=0.1) for one in workers))
        await fleet.live(15)
    await _dying_channels(fleet, workers)
    found = await fleet.findings("stop_channel_dead")
    assert [(one.key.rpartition(":")[2], one.state) for one in found] == [("2", "open"), ("1", "resolved")]


@BOTH
async def test_cancelled_requests_that_still_run_are_counted(fleet: Fleet) -> None:
    (worker,) = fleet.add(1)
    await fleet.calm()
    run = f"{1:016x}"
    await fleet.tell(
        worker.span(fleet.now, SpanName.JOB_CLAIMED, job="j"),
        worker.span(fleet.now, SpanName.JOB_RUN + STARTED_SUFFIX, job="j", told={Key.SPAN_ID: run}),
        worker.span(fleet.now, SpanName.CALLER_POLL, job="j", told={Key.CALLER_STATUS: "CANCELLED"}),
    )
    digest = Digest()
    digest.touched("default", ["j"], [])
    await digest.round(fleet.db, fleet.settings, fleet.now)
    if (await answer_of_job(fleet.db, "default", "j", fleet.now)).wasted.seconds_since_cancel is None:
        pytest.fail("the answer does not tell of the cancel")
    await _dying_channels(fleet, [worker])
    finding = await fleet.the("stop_channel_dead")
    assert finding.sentence.endswith("1 cancelled request is still running and billing.")
    assert finding.job_ids == ("j",)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"state": "failing", "consecutive": 31, "age": 31.0}, "polls that fail"),
        ({"state": "failing", "consecutive": 31, "age": 31.0, "status": 503}, "HTTP 503"),
        ({"state": "failing", "consecutive": 7, "age": 31.0, "status": 429}, "HTTP 429"),
        ({"state": "violating", "polls": 31, "age": 31.0, "violation": "parse"}, "answers that cannot be parsed"),
        ({"state": "violating", "polls": 31, "age": 31.0, "violation": "wrong_key"}, "without the key"),
        ({"state": "violating", "polls": 31, "age": 31.0, "violation": "non_string_ids"}, "no strings"),
    ],
)
async def test_each_silent_path_is_found(fleet: Fleet, told: dict[str, object], why: str) -> None:
    (worker,) = fleet.add(1)
    await fleet.calm()
    state = str(told.pop("state"))
    await fleet.tell(worker.channel(fleet.now, state, **{**told, "age": 0.5, "consecutive": 1, "polls": 1}))
    await fleet.live(30)
    await fleet.tell(worker.channel(fleet.now, state, **told))
    await fleet.look()
    assert why in (await fleet.the("stop_channel_dead")).sentence


async def test_a_short_failure_is_no_finding(fleet: Fleet) -> None:
    (worker,) = fleet.add(1)
    await fleet.calm()
    await fleet.tell(worker.channel(fleet.now, "failing", consecutive=2, polls=2, age=20.0))
    await fleet.live(15)
    await fleet.tell(worker.channel(fleet.now, "ok", polls=1, age=0.0))
    await fleet.live(60)
    assert await fleet.findings() == []


async def test_a_worker_that_beats_and_polls_no_more_is_found(fleet: Fleet) -> None:
    (worker,) = fleet.add(1)
    await fleet.calm()
    await fleet.tell(worker.channel(fleet.now, "ok", polls=6, age=1.0, hold=10.0))
    await fleet.live(30)
    await fleet.tell(worker.channel(fleet.now, "failing", polls=0, age=31.0, unanswered=30.0, polling=False))
    await fleet.look()
    assert "no polls at all" in (await fleet.the("stop_channel_dead")).sentence


async def test_disabled_and_spinning_channels_are_findings_of_their_own(fleet: Fleet) -> None:
    one, two, three = fleet.add(3)
    await fleet.calm()
    await fleet.tell(
        one.channel(fleet.now, "disabled"),
        two.channel(fleet.now, "spinning", polls=9000),
        three.channel(fleet.now, "spinning", polls=9000, name=SpanName.JOB_TAKE),
    )
    await fleet.look()
    found = {finding.code: finding for finding in await fleet.findings()}
    assert set(found) == {"stop_channel_disabled", "stop_channel_spinning", "intake_spinning"}
    assert found["stop_channel_disabled"].worker_ids == (one.name,)
    await fleet.live(15)
    await fleet.tell(two.channel(fleet.now, "ok", polls=1), three.channel(fleet.now, "ok", name=SpanName.JOB_TAKE))
    await fleet.live(15)
    states = {finding.code: finding.state for finding in await fleet.findings()}
    assert states == {
        "stop_channel_disabled": "open",
        "stop_channel_spinning": "resolved",
        "intake_spinning": "resolved",
    }


async def test_three_boots_that_die_before_start_are_a_crash_loop(fleet: Fleet) -> None:
    await fleet.calm()
    for number in range(3):
        worker = Worker("w-1", "bad-image")
        await fleet.tell(worker.boot_started(fleet.now))
        await fleet.live(30)
        assert await fleet.findings("crash_loop") == [], number
        await fleet.tell(worker.death(fleet.now, 1))
    await fleet.look()
    finding = await fleet.the("crash_loop")
    assert finding.sentence == (
        "3 boots of endpoint bad-image died before start() within 10 minutes (the last one with exit code 1)."
    )
    fleet.now += timedelta(seconds=700)
    await fleet.look()
    assert (await fleet.the("crash_loop")).state == "resolved"


async def test_boots_that_started_are_no_crash_loop(fleet: Fleet) -> None:
    await fleet.calm()
    for _ in range(4):
        worker = Worker("w-1")
        await fleet.tell(
            worker.boot_started(fleet.now), worker.span(fleet.now, SpanName.BOOT), worker.death(fleet.now, 137)
        )
    await fleet.live(15)
    assert await fleet.findings() == []


async def test_a_third_of_the_fleet_that_falls_silent_at_once_is_lost_telemetry(fleet: Fleet) -> None:
    workers = fleet.add(10)
    await fleet.calm()
    fleet.silent = {worker.name for worker in workers[:4]}
    await fleet.live(90)
    finding = await fleet.the("telemetry_lost")
    assert "Heartbeats of 4 of 10 workers stopped together" in finding.sentence
    fleet.silent = set()
    await fleet.live(30)
    assert (await fleet.the("telemetry_lost")).state == "resolved"


async def test_total_silence_is_no_recovery_however_long(fleet: Fleet) -> None:
    workers = fleet.add(4)
    await fleet.calm()
    await fleet.tell(*(one.channel(fleet.now, "disabled") for one in workers))
    await fleet.live(15)
    fleet.silent = {worker.name for worker in workers}
    await fleet.live(90)
    fleet.now += timedelta(hours=2)
    await fleet.look()
    assert {one.code: one.state for one in await fleet.findings()} == {
        "telemetry_lost": "open",
        "stop_channel_disabled": "open",
    }


@pytest.mark.parametrize("count", [1, 3])
async def test_one_silent_worker_is_not_lost_telemetry(fleet: Fleet, count: int) -> None:
    fleet.add(count)
    await fleet.calm()
    fleet.silent = {fleet.workers[0].name}
    await fleet.live(120)
    assert await fleet.findings() == []


async def test_workers_that_said_goodbye_are_not_lost_telemetry(fleet: Fleet) -> None:
    workers = fleet.add(10)
    await fleet.calm()
    fleet.silent = {worker.name for worker in workers}
    await fleet.tell(*(worker.span(fleet.now, SpanName.SHUTDOWN) for worker in workers))
    await fleet.live(120)
    assert await fleet.findings() == []


async def test_a_watcher_that_starts_after_an_outage_waits_before_it_judges_silence(fleet: Fleet) -> None:
    fleet.add(6)
    await fleet.calm()
    fleet.now += timedelta(minutes=5)
    restarted = Watch(load(None), settle_seconds=0.05)
    await fleet.look(restarted)
    await fleet.live(120, restarted)
    assert await fleet.findings() == []


async def test_skewed_clocks_are_measured_and_late_delivery_is_not_one(fleet: Fleet) -> None:
    (ahead,) = fleet.add(1, "ahead", skew=600.0)
    (behind,) = fleet.add(1, "behind", skew=-600.0)
    (late,) = fleet.add(1, "late")
    fleet.silent = {late.name}
    await fleet.calm()
    replayed = [late.beat(fleet.now, ago=float(ago)) for ago in range(600, 0, -15)]
    await fleet.tell(*replayed[:20])
    await fleet.live(15)
    await fleet.tell(*replayed[20:])
    await fleet.live(30)
    found = {finding.worker_ids: finding.sentence for finding in await fleet.findings()}
    assert found == {
        (ahead.name,): f"The clock of worker {ahead.name} is about 600 s ahead of the collector's.",
        (behind.name,): f"The clock of worker {behind.name} is about 600 s behind the collector's.",
    }


async def test_zombies_and_workers_without_heartbeat(fleet: Fleet) -> None:
    (zombie,) = fleet.add(1, "zombie")
    mute = Worker("mute-1", "mute")
    await fleet.tell(mute.span(fleet.now, SpanName.JOB_CLAIMED, job="j"))
    await fleet.calm()
    await fleet.tell(zombie.death(fleet.now))
    await fleet.live(45)
    found = {finding.code: finding.endpoint_id for finding in await fleet.findings()}
    assert found == {"zombie_heartbeat": "zombie", "heartbeat_never_started": "mute"}


async def test_a_worker_that_wanted_to_leave_and_stays_is_found_until_it_is_gone(fleet: Fleet) -> None:
    stays, works, leaves = (fleet.add(1, name)[0] for name in ("stays", "works", "leaves"))
    await fleet.calm()
    began = SpanName.SHUTDOWN + STARTED_SUFFIX
    await fleet.tell(*(worker.span(fleet.now, began) for worker in (stays, works, leaves)))
    fleet.workers.remove(works)
    for _ in range(9):
        await fleet.tell(works.beat(fleet.now, "job"), works.span(fleet.now, SpanName.STOP_CHANNEL))
        await fleet.live(15)
    finding = {one.endpoint_id: one for one in await fleet.findings("exit_deferred")}
    assert set(finding) == {"stays", "leaves"}, "a worker that still has a request in hand may take its time"
    assert "1 worker of endpoint stays began to shut down at " in finding["stays"].sentence
    fleet.silent.add(leaves.name)
    await fleet.tell(leaves.death(fleet.now, 0))
    fleet.now += timedelta(minutes=40)
    await fleet.tell(stays.beat(fleet.now))
    await fleet.calm()
    states = {one.endpoint_id: one.state for one in await fleet.findings("exit_deferred")}
    assert states == {"stays": "open", "leaves": "resolved"}, "what was said once holds"


async def test_a_prestart_without_bound_is_said(fleet: Fleet) -> None:
    bounded, unbounded = fleet.add(1, "bounded")[0], fleet.add(1, "unbounded")[0]
    await fleet.tell(
        bounded.span(fleet.now, SpanName.PRESTART, told={Key.PRESTART_TIMEOUT_SECONDS: 0.0}),
        unbounded.span(fleet.now, SpanName.PRESTART + STARTED_SUFFIX),
    )
    await fleet.live(30)
    assert (await fleet.the("no_time_bound")).endpoint_id == "unbounded"


async def test_two_watchers_make_each_finding_once(fleet: Fleet) -> None:
    workers = fleet.add(3)
    other = Watch(load(None), settle_seconds=0.05)
    await fleet.calm(fleet.watch, other)
    await fleet.tell(*(one.channel(fleet.now, "disabled") for one in workers))
    await fleet.live(45, fleet.watch, other)
    assert len(await fleet.findings()) == 1
    told = await fleet.db.query("SELECT revision, state FROM finding_history FINAL WHERE rule = '' ORDER BY revision")
    assert [tuple(row.values()) for row in told] == [(1, "open")]


async def test_tenants_do_not_see_each_other(fleet: Fleet) -> None:
    mine, theirs = fleet.add(1)[0], fleet.add(1, tenant="other")[0]
    await fleet.calm()
    await fleet.tell(theirs.channel(fleet.now, "disabled"), mine.channel(fleet.now, "ok"))
    await fleet.look()
    assert await fleet.findings() == []
    assert [one.code for one in await fleet.findings(tenant="other")] == ["stop_channel_disabled"]


async def test_what_a_person_said_survives_the_next_round(fleet: Fleet) -> None:
    (worker,) = fleet.add(1)
    await fleet.calm()
    await fleet.tell(worker.channel(fleet.now, "disabled"))
    await fleet.look()
    key = (await fleet.the("stop_channel_disabled")).key
    await act(fleet.db, "default", key, "acknowledge", fleet.now, until=None)
    other = Worker("another")
    fleet.workers.append(other)
    await fleet.live(15)
    await fleet.tell(other.channel(fleet.now, "disabled"))
    await fleet.look()  # writes the finding again
    finding = await fleet.the("stop_channel_disabled")
    assert (finding.state, finding.key) == ("acknowledged", key)


async def test_a_watcher_that_cannot_ask_says_so_afterwards(
    clickhouse: ClickHouseServer, fleet: Fleet, settings: Settings
) -> None:
    away = await Database.open(Settings(database_url=SecretStr(server_url(clickhouse))))
    try:
        blind = await fleet.watch.round(away, settings, fleet.now)  # no tables there: the store is as good as away
        assert "migrations are pending" in blind.error
        fleet.now += timedelta(minutes=5)
        assert (await fleet.watch.round(away, settings, fleet.now)).error
        await migrate.apply(away, retention_days=14)
        fleet.now += timedelta(seconds=5)
        assert not (await fleet.watch.round(away, settings, fleet.now)).error
        fleet.db = away
        finding = await fleet.the("telemetry_lost")
        assert finding.sentence.startswith("The watcher could not ask the store since ")
        assert (finding.state, fleet.now - finding.opened_at) == ("open", timedelta(seconds=305))
        failed = await away.query("SELECT count() AS n FROM rule_evaluations WHERE NOT ok AND error != ''")
        assert failed[0]["n"] == 2 * len(fleet.watch.rules.rules)
        await fleet.live(120)
        assert (await fleet.the("telemetry_lost")).state == "resolved"
    finally:
        await away.close()
