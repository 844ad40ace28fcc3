"""A world with an accelerated clock: records that arrive when they would, collectors that look, a store that may go.

Nothing sleeps: `World.step` moves the clock, stores what has arrived by then, and lets every collector do one round of
diagnosis and one of watching, as it would every five seconds.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any, ClassVar

import httpx
from fleet import Worker
from pydantic import SecretStr

from collector.alerts.notices import Notice
from collector.alerts.rules import load
from collector.clickhouse import Database
from collector.digest import Digest
from collector.errors import StoreUnavailable
from collector.queries.stored import ms_of
from collector.rows import SpanRow
from collector.settings import Settings
from collector.watch.loop import Watch
from sdk_exporter.contract import CHANNEL_REPORT_SECONDS, HEARTBEAT_SECONDS, STARTED_SUFFIX, Key, SpanName

ROWS_AN_INSERT = 10_000
SENDING_SECONDS = 1.5
"""A recorder hands a record in within so long, on a good day."""
HOLD_SECONDS = 10.0
"""How long the platform holds a poll here."""


def _midnight() -> datetime:
    """The next one: the same time of day each time, and nothing is past its retention."""
    return datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def hex_id(random: Random, size: int) -> str:
    """An id of so many bytes, the same for the same seed."""
    return f"{random.getrandbits(8 * size):0{2 * size}x}"


@dataclass(frozen=True)
class Kept:
    """A channel that keeps what it is told."""

    notices: list[tuple[datetime, Notice]] = field(default_factory=list)
    name: ClassVar[str] = "webhook"
    repeat_seconds: ClassVar[float | None] = None
    folds: ClassVar[bool] = True

    async def send(self, client: httpx.AsyncClient, notice: Notice, now: datetime) -> None:
        self.notices.append((now, notice))


@dataclass
class Collector:
    """One collector's two loops."""

    watch: Watch
    digest: Digest = field(default_factory=Digest)


@dataclass
class World:
    """A store, what is on its way to it, and the collectors over it."""

    db: Database
    settings: Settings
    random: Random
    kept: Kept = field(default_factory=Kept)
    now: datetime = field(default_factory=_midnight)
    collectors: list[Collector] = field(default_factory=list)
    said: Callable[[str], object] = lambda words: None
    """Told how a long simulation gets on."""
    store_is_away: bool = False
    ingest_is_away: bool = False
    stored: int = 0
    _arriving: list[tuple[int, int, SpanRow]] = field(default_factory=list)
    _number: Iterator[int] = field(default_factory=itertools.count)
    _nowhere: Database = field(
        default_factory=lambda: Database(Settings(database_url=SecretStr("clickhouse://127.0.0.1:9/none")))
    )

    def collector(self) -> Collector:
        """One that has just started."""
        return Collector(Watch(load(None), {"webhook": self.kept}, settle_seconds=0.02))

    async def close(self) -> None:
        await self._nowhere.close()

    def tell(self, *spans: SpanRow) -> None:
        """Records on their way; each is stored once the clock has come to its arrival."""
        for span in spans:
            heapq.heappush(self._arriving, (span.arrived_ms, next(self._number), span))

    async def step(self, seconds: float) -> None:
        """Time goes by, and everybody looks once."""
        before_ms = ms_of(self.now)
        self.now += timedelta(seconds=seconds)
        if not (self.store_is_away or self.ingest_is_away):
            await self._store(before_ms)
        for collector in self.collectors:
            await self._digest(collector)
        await asyncio.gather(*(self.look(collector) for collector in self.collectors))

    async def _store(self, before_ms: int) -> None:
        now_ms, due = ms_of(self.now), []
        while self._arriving and self._arriving[0][0] <= now_ms:
            span = heapq.heappop(self._arriving)[2]
            due.append(span if span.arrived_ms > before_ms else replace(span, arrived_ms=now_ms))  # had to wait
        for at in range(0, len(due), ROWS_AN_INSERT):
            await self.db.insert("spans", due[at : at + ROWS_AN_INSERT], token=uuid.uuid4().hex)
        self.stored += len(due)
        told = [span for span in due if span.job_id]
        ended = [span for span in due if span.name in (SpanName.DEATH, SpanName.SHUTDOWN + STARTED_SUFFIX)]
        if self.collectors and due:
            digest = self.random.choice(self.collectors).digest  # each record comes to one of them
            digest.touched("default", [span.job_id for span in told], [(one.worker_id, one.boot_id) for one in ended])

    async def _digest(self, collector: Collector) -> None:
        try:
            await collector.digest.round(self._db, self.settings, self.now)
        except StoreUnavailable:
            assert self.store_is_away

    async def look(self, collector: Collector) -> None:
        """One round of its watcher."""
        done = await collector.watch.round(self._db, self.settings, self.now)
        assert bool(done.error) == self.store_is_away, done.error

    @property
    def _db(self) -> Database:
        return self._nowhere if self.store_is_away else self.db


# -------------------------------------------------------------------------------------------------------- live workers


@dataclass(frozen=True)
class Gap:
    """Something that happens to a worker. `kind`: paused (all of it stands still), held (its threads cannot run, its
    recorder does), cut (the network is away)."""

    kind: str
    start: datetime
    end: datetime


@dataclass
class Live(Worker):
    """A worker that beats, reports its stop channel and works, whatever happens to it."""

    phase: float = 0.0
    started: datetime | None = None
    gaps: list[Gap] = field(default_factory=list)
    busy: tuple[str, datetime, datetime] | None = None  # its request, from when until when
    done: tuple[str, datetime, datetime] | None = None  # the one before
    reports_well: bool = True

    def span(
        self, now: datetime, name: str, *, job: str = "", late: float = 0.0, status: str = "unset", **more: Any
    ) -> SpanRow:
        """The same as any worker's, three times as fast: there are millions of them."""
        made_ms = int(now.timestamp() * 1000)
        at_ns = (made_ms + int(self.skew * 1000)) * 1_000_000
        return self.row(name, at_ns, made_ms + int(late * 1000), job=job, status=status, told=more.get("told", {}))

    def lives(self, random: Random, since: datetime, until: datetime, jobs_an_hour: float = 0.0) -> Iterator[SpanRow]:
        """What it tells of this stretch of time."""
        yield from self._works(random, since, until, jobs_an_hour)
        yield from self._beats(random, since, until)
        yield from self._reports(random, since, until)

    def _beats(self, random: Random, since: datetime, until: datetime) -> Iterator[SpanRow]:
        for at in _every(since, until, HEARTBEAT_SECONDS, self.phase):
            gap = self._gap(at)
            if gap is None or gap.kind != "paused":
                age = (at - gap.start).total_seconds() if gap and gap.kind == "held" else 0.1
                ages = {Key.HEARTBEAT_PROCESS: age, Key.HEARTBEAT_LOOP: age, Key.HEARTBEAT_PROGRESS: age}
                yield self._told(random, at, SpanName.HEARTBEAT, told={Key.HEARTBEAT_JOBS: self._in_hand(at), **ages})

    def _reports(self, random: Random, since: datetime, until: datetime) -> Iterator[SpanRow]:
        for at in _every(since, until, CHANNEL_REPORT_SECONDS, self.phase) if self.reports_well else ():
            told = {
                Key.CHANNEL_STATE: "ok",
                Key.CHANNEL_POLLS: 5,
                Key.CHANNEL_FAILURES: 0,
                Key.CHANNEL_LAST_OK_AGE_SECONDS: random.uniform(0, HOLD_SECONDS),
                Key.CHANNEL_HOLD_SECONDS_P50: HOLD_SECONDS,
            }
            yield self._told(random, self._moves(at), SpanName.STOP_CHANNEL, told=told)

    def _works(self, random: Random, since: datetime, until: datetime, jobs_an_hour: float) -> Iterator[SpanRow]:
        if self.busy is None and random.random() < jobs_an_hour * (until - since).total_seconds() / 3600:
            began = self._moves(since + (until - since) * random.random())
            self.busy = (hex_id(random, 16), began, began + timedelta(seconds=random.uniform(3, 240)))
            yield self._told(random, began, SpanName.JOB_CLAIMED, job=self.busy[0])
            run = {Key.SPAN_ID: hex_id(random, 8)}
            yield self._told(random, began, SpanName.JOB_RUN + STARTED_SUFFIX, job=self.busy[0], told=run)
        if self.busy is not None and self._moves(self.busy[2]) < until:
            job, began, ended = self.busy
            at, self.busy = self._moves(ended), None
            self.done = (job, began, at)
            yield self._told(random, at, SpanName.JOB_RUN, job=job, status="ok")
            delivered = {Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True}
            yield self._told(random, at, SpanName.JOB_DELIVER, job=job, status="ok", told=delivered)

    def _in_hand(self, at: datetime) -> list[str]:
        if self.done and self.done[1] <= at < self.done[2]:
            return [self.done[0]]
        return [self.busy[0]] if self.busy and self.busy[1] <= at else []

    def _gap(self, at: datetime) -> Gap | None:
        return next((gap for gap in self.gaps if gap.start <= at < gap.end), None)

    def _moves(self, at: datetime) -> datetime:
        """When the worker's own code comes to what it would do at `at`."""
        gap = self._gap(at)
        return gap.end if gap and gap.kind in ("paused", "held") else at

    def _told(self, random: Random, at: datetime, name: str, **more: object) -> SpanRow:
        late = random.uniform(0.05, SENDING_SECONDS)
        if (gap := self._gap(at)) is not None and gap.kind == "cut":
            late += (gap.end - at).total_seconds()
        return self.span(at, name, late=late, **more)


def _every(since: datetime, until: datetime, seconds: float, phase: float) -> Iterator[datetime]:
    """The times in [since, until) at which something happens that happens every so many seconds."""
    passed = (since.timestamp() - phase) % seconds
    at = since + timedelta(seconds=(seconds - passed) % seconds)
    while at < until:
        yield at
        at += timedelta(seconds=seconds)


async def live(world: World, workers: Sequence[Live], seconds: float, step: float, jobs_an_hour: float = 0.0) -> None:
    """These workers live for a while, and the collectors look every `step` seconds."""
    until = world.now + timedelta(seconds=seconds)
    while world.now < until:
        ahead = min(step, (until - world.now).total_seconds())
        following = world.now + timedelta(seconds=ahead)
        for worker in workers:
            world.tell(*worker.lives(world.random, world.now, following, jobs_an_hour))
        await world.step(ahead)
