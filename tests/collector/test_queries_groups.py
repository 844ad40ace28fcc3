"""Same failure, grouped: what it counts, what stands out about it, whether it is new or came back."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from job_spans import OOM_LINE, Teller
from parts import Clock

from collector import queries
from collector.clickhouse import Database
from collector.diagnosis.answer import Group
from collector.digest import Digest
from collector.queries import GroupDetail, JobFilter
from collector.queries.stored import JobRow, ns_of
from collector.rows import SpanRow
from collector.settings import Settings
from sdk_exporter.contract import Key

KIND = "1:00000000000000aa"


@pytest.fixture
def clock() -> Clock:
    """A clock near the real time, since records past retention are not stored; at a full hour, which counts go by."""
    return Clock(datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0))


async def digested(db: Database, settings: Settings, spans: Sequence[SpanRow], now: datetime) -> None:
    await db.insert("spans", spans, token=uuid.uuid4().hex)
    done = await Digest().round(db, settings, now)
    assert done.failed == 0


async def detail_of(db: Database, now: datetime, fingerprint: str = KIND) -> GroupDetail:
    detail = await queries.group(db, "default", fingerprint, now)
    assert detail is not None
    return detail


async def test_a_group_counts_its_requests_and_names_what_stands_out(
    db: Database, settings: Settings, clock: Clock
) -> None:
    bad, good = Teller(clock.now), Teller(clock.now, worker="w-2", boot="c" * 32)
    good.resource = {**good.resource, Key.HOST_NAME: "host-b"}
    spans = [span for n in range(4) for span in bad.failed(f"bad-{n}", at=n)]
    spans += [span for n in range(20) for span in good.completed(f"good-{n}", at=n)]
    now = clock.advance(60)
    await digested(db, settings, spans, now)

    (summary,) = (await queries.groups(db, "default", now)).items
    newest = (await queries.list_jobs(db, "default", JobFilter(q="bad-3"))).items[0]
    assert newest.group == Group(summary.fingerprint, 4, bad.zero)
    assert summary == queries.GroupSummary(
        fingerprint=summary.fingerprint,
        code="handler_failed",
        cause=newest.verdict.cause,
        title=newest.verdict.title,
        sentence=newest.verdict.sentence,
        root_line=OOM_LINE,
        count=4,
        first_seen=bad.zero,
        last_seen=bad.zero + timedelta(seconds=3),
        newest_job_id="bad-3",
        endpoints=("ep-1",),
        trend=(*[0] * 23, 4),
    )
    detail = await detail_of(db, now, summary.fingerprint)
    assert (detail.summary, detail.new_in, detail.regressed) == (summary, None, None)
    (found,) = detail.stands_out
    assert (found.dimension, found.value, found.count, found.total) == ("host", "host-a", 4, 4)
    assert (found.count_elsewhere, found.total_elsewhere, found.share, found.share_elsewhere) == (0, 20, 1.0, 0.0)
    assert await queries.group(db, "default", "1:0000000000000000", now) is None
    assert await queries.group(db, "default", "", now) is None
    assert await queries.group(db, "stranger", summary.fingerprint, now) is None


PLAIN = JobRow(
    tenant="default", job_id="", version=1, endpoint_id="ep-1", worker_ids=["w-1"], boot_ids=[], state="completed",
    is_final=True, code="completed", cause="no_failure", queue_reason="", fault="unknown", retry="no",
    confidence="certain", inferred=False, fingerprint="", title="", sentence="", root_line="", revision=1, first_ns=0,
    last_ns=0, digested_ms=0, updated_ms=0, host="", gpu="", driver="", image="", release="", region="", sdk="",
    search_text="", document="",
)  # fmt: skip


def rows(now: datetime, ago: timedelta, failed: int, well: int, **where: str) -> list[JobRow]:
    """Requests that ended `ago`, a second apart."""
    made = []
    for number in range(failed + well):
        at_ns = ns_of(now - ago + timedelta(seconds=number))
        row = replace(PLAIN, job_id=uuid.uuid4().hex, first_ns=at_ns, updated_ms=at_ns // 1_000_000, **where)
        bad = replace(row, state="failed", code="handler_failed", cause="cuda_oom", fingerprint=KIND)
        made.append(bad if number < failed else row)
    return made


async def stored(db: Database, *parts: list[JobRow]) -> None:
    await db.insert("jobs", [row for part in parts for row in part], token=uuid.uuid4().hex)


async def test_a_failure_that_came_with_an_image(db: Database, clock: Clock) -> None:
    hour = timedelta(hours=1)
    await stored(
        db,
        rows(clock.now, 20 * hour, 0, 120, image="acme:v42"),
        rows(clock.now, 2 * hour, 6, 4, image="acme:v43"),
        rows(clock.now, 3 * hour, 0, 500, image="other", endpoint_id="ep-2"),
    )
    detail = await detail_of(db, clock.now)
    assert detail.new_in == queries.Change("image", "acme:v43", 6, 10, 120, clock.now - 2 * hour)
    assert [(one.dimension, one.value, one.total_elsewhere) for one in detail.stands_out] == [
        ("image", "acme:v43", 120)
    ]


async def test_a_failure_that_came_back(db: Database, clock: Clock) -> None:
    day = timedelta(days=1)
    await stored(
        db,
        rows(clock.now, 9 * day, 5, 95),
        *(rows(clock.now, ago * day, 0, 100) for ago in range(3, 8)),
        rows(clock.now, timedelta(hours=1), 1, 9),
    )
    detail = await detail_of(db, clock.now)
    assert detail.regressed == queries.Regression(
        clock.now - 9 * day + timedelta(seconds=4), clock.now - timedelta(hours=1), 500
    )


async def test_requests_under_way_and_long_ago_are_not_compared(db: Database, clock: Clock) -> None:
    """What has not ended may still fail; what is older than a week ran on another fleet."""
    running = [replace(row, is_final=False) for row in rows(clock.now, timedelta(hours=1), 0, 300, host="good")]
    await stored(
        db,
        running,
        rows(clock.now, timedelta(days=9), 0, 300, host="good"),
        rows(clock.now, timedelta(hours=1), 5, 0, host="bad"),
    )
    assert (await detail_of(db, clock.now)).stands_out == ()
