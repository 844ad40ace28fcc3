"""Lists: requests, groups, endpoints, workers, stop channels. Rows come from real diagnoses."""

from __future__ import annotations

import base64
import dataclasses
import re
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from job_spans import Teller
from parts import Clock

from collector import queries
from collector.answers import answer_of_job
from collector.clickhouse import Database
from collector.digest import Digest
from collector.errors import BadInput
from collector.queries import EndpointSummary, Hardware, JobFilter, Overview, StopChannel, WorkerSummary
from collector.queries.cursor import Place, read, written
from collector.rows import SpanRow
from collector.settings import Settings
from sdk_exporter.contract import Key, SpanName


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock(datetime.now(timezone.utc).replace(microsecond=0))


async def store(db: Database, spans: Sequence[SpanRow]) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)


async def digested(db: Database, settings: Settings, spans: Sequence[SpanRow], now: datetime) -> None:
    await store(db, spans)
    done = await Digest().round(db, settings, now)
    assert done.failed == 0


async def ids(db: Database, **filters: Any) -> list[str]:
    page = await queries.list_jobs(db, "default", JobFilter(**filters))
    return [answer.job_id for answer in page.items]


async def test_an_item_of_the_list_is_the_answer_without_its_records(
    db: Database, settings: Settings, clock: Clock
) -> None:
    worker = Teller(clock.now)
    now = clock.advance(30)
    await digested(db, settings, worker.failed("j"), now)

    page = await queries.list_jobs(db, "default", JobFilter())
    whole = await answer_of_job(db, "default", "j", now)
    assert page == queries.JobList([dataclasses.replace(whole, spans=(), phases=(), log_tail=None)], None)
    assert whole.group is not None
    assert whole.history


async def test_filters_narrow_the_list(db: Database, settings: Settings, clock: Clock) -> None:
    one, two = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32, endpoint="ep-2")
    stranger = Teller(clock.now, tenant="stranger")
    await digested(
        db,
        settings,
        [
            *one.completed("ok-1"),
            *one.failed("bad-1", at=10),
            *two.failed("bad-2", at=20),
            two.claimed("open-2", at=28),
            two.run_started("open-2", at=29),
            *stranger.failed("not yours", at=25),
        ],
        clock.advance(30),
    )
    failed = (await queries.list_jobs(db, "default", JobFilter(state="failed"))).items[0]
    assert failed.group is not None
    zero = one.zero
    assert {
        "all": await ids(db),
        "endpoint": await ids(db, endpoint="ep-1"),
        "worker": await ids(db, worker="w-2"),
        "state": await ids(db, state="failed"),
        "verdict": await ids(db, verdict="running"),
        "cause": await ids(db, cause=failed.verdict.cause),
        "fault": await ids(db, fault=failed.verdict.fault),
        "fingerprint": await ids(db, fingerprint=failed.group.fingerprint),
        "since": await ids(db, since=zero + timedelta(seconds=10)),
        "until": await ids(db, until=zero + timedelta(seconds=10)),
        "q": await ids(db, q="cuda OUT of memory"),
        "q in an id": await ids(db, q="open-"),
        "q of SQL": await ids(db, q="' OR 1 = 1 --"),
        "q with a wildcard": await ids(db, q="%"),
        "two": await ids(db, endpoint="ep-2", state="failed"),
    } == {
        "all": ["open-2", "bad-2", "bad-1", "ok-1"],
        "endpoint": ["bad-1", "ok-1"],
        "worker": ["open-2", "bad-2"],
        "state": ["bad-2", "bad-1"],
        "verdict": ["open-2"],
        "cause": ["bad-2", "bad-1"],
        "fault": ["bad-2", "bad-1"],
        "fingerprint": ["bad-2", "bad-1"],
        "since": ["open-2", "bad-2", "bad-1"],
        "until": ["ok-1"],
        "q": ["bad-2", "bad-1"],
        "q in an id": ["open-2"],
        "q of SQL": [],
        "q with a wildcard": [],
        "two": ["bad-2"],
    }


async def test_pages_show_every_request_once_also_where_times_are_equal(
    db: Database, settings: Settings, clock: Clock
) -> None:
    worker = Teller(clock.now)
    names = [f"{n}/%'€" for n in range(7)]
    await digested(db, settings, [span for name in names for span in worker.completed(name)], clock.advance(30))

    seen: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = await queries.list_jobs(db, "default", JobFilter(), cursor=cursor, limit=3)
        seen += [answer.job_id for answer in page.items]
        cursor, pages = page.next_cursor, pages + 1
    assert (seen, pages) == (sorted(names, reverse=True), 3)


async def test_a_wrong_clock_does_not_head_the_list_for_ever(db: Database, settings: Settings, clock: Clock) -> None:
    ahead, behind, right = (
        Teller(clock.now + timedelta(days=years * 365), worker=f"w{years}", boot=f"{years:032}")
        for years in (30, -30, 0)
    )
    spans = [*ahead.completed("ahead"), *behind.completed("behind"), *right.completed("right", at=10)]
    arrived = [dataclasses.replace(span, arrived_ms=right.ns(3) // 1_000_000) for span in spans[:6]]
    await digested(db, settings, [*arrived, *spans[6:]], clock.advance(30))

    page = await queries.list_jobs(db, "default", JobFilter())
    assert [answer.job_id for answer in page.items] == ["right", "ahead", "behind"]


async def test_the_text_that_search_looks_through_goes_when_the_spans_go(db: Database, settings: Settings) -> None:
    (table,) = await db.query(
        "SELECT create_table_query AS text FROM system.tables WHERE database = currentDatabase() AND name = 'jobs'"
    )
    assert re.search(rf"`search_text` [^`]*toIntervalDay\({settings.retention_days}\)", table["text"])
    assert f"toIntervalDay({settings.retention_days * 10})" in table["text"]


def test_a_cursor_comes_back_as_it_was_written() -> None:
    place = Place(1_767_268_800_000_000_123, "\"'\\/é\U0001f525" * 100)
    assert read(written(place)) == place


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "é",
        "[" * 9_000,
        written(Place(1, "a"))[:-2],
        *map(
            encoded, ("{}", "[]", "[1,2]", '["1","a"]', '[1.5,"a"]', '[true,"a"]', f'[{10**20},"a"]', '[1,"\\ud800"]')
        ),
    ],
)
def test_a_cursor_that_was_not_written_here_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"^cursor: "):
        read(text)


async def test_limits_are_refused_by_name(db: Database) -> None:
    for limit in (0, -1, 201):
        with pytest.raises(BadInput, match=r"^limit: "):
            await queries.list_jobs(db, "default", JobFilter(), limit=limit)
    with pytest.raises(BadInput, match=r"^q: "):
        await queries.list_jobs(db, "default", JobFilter(q="x" * 257))


async def test_endpoints_and_the_overview_count_by_outcome(db: Database, settings: Settings, clock: Clock) -> None:
    one, idle = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32, endpoint="ep-idle")
    since = clock.now - timedelta(hours=1)
    spans = [*one.completed("a"), *one.failed("b", at=10), one.claimed("c", at=20), one.run_started("c", at=21)]
    await digested(db, settings, [*spans, idle.span(SpanName.BOOT, -5, -1)], clock.advance(22))

    page = await queries.endpoints(db, "default", since)
    assert page == queries.Page(
        [
            EndpointSummary("ep-1", jobs=3, open=1, failed=1, workers=1, last_seen=one.zero + timedelta(seconds=21)),
            EndpointSummary("ep-idle", jobs=0, open=0, failed=0, workers=1, last_seen=one.zero - timedelta(seconds=1)),
        ],
        None,
    )
    first = await queries.endpoints(db, "default", since, limit=1)
    second = await queries.endpoints(db, "default", since, limit=1, cursor=first.next_cursor)
    assert [*first.items, *second.items] == page.items
    assert second.next_cursor is None
    failed = (await queries.list_jobs(db, "default", JobFilter(state="failed"))).items[0]
    assert await queries.overview(db, "default", since) == Overview(
        since=since,
        jobs=3,
        by_state={"completed": 1, "failed": 1, "running": 1},
        by_verdict={"completed": 1, "handler_failed": 1, "running": 1},
        by_cause={failed.verdict.cause: 1},
        open=1,
        failed=1,
    )


async def test_a_worker_is_dead_only_where_its_newest_boot_is_known_to_be(db: Database, clock: Clock) -> None:
    first, second = Teller(clock.now), Teller(clock.now, boot="c" * 32)
    await store(db, [*first.completed("a"), first.heartbeat(4), first.death(5, [])])
    since = clock.now - timedelta(hours=1)
    dead = WorkerSummary(
        worker_id="w-1",
        endpoint_id="ep-1",
        boot_id="b" * 32,
        boots=1,
        jobs=1,
        first_seen=first.zero,
        last_seen=first.zero + timedelta(seconds=5),
        last_heartbeat=first.zero + timedelta(seconds=4),
        died_at=first.zero + timedelta(seconds=5),
        hardware=Hardware(host="host-a", gpu="NVIDIA L4", driver=None, image="acme/worker:7", release=None),
    )
    assert await queries.workers(db, "default", since) == queries.Page([dead], None)

    await store(db, [second.span(SpanName.BOOT, 8, 9)])
    alive = dataclasses.replace(
        dead, boot_id="c" * 32, boots=2, last_seen=first.zero + timedelta(seconds=9), died_at=None
    )
    assert await queries.workers(db, "default", since, worker="w-1", endpoint="ep-1") == queries.Page([alive], None)
    assert await queries.workers(db, "stranger", since) == queries.Page([], None)


async def test_a_stop_channel_is_its_newest_report(db: Database, clock: Clock) -> None:
    worker, fine = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32)
    since = clock.now - timedelta(hours=1)
    bad = worker.stop_channel(
        100,
        "failing",
        **{Key.CHANNEL_CONSECUTIVE_FAILURES: 9, Key.CHANNEL_LAST_OK_AGE_SECONDS: 65.0, Key.CHANNEL_POLLS: 2**53 + 1},
    )
    await store(
        db,
        [
            worker.stop_channel(0, "ok"),
            worker.stop_channel(40, "failing"),
            bad,
            worker.heartbeat(101, ["j"]),
            fine.stop_channel(50, "ok"),
            fine.heartbeat(51),
        ],
    )
    channels = await queries.stop_channels(db, "default", since)
    assert channels.items[0] == StopChannel(
        worker_id="w-1",
        endpoint_id="ep-1",
        boot_id="b" * 32,
        at=worker.zero + timedelta(seconds=100),
        state="failing",
        polls=2**53 + 1,
        empty=None,
        failures=None,
        consecutive_failures=9,
        last_ok_age_seconds=65.0,
        violation=None,
        hold_seconds_p50=None,
        rate_per_second=None,
    )
    assert [(one.worker_id, one.state) for one in channels.items] == [("w-1", "failing"), ("w-2", "ok")]
