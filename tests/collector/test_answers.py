"""The answer for one request, before and after the digest has written what it knows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest
from job_spans import Teller
from parts import Clock

from collector.answers import answer_of_job
from collector.clickhouse import Database
from collector.diagnosis.answer import Group, Missing, Revision
from collector.digest import Digest
from collector.errors import NotFound
from collector.queries import job as question
from collector.rows import SpanRow
from collector.settings import Settings
from sdk_exporter.contract import SpanName


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock(datetime.now(timezone.utc).replace(microsecond=0))


async def store(db: Database, spans: Sequence[SpanRow]) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)


async def test_an_answer_is_right_before_the_digest_has_seen_the_request(db: Database, clock: Clock) -> None:
    worker = Teller(clock.now)
    await store(db, worker.failed("j"))
    now = clock.advance(10)
    answer = await answer_of_job(db, "default", "j", now)
    assert (answer.state, answer.final, answer.revision) == ("failed", True, 1)
    why = "first diagnosis, from job.deliver, job.run (error), job.claimed"
    assert answer.history == (Revision(at=now, code="handler_failed", why=why),)
    assert answer.group is not None
    assert answer.group == Group(answer.group.fingerprint, 1, worker.zero)


async def test_an_answer_tells_the_revisions_that_were_written_and_the_one_that_was_not(
    db: Database, settings: Settings, clock: Clock
) -> None:
    worker, digest = Teller(clock.now), Digest()
    await store(db, [worker.claimed("j"), worker.run_started("j")])
    first = clock.advance(1)
    await digest.round(db, settings, first)
    await store(db, worker.failed("j")[1:])
    second = clock.advance(4)
    written = Revision(at=first, code="running", why="first diagnosis, from job.run.started, job.claimed")

    before = await answer_of_job(db, "default", "j", second)
    assert before.revision == 2
    assert before.history == (
        written,
        Revision(at=second, code="handler_failed", why="job.deliver, job.run (error) arrived"),
    )
    await digest.round(db, settings, second)
    after = await answer_of_job(db, "default", "j", clock.advance(100))
    assert (after.revision, after.history, after.verdict) == (before.revision, before.history, before.verdict)


async def test_the_same_failure_is_counted_once_for_each_request_that_has_it(
    db: Database, settings: Settings, clock: Clock
) -> None:
    worker = Teller(clock.now)
    await store(db, [*worker.failed("a"), *worker.failed("b", at=10)])
    await Digest().round(db, settings, clock.advance(20))
    await store(db, worker.failed("c", at=30))
    now = clock.advance(20)

    groups = [(await answer_of_job(db, "default", job_id, now)).group for job_id in ("a", "b", "c")]
    assert groups[0] is not None
    name = groups[0].fingerprint
    assert groups == [Group(name, 2, worker.zero), Group(name, 2, worker.zero), Group(name, 3, worker.zero)]


async def test_an_answer_from_a_part_of_the_records_says_so(
    db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "OWN_SPANS_MAX", 3)
    worker = Teller(clock.now)
    await store(db, [*worker.completed("j"), *(worker.span("my.step", at, job="j") for at in (1, 2))])
    answer = await answer_of_job(db, "default", "j", clock.advance(10))
    assert answer.verdict.code == "completed"
    assert answer.verdict.missing[-1] == Missing(
        what="This request has more records than one answer reads; the oldest reports or the user's own spans are left"
        " out here",
        how="",
    )


async def test_a_final_verdict_that_changes_without_a_record_says_that_the_rules_did(
    db: Database, settings: Settings, clock: Clock
) -> None:
    await store(db, Teller(clock.now).failed("j"))
    await Digest().round(db, settings, clock.advance(10))
    await db.command("INSERT INTO jobs SELECT * REPLACE ('unknown' AS cause, version + 1 AS version) FROM jobs FINAL")
    answer = await answer_of_job(db, "default", "j", clock.advance(10))
    assert answer.revision == 2
    assert answer.history[-1].why == "no record arrived: the rules of diagnosis are others than then"


async def test_a_request_that_waits_is_not_put_down_to_the_host_of_another_worker(
    db: Database, settings: Settings, clock: Clock
) -> None:
    caller = Teller(clock.now, worker="", boot="")
    await store(db, [caller.span(SpanName.CALLER_REQUEST + ".started", 0, job="q"), Teller(clock.now).heartbeat(5)])
    await Digest().round(db, settings, clock.advance(10))
    assert await db.query("SELECT job_id, state, host, worker_ids FROM jobs FINAL") == [
        {"job_id": "q", "state": "queued", "host": "", "worker_ids": []}
    ]


async def test_another_tenants_request_was_never_seen(db: Database, clock: Clock) -> None:
    await store(db, Teller(clock.now, tenant="a").completed("j"))
    with pytest.raises(NotFound) as refused:
        await answer_of_job(db, "b", "j", clock.now)
    assert refused.value.reason == "never_seen"
