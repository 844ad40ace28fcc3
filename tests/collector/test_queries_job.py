"""Everything stored about one request, and what the bounds leave out."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest
from job_spans import Teller
from parts import Clock

from collector.clickhouse import Database
from collector.queries import job as question
from collector.queries.job import JobSpans, spans_of_job, spans_of_jobs
from collector.rows import SpanRow
from sdk_exporter.contract import Key, SpanName

HOSTILE = "a/b%2F\\'\"`;--<script>alert(1)</script>\n\t{job_id:String}€\U0001f525"


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock(datetime.now(timezone.utc).replace(microsecond=0))


async def store(db: Database, spans: Sequence[SpanRow]) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)


def by_time(*spans: SpanRow) -> list[SpanRow]:
    return sorted(spans, key=lambda span: (span.start_ns, span.span_id))


async def test_a_request_is_its_own_spans_and_those_of_its_workers_boot(db: Database, clock: Clock) -> None:
    mine, other_boot = Teller(clock.now), Teller(clock.now, boot="c" * 32)
    own = mine.failed(HOSTILE)
    of_worker = [
        mine.span(SpanName.BOOT, -100, -90),
        mine.heartbeat(1),
        mine.death(4, [HOSTILE]),
        mine.span(SpanName.SHUTDOWN, 3.5, 3.9),
    ]
    elsewhere = [
        *mine.completed("another"),
        other_boot.span(SpanName.BOOT, -300, -290),
        *Teller(clock.now, tenant="stranger").failed(HOSTILE),
    ]
    await store(db, [*own, *of_worker, *elsewhere])

    assert await spans_of_job(db, "default", HOSTILE) == JobSpans(by_time(*own, *of_worker), cut=False)


async def test_a_request_that_only_a_dead_worker_names_has_that_workers_spans(db: Database, clock: Clock) -> None:
    worker = Teller(clock.now)
    told = [worker.span(SpanName.BOOT, -100, -90), worker.death(4, ["x", HOSTILE])]
    await store(db, told)

    assert await spans_of_job(db, "default", HOSTILE) == JobSpans(told, cut=False)
    assert await spans_of_job(db, "default", "never") == JobSpans([], cut=False)


async def test_a_span_that_arrived_twice_on_two_days_is_read_once(db: Database, clock: Clock) -> None:
    first = Teller(clock.now).claimed("j")
    again = dataclasses.replace(first, arrived_ms=first.arrived_ms + 86_400_000)
    await store(db, [first])
    await store(db, [again])

    assert await spans_of_job(db, "default", "j") == JobSpans([again], cut=False)


async def test_heartbeats_are_those_around_the_request_and_the_newest(db: Database, clock: Clock) -> None:
    worker = Teller(clock.now)
    own = worker.completed("j")
    beats = [worker.heartbeat(at * 15.0) for at in range(-40, 200)]
    await store(db, [*own, *beats])

    around = [beat for beat in beats if worker.ns(-120) <= beat.end_ns and beat.start_ns <= worker.ns(123)]
    expected = by_time(*own, *around, *beats[-question.NEWEST_REPORTS :])
    assert await spans_of_job(db, "default", "j") == JobSpans(expected, cut=False)


async def test_thousands_of_the_users_own_spans_never_push_out_the_lifecycle(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "OWN_SPANS_MAX", 5)
    worker = Teller(clock.now)
    lifecycle = worker.completed("j", at=100)
    users = [worker.span("my.step", at, job="j") for at in range(10)]
    await store(db, [*users, *lifecycle])

    assert await spans_of_job(db, "default", "j") == JobSpans(by_time(*users[:2], *lifecycle), cut=True)


async def test_more_bytes_than_fit_in_memory_are_cut_and_said_to_be(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "BYTES_MAX", 60_000)
    worker = Teller(clock.now)
    claimed = worker.claimed("j")
    large = [worker.span("my.step", at, job="j", attributes={"text": "x" * 25_000}) for at in (1, 2, 3)]
    await store(db, [claimed, *large])

    assert await spans_of_job(db, "default", "j") == JobSpans([claimed, *large[:2]], cut=True)


async def test_a_request_nobody_claimed_has_what_its_endpoint_did_meanwhile(db: Database, clock: Clock) -> None:
    caller = Teller(clock.now, worker="", boot="")
    worker, long_ago = Teller(clock.now), Teller(clock.now)
    waiting = caller.span(SpanName.CALLER_REQUEST + ".started", 0, job="q")
    meanwhile = [worker.span(SpanName.BOOT + ".started", 60), worker.death(500, [])]
    platform = caller.span(SpanName.PLATFORM_WORKER, 30)
    await store(db, [waiting, *meanwhile, platform, long_ago.death(-900, [])])

    assert await spans_of_job(db, "default", "q") == JobSpans(by_time(waiting, *meanwhile, platform), cut=False)


async def test_many_are_asked_at_once_and_each_gets_what_it_would_get_alone(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "FAIR_ROWS", 5)  # so that some have more than their share
    one, two = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32, endpoint="ep-2")
    caller = Teller(clock.now, worker="", boot="", endpoint="ep-2")
    spans = [
        *one.failed("small"),
        *two.completed("large", at=100),
        *(two.span("my.step", at, job="large") for at in range(100, 120)),
        *(one.heartbeat(at * 15.0) for at in range(-10, 30)),
        two.span(SpanName.BOOT, -100, -90),
        one.death(500, ["only named"]),
        caller.span(SpanName.CALLER_REQUEST + ".started", 90, job="waiting"),
        caller.span(SpanName.PLATFORM_WORKER, 95),
    ]
    await store(db, spans)
    names = ["small", "large", "only named", "waiting", "never"]
    alone = {name: await spans_of_job(db, "default", name) for name in names}
    assert await spans_of_jobs(db, "default", names) == alone
    assert [len(alone[name].spans) for name in names] == [31, 25, 11, 2, 0]
    assert not any(found.cut for found in alone.values())


async def test_a_heartbeat_that_told_the_output_of_a_standstill_is_read_however_long_ago(
    db: Database, clock: Clock
) -> None:
    """It is told once; hundreds of heartbeats without it follow."""
    worker = Teller(clock.now)
    own = [worker.claimed("j"), worker.run_started("j")]
    told = worker.span(SpanName.HEARTBEAT, 400, attributes={Key.LOG_TAIL: "waiting for the lock"})
    beats = [worker.heartbeat(at * 15.0) for at in range(9, 300)]
    await store(db, [*own, told, *beats])

    for found in (await spans_of_job(db, "default", "j"), (await spans_of_jobs(db, "default", ["j", "k"]))["j"]):
        assert told in found.spans
        assert len(found.spans) == 3 + question.NEWEST_REPORTS
