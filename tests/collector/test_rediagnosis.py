"""Stored requests diagnosed once more, by other rules than those of the first time."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone

import pytest
from job_spans import Teller
from parts import Clock

from collector import rediagnosis
from collector.clickhouse import Database
from collector.digest import Digest
from collector.queries import JobFilter, histories_of, list_jobs
from collector.rediagnosis import Rediagnosed, rediagnose
from collector.settings import Settings


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time: records past retention are not stored."""
    return Clock(datetime.now(timezone.utc).replace(microsecond=0))


async def test_verdicts_of_other_rules_become_the_next_revision(
    db: Database, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rediagnosis, "JOBS_A_ROUND", 5)
    worker = Teller(clock.now)
    spans = [span for n in range(10) for span in worker.completed(f"good-{n}", at=n)]
    await db.insert("spans", [*spans, *worker.failed("bad"), *worker.failed("same")], token=uuid.uuid4().hex)
    await Digest().round(db, settings, clock.advance(20))
    await db.command(
        "INSERT INTO jobs SELECT * REPLACE ('unknown' AS cause, version + 1 AS version) FROM jobs FINAL"
        " WHERE job_id = 'bad'"
    )
    heard: list[Rediagnosed] = []
    now = clock.advance(10)
    done = await rediagnose(db, settings, now - timedelta(days=1), now, told=heard.append)
    assert done == Rediagnosed(diagnosed=12, revised=1)
    assert [one.diagnosed for one in heard] == [5, 10, 12]

    (answer,) = (await list_jobs(db, "default", JobFilter(q="bad"))).items
    assert (answer.verdict.cause, answer.revision) == ("cuda_oom", 2)
    history = (await histories_of(db, "default", ["bad"]))["bad"]
    assert [one.why for one in history][1:] == ["no record arrived: the rules of diagnosis are others than then"]
    assert len((await histories_of(db, "default", ["same"]))["same"]) == 1
    assert await rediagnose(db, settings, now + timedelta(days=1), now) == Rediagnosed()


async def test_what_is_past_retention_keeps_its_verdict(db: Database, settings: Settings, clock: Clock) -> None:
    await db.insert("spans", Teller(clock.now).failed("j"), token=uuid.uuid4().hex)
    await Digest().round(db, settings, clock.advance(10))
    await db.command("TRUNCATE TABLE spans")
    assert await rediagnose(db, settings, clock.now - timedelta(days=1), clock.now) == Rediagnosed(diagnosed=1)
    (answer,) = (await list_jobs(db, "default", JobFilter())).items
    assert (answer.verdict.code, answer.revision) == ("handler_failed", 1)
