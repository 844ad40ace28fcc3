"""What is diagnosed in the background: when, what is written, and that nothing is lost on the way."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import httpx
import pytest
from job_spans import Teller
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from otlp_bytes import PROTOBUF, request_of, span
from parts import Clock

from collector import digest as digests
from collector.clickhouse import Database
from collector.digest import Digest, Round
from collector.errors import StoreRefused, StoreUnavailable
from collector.queries import JobFilter, JobRow, VerdictRow, list_jobs
from collector.rows import SpanRow
from collector.settings import Settings
from sdk_exporter.contract import Key, SpanName


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock(datetime.now(timezone.utc).replace(microsecond=0))


async def store(db: Database, spans: Sequence[SpanRow]) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)


async def stored_and_touched(db: Database, digest: Digest, spans: Sequence[SpanRow]) -> None:
    """As ingest does it."""
    await store(db, spans)
    for tenant in {row.tenant for row in spans}:
        mine = [row for row in spans if row.tenant == tenant]
        digest.touched(
            tenant,
            {row.job_id for row in mine if row.job_id},
            {(row.worker_id, row.boot_id) for row in mine if not row.job_id},
        )


async def told(db: Database) -> list[tuple[Any, ...]]:
    rows = await db.query("SELECT tenant, job_id, state, code, is_final, revision FROM jobs FINAL ORDER BY ALL")
    return [tuple(row.values()) for row in rows]


async def history(db: Database) -> list[tuple[Any, ...]]:
    rows = await db.query("SELECT job_id, revision, code, is_final, why FROM verdict_history FINAL ORDER BY ALL")
    return [tuple(row.values()) for row in rows]


async def test_a_request_gets_a_row_and_each_change_of_its_verdict_a_reason(
    db: Database, settings: Settings, clock: Clock
) -> None:
    digest, worker = Digest(), Teller(clock.now)
    await stored_and_touched(db, digest, [worker.claimed("j"), worker.run_started("j")])
    assert await digest.round(db, settings, clock.advance(1)) == Round(diagnosed=1, written=1, revised=1)
    assert await told(db) == [("default", "j", "running", "running", False, 1)]

    await stored_and_touched(db, digest, worker.completed("j")[1:])
    assert await digest.round(db, settings, clock.advance(4)) == Round(diagnosed=1, written=1, revised=1)
    assert await told(db) == [("default", "j", "completed", "completed", True, 2)]
    assert await history(db) == [
        ("j", 1, "running", False, "first diagnosis, from job.run.started, job.claimed"),
        ("j", 2, "completed", True, "job.deliver, job.run arrived"),
    ]
    assert await digest.round(db, settings, clock.advance(4)) == Round()


async def test_silence_changes_a_verdict_without_any_new_record(db: Database, settings: Settings, clock: Clock) -> None:
    digest, worker = Digest(), Teller(clock.now)
    beat = worker.heartbeat(1, ["j"])
    await stored_and_touched(db, digest, [worker.claimed("j"), worker.run_started("j"), beat])
    await digest.round(db, settings, clock.advance(2))
    assert await told(db) == [("default", "j", "running", "running", False, 1)]

    assert await digest.round(db, settings, clock.advance(600)) == Round(diagnosed=1, written=1, revised=1)
    assert (await told(db))[0][3] == "worker_killed"
    assert (await history(db))[-1][-1] == "nothing arrived for 601 s"


async def test_an_open_request_is_written_again_only_when_its_row_grows_old(
    db: Database, settings: Settings, clock: Clock
) -> None:
    digest, worker = Digest(), Teller(clock.now)
    await stored_and_touched(db, digest, [worker.claimed("j"), worker.run_started("j"), worker.heartbeat(1, ["j"])])
    await digest.round(db, settings, clock.advance(2))
    assert await digest.round(db, settings, clock.advance(5)) == Round(diagnosed=1)
    await store(db, [worker.heartbeat(at, ["j"]) for at in range(15, 120, 15)])
    await digest.round(db, settings, clock.advance(40))
    assert await digest.round(db, settings, clock.advance(70)) == Round(diagnosed=1, written=1)


async def test_a_death_touches_the_open_requests_of_its_boot_and_those_in_its_hands(
    db: Database, settings: Settings, clock: Clock
) -> None:
    digest, worker, other = Digest(), Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32)
    running = [worker.claimed("mine"), worker.run_started("mine")]
    await stored_and_touched(db, digest, [*running, *worker.completed("done"), other.claimed("theirs")])
    await digest.round(db, settings, clock.advance(4))

    await stored_and_touched(db, digest, [worker.death(5, ["mine", "all its records lost"])])
    assert await digest.round(db, settings, clock.advance(2), open_too=False) == Round(
        diagnosed=2, written=2, revised=2
    )
    assert [row[1:4] for row in await told(db)] == [
        ("all its records lost", "lost", "stranded_claim"),
        ("done", "completed", "completed"),
        ("mine", "lost", "worker_killed"),
        ("theirs", "claimed", "running"),
    ]


async def test_a_late_death_revises_what_silence_had_let_infer(db: Database, settings: Settings, clock: Clock) -> None:
    digest, worker = Digest(), Teller(clock.now)
    await stored_and_touched(db, digest, [worker.claimed("j"), worker.run_started("j")])
    await digest.round(db, settings, clock.advance(7200))
    before = await told(db)
    late = dataclasses.replace(worker.death(3, ["j"], signal="SIGSEGV"), arrived_ms=worker.ns(7300) // 1_000_000)
    await stored_and_touched(db, digest, [late])
    await digest.round(db, settings, clock.advance(200), open_too=False)

    assert before == [("default", "j", "lost", "worker_killed", True, 1)]
    assert await told(db) == [("default", "j", "lost", "worker_crashed", True, 2)]
    assert (await history(db))[-1] == ("j", 2, "worker_crashed", True, "worker.death (error) arrived")


async def test_after_a_restart_what_was_stored_and_not_diagnosed_is_caught_up_with(
    db: Database, settings: Settings, clock: Clock
) -> None:
    worker = Teller(clock.now)
    await store(db, [*worker.completed("a"), *worker.failed("b", at=10), *Teller(clock.now, tenant="t").completed("a")])
    digest = Digest()
    assert (await digest.round(db, settings, clock.advance(20))).written == 3
    assert [row[:3] for row in await told(db)] == [
        ("default", "a", "completed"),
        ("default", "b", "failed"),
        ("t", "a", "completed"),
    ]

    await store(db, worker.completed("c", at=100))
    assert (await Digest().round(db, settings, clock.advance(200))).written == 1


async def test_more_touches_than_fit_in_memory_are_found_in_the_store(
    db: Database, settings: Settings, clock: Clock
) -> None:
    digest, worker = Digest(most_waiting=3, behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, [row for n in range(10) for row in worker.completed(f"j{n}", at=n)])
    assert len(digest.jobs) == 3
    rounds = [await digest.round(db, settings, clock.advance(20)) for _ in range(5)]
    assert len(await told(db)) == 10
    assert sum(one.revised for one in rounds) == 10


async def test_nothing_is_lost_while_the_store_is_away(db: Database, settings: Settings, clock: Clock) -> None:
    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, worker.completed("j"))
    closed = Database(settings)
    await closed.close()
    with pytest.raises(StoreUnavailable):
        await digest.round(closed, settings, clock.advance(4))
    assert (await digest.round(db, settings, clock.now)).written == 1


async def test_a_request_that_a_rule_trips_over_does_not_keep_others_from_their_verdict(
    db: Database, settings: Settings, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trip(job_id: str, *more: Any) -> Any:
        if job_id == "bad":
            raise IndexError("a bug")
        return first_look(job_id, *more)

    first_look = digests.first_look
    monkeypatch.setattr(digests, "first_look", trip)
    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, [*worker.completed("bad"), *worker.completed("good")])
    with caplog.at_level(logging.CRITICAL, logger="collector.digest"):
        done = await digest.round(db, settings, clock.advance(4))
    assert done == Round(diagnosed=2, written=1, revised=1, failed=1)
    assert (digest.failures, digest.jobs) == (1, {})


async def test_many_requests_with_long_ids_are_asked_for_in_questions_that_fit(
    db: Database, settings: Settings, clock: Clock
) -> None:
    """The server takes 128 KiB of one bound value, in which a backslash becomes four."""
    digest, worker = Digest(behind=False), Teller(clock.now)
    names = [f"{n:03}" + ("é" if n % 2 else "\\'") * 510 for n in range(60)]
    await stored_and_touched(db, digest, [row for name in names for row in worker.completed(name)])
    assert await digest.round(db, settings, clock.advance(4)) == Round(diagnosed=60, written=60, revised=60)
    page = await list_jobs(db, "default", JobFilter(), limit=100)
    assert {answer.job_id for answer in page.items} == set(names)


async def test_a_question_that_the_store_refuses_is_asked_for_each_request_alone(
    db: Database, settings: Settings, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refusing(db: Database, tenant: str, job_ids: Sequence[str]) -> Any:
        if "bad" in job_ids:
            raise StoreRefused("too much at once")
        return await real(db, tenant, job_ids)

    real = digests.spans_of_jobs
    monkeypatch.setattr(digests, "spans_of_jobs", refusing)
    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, [*worker.completed("bad"), *worker.completed("good")])
    with caplog.at_level(logging.CRITICAL, logger="collector.digest"):
        assert await digest.round(db, settings, clock.advance(4)) == Round(diagnosed=2, written=1, revised=1, failed=1)


async def test_a_request_too_heavy_to_read_in_time_does_not_keep_others_from_their_verdict(
    db: Database, settings: Settings, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def slow(db: Database, tenant: str, job_ids: Sequence[str]) -> Any:
        asked.extend(job_ids)
        if "heavy" in job_ids:
            raise StoreUnavailable("the store does not answer (code 159 TIMEOUT_EXCEEDED)")
        return await real(db, tenant, job_ids)

    real = digests.spans_of_jobs
    monkeypatch.setattr(digests, "spans_of_jobs", slow)
    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, [*worker.completed("heavy"), *worker.completed("good")])
    with caplog.at_level(logging.CRITICAL, logger="collector.digest"):
        assert await digest.round(db, settings, clock.advance(4)) == Round(diagnosed=2, written=1, revised=1, failed=1)
        asked.clear()
        digest.touched("default", {"heavy", "good"}, set())
        await digest.round(db, settings, clock.advance(4))
        assert asked == ["good"], "it is left alone for a while"
        await digest.round(db, settings, clock.advance(digests.SET_ASIDE.total_seconds()))
        assert asked == ["good"]
        digest.touched("default", {"heavy"}, set())
        await digest.round(db, settings, clock.now)
        assert asked == ["good", "heavy"], "and then tried again"


async def test_many_requests_that_are_read_too_late_are_a_slow_store_and_wait(
    db: Database, settings: Settings, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(db: Database, tenant: str, job_ids: Sequence[str]) -> Any:
        raise StoreUnavailable("the store does not answer (code 159 TIMEOUT_EXCEEDED)")

    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, [row for n in range(6) for row in worker.completed(f"j{n}")])
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, logger="collector.digest"):
        patch.setattr(digests, "spans_of_jobs", slow)
        with pytest.raises(StoreUnavailable):
            await digest.round(db, settings, clock.advance(4))
        assert len(digest.set_aside) == digests.LATE_A_ROUND
    assert (await digest.round(db, settings, clock.advance(4))).written == 3


async def test_many_boots_with_long_ids_are_asked_for_in_questions_that_fit(
    db: Database, settings: Settings, clock: Clock
) -> None:
    digest = Digest(behind=False)
    digest.touched("default", set(), {(f"{n:03}" + "é" * 510, f"{n:03}" + "\\'" * 510) for n in range(200)})
    for _ in range(7):
        assert await digest.round(db, settings, clock.now) == Round()
    assert digest.boots == {}


async def test_a_row_that_the_store_refuses_does_not_keep_others_out(
    db: Database, settings: Settings, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_bad(*more: Any) -> JobRow:
        row = real(*more)
        return dataclasses.replace(row, host="half a character \ud83d") if row.job_id == "bad" else row

    real = digests.job_row
    monkeypatch.setattr(digests, "job_row", with_bad)
    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, [*worker.completed("bad"), *worker.completed("good")])
    with caplog.at_level(logging.CRITICAL, logger="collector.digest"):
        await digest.round(db, settings, clock.advance(4))
    assert [row[1] for row in await told(db)] == ["good"]
    assert digest.failures == 1


async def test_a_request_stands_once_in_the_order_of_time(db: Database, settings: Settings, clock: Clock) -> None:
    """The caller's record of it comes last, and begins first."""
    digest, worker = Digest(), Teller(clock.now)
    await stored_and_touched(db, digest, [worker.claimed("j"), worker.run_started("j")])
    await digest.round(db, settings, clock.advance(1))
    await stored_and_touched(db, digest, [worker.span(SpanName.CALLER_REQUEST, -40, 3, job="j")])
    await digest.round(db, settings, clock.advance(4))
    rows = await db.query("SELECT job_id, first_ns FROM job_times FINAL")
    assert rows == await db.query("SELECT job_id, first_ns FROM jobs FINAL")
    assert [row["job_id"] for row in rows] == ["j"]
    found = await list_jobs(db, "default", JobFilter())
    assert [answer.job_id for answer in found.items] == ["j"]


@pytest.mark.parametrize(("table", "row"), [("jobs", JobRow), ("verdict_history", VerdictRow)])
async def test_a_row_has_the_columns_of_its_table(db: Database, table: str, row: type[JobRow | VerdictRow]) -> None:
    columns = await db.query(
        "SELECT name FROM system.columns"
        " WHERE database = currentDatabase() AND table = {table:String} ORDER BY position",
        {"table": table},
    )
    assert [column["name"] for column in columns] == [field.name for field in dataclasses.fields(row)]


async def test_records_past_retention_leave_what_is_known_as_it_was(
    db: Database, settings: Settings, clock: Clock
) -> None:
    digest, worker = Digest(behind=False), Teller(clock.now)
    await stored_and_touched(db, digest, worker.failed("j"))
    await digest.round(db, settings, clock.advance(4))
    before = await told(db)
    await db.command("TRUNCATE TABLE spans")
    digest.touched("default", {"j"}, set())
    assert await digest.round(db, settings, clock.advance(4)) == Round(diagnosed=1)
    assert await told(db) == before


async def test_open_requests_come_up_in_turn(
    db: Database, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "JOBS_A_ROUND", 2)
    digest, worker = Digest(), Teller(clock.now)
    await store(db, [worker.claimed(f"j{n}") for n in range(5)])
    for _ in range(4):
        await digest.round(db, settings, clock.advance(1))
    seen: list[set[str]] = []
    real = digests.spans_of_jobs

    async def noted(db: Database, tenant: str, job_ids: Sequence[str]) -> Any:
        seen[-1].update(job_ids)
        return await real(db, tenant, job_ids)

    monkeypatch.setattr(digests, "spans_of_jobs", noted)
    for _ in range(3):
        seen.append(set())
        await digest.round(db, settings, clock.advance(1))
    assert set.union(*seen) == {f"j{n}" for n in range(5)}
    assert all(len(jobs) <= 2 for jobs in seen)


async def test_spans_that_come_in_over_otlp_are_diagnosed_soon_after(server: httpx.AsyncClient) -> None:
    body = request_of(
        span(SpanName.JOB_CLAIMED),
        span(SpanName.JOB_RUN, status=Status(code=Status.STATUS_CODE_OK)),
        span(SpanName.JOB_DELIVER, attributes={Key.HTTP_STATUS: 200, Key.DELIVER_LAST: True}),
    ).SerializeToString()
    assert (await server.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 200

    async def listed() -> list[str]:
        page = (await server.get("/api/v1/jobs?state=completed")).json()
        return [item["job_id"] for item in page["items"]]

    async def until_listed() -> None:
        while await listed() != ["job-1"]:  # noqa: ASYNC110  what is waited for is in another process: the store
            await asyncio.sleep(0.1)

    await asyncio.wait_for(until_listed(), 60)
    assert (await server.get("/api/v1/jobs/job-1")).json()["state"] == "completed"
