"""A month on call: incidents over a small fleet, two collectors of which one is killed now and then, and every word
that was told matched with the incident that it is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet import Worker
from incidents import SETTLED, STRANDINGS
from simulation import Gap, Live, World, hex_id, live

from collector.alerts.notices import Notice
from sdk_exporter.contract import HEARTBEAT_SECONDS, STARTED_SUFFIX, Key, SpanName

ENDPOINTS = ("chat", "image", "speech", "embed", "video", "rerank")
WORKERS_EACH = 4
QUIET_STEP = 1800.0
HEARD_SECONDS = 120.0
"""Of a quiet half hour only the end is told and looked at."""
TOLD_WITHIN = timedelta(minutes=20)
KILLED_IN = 0.05
"""Of all looks of a collector; it is killed anywhere within the look, and another starts in its place."""


@dataclass
class Incident:
    """`rules`: whose alert may tell of it. `endpoint` empty: the tenant as a whole."""

    kind: str
    rules: tuple[str, ...]
    endpoint: str
    at: datetime


@dataclass
class Told:
    """What a month came to."""

    days: float
    incidents: int = 0
    kills: int = 0
    notices: int = 0  # openings and escalations; a word given twice, with the same id, once
    repeated: int = 0  # words given twice
    missed: list[str] = field(default_factory=list)
    unrecovered: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)


@dataclass
class OnCall:
    """The fleet and what happens to it."""

    world: World
    step: float
    fleet: list[Live] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    kills: int = 0
    made: int = 0

    def hire(self, endpoint: str) -> Live:
        """Another worker."""
        self.made += 1
        random = self.world.random
        made = Live(f"{endpoint}-{self.made}", endpoint, boot=hex_id(random, 16))
        made.phase = random.uniform(0, HEARTBEAT_SECONDS)
        self.fleet.append(made)
        return made

    def of(self, endpoint: str) -> list[Live]:
        return [worker for worker in self.fleet if worker.endpoint == endpoint]

    def replace(self, worker: Live) -> None:
        """It is gone, and another comes."""
        self.fleet.remove(worker)
        self.hire(worker.endpoint)

    def begin(self, kind: str, rules: tuple[str, ...], endpoint: str) -> None:
        self.incidents.append(Incident(kind, rules, endpoint, self.world.now))

    async def live(self, seconds: float) -> None:
        """Time in which everything is looked at, and collectors are killed."""
        for _ in range(round(seconds / self.step)):
            await self._kill_one()
            await live(self.world, self.fleet, self.step, self.step)

    async def quiet(self, until: datetime) -> None:
        """A long time in which nothing happens."""
        while self.world.now < until:
            ahead = min(QUIET_STEP, (until - self.world.now).total_seconds())
            heard = self.world.now + timedelta(seconds=max(ahead - HEARD_SECONDS, 0))
            for worker in self.fleet:
                self.world.tell(*worker.lives(self.world.random, heard, self.world.now + timedelta(seconds=ahead)))
            await self._kill_one()
            await self.world.step(ahead)

    async def _kill_one(self) -> None:
        random = self.world.random
        if random.random() > KILLED_IN * len(self.world.collectors):
            return
        self.kills += 1
        place = random.randrange(len(self.world.collectors))
        looking = asyncio.create_task(self.world.look(self.world.collectors[place]))
        await asyncio.sleep(random.uniform(0, 0.1))  # of real time: anywhere within the look
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        self.world.collectors[place] = self.world.collector()


# ----------------------------------------------------------------------------------------------------------- incidents

HTML = {
    Key.CHANNEL_VIOLATION: "content_type",
    Key.HTTP_STATUS: 200,
    Key.HTTP_CONTENT_TYPE: ["text/html"],
    Key.CHANNEL_STATE: "violating",
}


async def _channel_dies(call: OnCall, endpoint: str, *, workers: int = WORKERS_EACH) -> None:
    call.begin("stop channel dead", ("DeadStopChannel",), endpoint)
    some, world = call.of(endpoint)[:workers], call.world
    for worker in some:
        worker.reports_well = False
        first = {**HTML, Key.CHANNEL_POLLS: 1, Key.CHANNEL_LAST_OK_AGE_SECONDS: 1.0}
        world.tell(worker.span(world.now, SpanName.STOP_CHANNEL, told=first, late=1.0))
        second = {**HTML, Key.CHANNEL_POLLS: 30, Key.CHANNEL_LAST_OK_AGE_SECONDS: 31.0}
        world.tell(worker.span(world.now + timedelta(seconds=30), SpanName.STOP_CHANNEL, told=second, late=1.0))
    await call.live(300)
    for worker in some:
        worker.reports_well = True
        for after in (1, 2):
            told = {Key.CHANNEL_STATE: "ok", Key.CHANNEL_POLLS: 1, Key.CHANNEL_FAILURES: 0}
            at = world.now + timedelta(seconds=after)
            world.tell(worker.span(at, SpanName.STOP_CHANNEL, told=told, late=1.0))
    await call.live(180)


async def _one_channel_dies(call: OnCall, endpoint: str) -> None:
    await _channel_dies(call, endpoint, workers=1)


async def _stranded(call: OnCall, endpoint: str, kind: str) -> None:
    call.begin(kind, ("StrandedClaims",), endpoint)
    worker, world = call.of(endpoint)[0], call.world
    world.tell(*STRANDINGS[kind][0](worker, hex_id(world.random, 16), world.now, world.random))
    call.replace(worker)
    await call.live(240)


async def _killed_with_a_claim(call: OnCall, endpoint: str) -> None:
    await _stranded(call, endpoint, "killed with the claim")


async def _falls_silent_with_a_claim(call: OnCall, endpoint: str) -> None:
    await _stranded(call, endpoint, "falls silent")


async def _crash_loop(call: OnCall, endpoint: str) -> None:
    call.begin("crash loop", ("CrashLoop",), endpoint)
    for _ in range(3):
        worker = Worker(f"{endpoint}-again", endpoint, boot=hex_id(call.world.random, 16))
        call.world.tell(worker.boot_started(call.world.now), worker.death(call.world.now + timedelta(seconds=20)))
        await call.live(60)
    await call.live(120)


async def _workers_die(call: OnCall, endpoint: str) -> None:
    call.begin("workers killed in mid-request", ("WorkersDying", "NewFailureGroup"), endpoint)
    world = call.world
    for worker in call.of(endpoint)[:3]:
        job = hex_id(world.random, 16)
        run = {Key.SPAN_ID: hex_id(world.random, 8)}
        dead = {Key.DEATH_SIGNAL: "SIGKILL", Key.DEATH_JOBS_IN_HAND: [job]}
        world.tell(
            worker.span(world.now, SpanName.JOB_CLAIMED, job=job, late=1.0),
            worker.span(world.now, SpanName.JOB_RUN + STARTED_SUFFIX, job=job, late=1.0, told=run),
            worker.span(world.now + timedelta(seconds=9), SpanName.DEATH, status="error", late=1.0, told=dead),
        )
        call.replace(worker)
        await call.live(60)
    await call.live(60)


async def _requests_fail(call: OnCall, endpoint: str) -> None:
    call.begin("requests fail", ("FailureRate", "NewFailureGroup"), endpoint)
    world, number = call.world, len(call.incidents)
    for _ in range(4):
        for worker in call.of(endpoint)[:3]:
            job, at = hex_id(world.random, 16), world.now
            delivered = {Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True}
            run = {Key.SPAN_ID: hex_id(world.random, 8)}
            failed = {Key.ERROR_TYPE: f"Broken{number}Error"}
            world.tell(
                worker.span(at, SpanName.JOB_CLAIMED, job=job, late=1.0),
                worker.span(at, SpanName.JOB_RUN + STARTED_SUFFIX, job=job, late=1.0, told=run),
                worker.span(
                    at + timedelta(seconds=2), SpanName.JOB_RUN, job=job, status="error", late=1.0, told=failed
                ),
                worker.span(at + timedelta(seconds=2), SpanName.JOB_DELIVER, job=job, late=1.0, told=delivered),
            )
        await call.live(60)
    await call.live(120)


async def _network_goes_away(call: OnCall, endpoint: str) -> None:
    call.begin("network away for 6 min", ("TelemetryLost",), "")
    gap = Gap("cut", call.world.now, call.world.now + timedelta(minutes=6))
    for worker in call.fleet:
        worker.gaps = [gap]
    await call.live(600)


async def _store_goes_away(call: OnCall, endpoint: str) -> None:
    call.begin("store away for 5 min", ("TelemetryLost",), "")
    call.world.store_is_away = True
    await call.live(300)
    call.world.store_is_away = False
    await call.live(240)


Happens = Callable[[OnCall, str], Awaitable[None]]
HAPPENS: tuple[Happens, ...] = (
    _channel_dies,
    _killed_with_a_claim,
    _requests_fail,
    _crash_loop,
    _one_channel_dies,
    _network_goes_away,
    _workers_die,
    _falls_silent_with_a_claim,
    _store_goes_away,
)


async def month(world: World, *, days: float, count: int, step: float = 15.0) -> Told:
    """So many incidents over so many days, each kind in its turn and each endpoint in its own."""
    call = OnCall(world, step)
    for endpoint in ENDPOINTS:
        for _ in range(WORKERS_EACH):
            call.hire(endpoint)
    world.collectors = [world.collector(), world.collector()]
    await live(world, call.fleet, SETTLED, step)
    begin, pause = world.now, timedelta(days=days) / count
    for number in range(count):
        await call.quiet(begin + pause * (number + world.random.uniform(0.1, 0.6)))
        await HAPPENS[number % len(HAPPENS)](call, ENDPOINTS[number % len(ENDPOINTS)])
        world.said(f"{number + 1}: {call.incidents[-1].kind}, {len(world.kept.notices)} notices, {call.kills} kills")
    await call.quiet(world.now + timedelta(hours=3))
    return _matched(call, days)


def _matched(call: OnCall, days: float) -> Told:
    """Each incident with the words about it."""
    told = Told(days=days, incidents=len(call.incidents), kills=call.kills)
    first: dict[str, tuple[datetime, Notice]] = {}
    for at, notice in call.world.kept.notices:
        told.repeated += notice.id in first
        first.setdefault(notice.id, (at, notice))
    opened = [(at, one) for at, one in first.values() if one.kind != "resolved"]
    ended = {(one.dedup_key, one.opened_at) for _, one in first.values() if one.kind == "resolved"}
    told.notices = len(opened)
    for incident in call.incidents:
        about = [(at, one) for at, one in opened if _is_about(one, at, incident)]
        if not about:
            told.missed.append(f"missed: {incident.kind} of {incident.endpoint} at {incident.at:%d %H:%M}")
        opened = [pair for pair in opened if pair not in about]
        told.unrecovered += [
            f"no recovery: {one.title}" for _, one in about if (one.dedup_key, one.opened_at) not in ended
        ]
        told.surplus += [f"one more: {one.title}" for _, one in about[1:]]
    told.surplus += [f"about nothing: {at:%d %H:%M} {one.title}" for at, one in opened]
    return told


def _is_about(notice: Notice, at: datetime, incident: Incident) -> bool:
    is_time = timedelta() <= at - incident.at <= TOLD_WITHIN
    return is_time and notice.rule in incident.rules and (notice.endpoint_id or "") == incident.endpoint
