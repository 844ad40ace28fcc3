"""What happened beside a failed request: read from the store, in bounds, by page and digest alike."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest
from job_spans import Teller
from parts import Clock

from collector.answers import answer_of_job
from collector.clickhouse import Database
from collector.diagnosis.answer import Answer
from collector.digest import Digest
from collector.queries import JobFilter, list_jobs
from collector.queries import beside as questions
from collector.rows import SpanRow
from collector.settings import Settings
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

ASSERT = "RuntimeError: CUDA error: device-side assert triggered"


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock(datetime.now(timezone.utc).replace(microsecond=0))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be busy: a gap is a test of its own."""
    monkeypatch.setattr(questions, "SECONDS", 120.0)


async def store(db: Database, spans: Sequence[SpanRow]) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)


async def digested(db: Database, settings: Settings, spans: Sequence[SpanRow], now: datetime) -> None:
    await store(db, spans)
    done = await Digest().round(db, settings, now)
    assert done.failed == 0


async def listed(db: Database, job_id: str) -> Answer:
    items = (await list_jobs(db, "default", JobFilter())).items
    return next(answer for answer in items if answer.job_id == job_id)


async def test_requests_on_the_same_worker_are_read_by_page_and_digest(
    db: Database, settings: Settings, clock: Clock
) -> None:
    worker, other = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32)
    broken = [span for n, job in enumerate("abc") for span in worker.failed(job, at=10.0 * n, line=ASSERT)]
    apart = other.failed("d", at=40, line=ASSERT)
    stranger = Teller(clock.now, tenant="stranger").failed("z", at=-10, line=ASSERT)
    now = clock.advance(60)
    await digested(db, settings, [*broken, *apart, *stranger], now)

    answer = await answer_of_job(db, "default", "c", now)
    assert answer.verdict.retry == "yes"
    assert "broken since request `a` failed" in answer.verdict.sentence
    assert broken[1].span_id in {item.span_id for item in answer.verdict.evidence}
    assert "broken since request `a` failed" in (await listed(db, "c")).verdict.sentence
    for first in ("a", "d"):
        assert "broken since" not in (await answer_of_job(db, "default", first, now)).verdict.sentence


async def test_starts_that_failed_in_the_last_ten_minutes_are_counted(
    db: Database, settings: Settings, clock: Clock
) -> None:
    caller = Teller(clock.now, worker="", boot="")
    spans = [caller.span(SpanName.CALLER_REQUEST + STARTED_SUFFIX, 0, job="q")]
    for n, at in enumerate((-1200, -400, -300, -200, -100, -50, 5)):  # the first is too long ago
        worker = Teller(clock.now, worker=f"w-{n}", boot=f"{n:032x}")
        spans += [worker.span(SpanName.BOOT + STARTED_SUFFIX, at), worker.death(at + 2, [])]
    served = Teller(clock.now, worker="w-ok", boot="f" * 32)
    elsewhere = Teller(clock.now, worker="w-x", boot="e" * 32, endpoint="ep-2")
    spans += [served.span(SpanName.BOOT, -80, -70), served.death(-60, [])]
    spans += [elsewhere.span(SpanName.BOOT + STARTED_SUFFIX, -10), elsewhere.death(-5, [])]
    now = clock.advance(20)
    await digested(db, settings, spans, now)

    answer = await answer_of_job(db, "default", "q", now)
    assert answer.verdict.code == "boot_crashed"
    assert answer.verdict.sentence.endswith(" It is the 6th worker of the endpoint to end before start() in 10 min.")
    assert (await listed(db, "q")).verdict == answer.verdict


async def fleet_of_two(db: Database, settings: Settings, clock: Clock) -> datetime:
    """Nine failures on one host of an endpoint, forty good requests on another."""
    bad, good = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32)
    good.resource = {**good.resource, Key.HOST_NAME: "host-b"}
    spans = [span for n in range(9) for span in bad.failed(f"bad-{n}", at=n)]
    spans += [span for n in range(40) for span in good.completed(f"good-{n}", at=n)]
    now = clock.advance(60)
    await digested(db, settings, spans, now)
    return now


async def test_a_failure_of_one_host_is_told_with_its_numbers(db: Database, settings: Settings, clock: Clock) -> None:
    now = await fleet_of_two(db, settings, clock)
    answer = await answer_of_job(db, "default", "bad-4", now)
    assert answer.verdict.sentence.endswith(
        " It happens only on host `host-a`: 9 of 9 requests there, 0 of 40 elsewhere."
    )
    assert (answer.verdict.retry, answer.verdict.fault) == ("yes", "platform")
    assert answer.group is not None
    assert answer.group.count == 9  # one group, whatever else is known of its requests


async def test_what_the_store_does_not_tell_in_time_is_a_gap_and_no_error(
    db: Database, settings: Settings, clock: Clock
) -> None:
    now = await fleet_of_two(db, settings, clock)
    await db.command("DROP TABLE job_times")
    looks = await questions.beside(db, "default", [questions.Asked("j", "ep-1", "1:aa", now, now)], now, {"j": None})
    assert looks["j"].gaps == ("other requests on the worker", "the endpoint's other requests")


async def test_a_request_that_went_well_asks_for_nothing(db: Database, settings: Settings, clock: Clock) -> None:
    await digested(db, settings, Teller(clock.now).completed("fine"), clock.advance(10))
    await db.command("DROP TABLE job_times")
    answer = await answer_of_job(db, "default", "fine", clock.now)
    assert (answer.verdict.code, answer.verdict.missing) == ("completed", ())


async def test_a_failure_is_looked_at_once_more_when_those_beside_it_are_stored(
    db: Database, settings: Settings, clock: Clock
) -> None:
    bad, good = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32)
    good.resource = {**good.resource, Key.HOST_NAME: "host-b"}
    await store(db, [span for n in range(9) for span in bad.failed(f"bad-{n}", at=n)])
    await store(db, [span for n in range(40) for span in good.completed(f"good-{n}", at=n)])
    digest = Digest()
    assert (await digest.round(db, settings, clock.advance(60))).written == 49
    assert "host-a" not in (await listed(db, "bad-4")).verdict.sentence
    assert (await digest.round(db, settings, clock.advance(30))).written == 0
    assert (await digest.round(db, settings, clock.advance(40))).written == 9
    for job_id in ("bad-0", "bad-8"):
        assert (await listed(db, job_id)).verdict == (await answer_of_job(db, "default", job_id, clock.now)).verdict
    assert (await digest.round(db, settings, clock.advance(100))).written == 0
    assert (await listed(db, "bad-4")).revision == 1
