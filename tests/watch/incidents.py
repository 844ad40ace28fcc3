"""Three simulations: how soon incidents are found, that a healthy fleet under every kind of trouble alerts nobody, and
that a month of incidents makes one notice each. Tests run them small and seeded, `benchmarks/watch.py` in full."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from fleet import Worker
from simulation import SENDING_SECONDS, Gap, Live, World, hex_id, live
from stop_paths import NO_ADDRESS, PATHS, reports

from collector.queries.stored import ms_of
from collector.rows import SpanRow
from sdk_exporter.contract import HEARTBEAT_SECONDS, STARTED_SUFFIX, Key, SpanName

STEP = 5.0
"""`STALLSCOPE_WATCH_SECONDS` and `STALLSCOPE_DIGEST_SECONDS`: what is found, is found at the next look."""
SETTLED = 90.0
"""Longer than a watcher that has just started holds its judgement."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below this share of them."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.nan


# ------------------------------------------------------------------------------------------------------ how soon


@dataclass(frozen=True)
class Stranded:
    """One request that was claimed and will never run. `at`: when that came to be so, or the worker was last heard."""

    kind: str
    job: str
    at: datetime
    is_told: bool  # by a record of death or shutdown


Told = Callable[[Worker, str, datetime, Random], Iterator[SpanRow]]


def _late(random: Random) -> float:
    """How late a death comes: the recorder tells it at once, now and then at the second or third try."""
    return random.uniform(0.2, SENDING_SECONDS) + random.choice((0.0, 0.0, 0.0, 5.0, 15.0))


def _claimed(worker: Worker, job: str, at: datetime) -> SpanRow:
    return worker.span(at, SpanName.JOB_CLAIMED, job=job, late=0.5)


def _dead(worker: Worker, job: str, at: datetime, random: Random, **how: object) -> SpanRow:
    told = {Key.DEATH_JOBS_IN_HAND: [job], **how}
    return worker.span(at, SpanName.DEATH, status="error", told=told, late=_late(random))


def _killed(worker: Worker, job: str, at: datetime, random: Random) -> Iterator[SpanRow]:
    yield _claimed(worker, job, at - timedelta(seconds=random.uniform(0.1, 20)))
    yield _dead(worker, job, at, random, **{Key.DEATH_SIGNAL: "SIGKILL"})


def _crashed_before_it_was_ready(worker: Worker, job: str, at: datetime, random: Random) -> Iterator[SpanRow]:
    claimed = at - timedelta(seconds=random.uniform(1, 20))
    yield worker.span(claimed, SpanName.BOOT, late=0.5)
    yield worker.span(claimed, SpanName.PRESTART + STARTED_SUFFIX, late=0.5, told={Key.SPAN_ID: f"{1:016x}"})
    yield _claimed(worker, job, claimed)
    yield worker.span(claimed, SpanName.JOB_GATED + STARTED_SUFFIX, job=job, late=0.5, told={Key.SPAN_ID: f"{2:016x}"})
    yield _dead(worker, job, at, random, **{Key.EXIT_CODE: 1})


def _left_while_idle(worker: Worker, job: str, at: datetime, random: Random) -> Iterator[SpanRow]:
    began = at - timedelta(seconds=random.uniform(0.5, 5))
    signal = {Key.SHUTDOWN_SIGNAL: "SIGTERM", Key.SHUTDOWN_JOBS_IN_HAND: []}
    yield worker.span(began, SpanName.SHUTDOWN + STARTED_SUFFIX, late=0.5, told={**signal, Key.SPAN_ID: f"{3:016x}"})
    yield _claimed(worker, job, at)
    yield _dead(worker, job, at + timedelta(seconds=random.uniform(1, 10)), random, **{Key.EXIT_CODE: 0})


def _leaves_and_stays(worker: Worker, job: str, at: datetime, random: Random) -> Iterator[SpanRow]:
    began = at - timedelta(seconds=random.uniform(0.5, 5))
    signal = {Key.SHUTDOWN_SIGNAL: "SIGTERM", Key.SHUTDOWN_JOBS_IN_HAND: []}
    late = _late(random)
    yield worker.span(began, SpanName.SHUTDOWN + STARTED_SUFFIX, late=late, told={**signal, Key.SPAN_ID: f"{3:016x}"})
    yield _claimed(worker, job, at)


def _falls_silent(worker: Worker, job: str, at: datetime, random: Random) -> Iterator[SpanRow]:
    yield _claimed(worker, job, at)


STRANDINGS: dict[str, tuple[Told, bool]] = {
    "killed with the claim": (_killed, True),
    "crashed in prestart": (_crashed_before_it_was_ready, True),
    "left while idle": (_left_while_idle, True),
    "leaves and stays": (_leaves_and_stays, True),
    "falls silent": (_falls_silent, False),
    "never beat": (_falls_silent, False),
}


@dataclass
class Delays:
    """Seconds from each incident to when it was found, by kind."""

    told: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    possible: list[float] = field(default_factory=list)
    likely: list[float] = field(default_factory=list)
    alerts: list[float] = field(default_factory=list)
    told_alerts: list[float] = field(default_factory=list)
    channels: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def found(self) -> list[float]:
        """Of all requests whose end a record told."""
        return [seconds for some in self.told.values() for seconds in some]


async def detection(world: World, *, stranded: int, channels: int, spread: float) -> Delays:
    """That many stranded requests and broken stop channels over `spread` seconds, among workers that are well."""
    healthy = [
        Live(f"well-{n}", f"well-{n % 5}", phase=world.random.uniform(0, HEARTBEAT_SECONDS))
        for n in range(max(20, (stranded + channels) // 2))
    ]
    world.collectors = [world.collector()]
    await live(world, healthy, SETTLED, 15.0)
    strandings = [_strand(world, number, spread) for number in range(stranded)]
    broken = [_break(world, number, spread) for number in range(channels)]
    delays, seen = Delays(), set[tuple[str, str]]()
    until = world.now + timedelta(seconds=spread + 200)
    while world.now < until:
        await live(world, healthy, STEP, STEP)
        await _note_stranded(world, strandings, delays, seen)
        await _note_channels(world, broken, delays, seen)
    return delays


def _strand(world: World, number: int, spread: float) -> Stranded:
    kind = list(STRANDINGS)[number % len(STRANDINGS)]
    tell, is_told = STRANDINGS[kind]
    at = world.now + timedelta(seconds=60 + world.random.uniform(0, spread))
    worker, job = Worker(f"stranding-{number}", f"strands-{number}"), f"stranded-{number}"
    if kind != "never beat":
        last = at + timedelta(seconds=600 if kind == "leaves and stays" else 0)
        beat = at - timedelta(seconds=world.random.uniform(45, 60))
        while beat < last:
            world.tell(worker.span(beat, SpanName.HEARTBEAT, late=0.5, told={Key.HEARTBEAT_JOBS: []}))
            beat += timedelta(seconds=HEARTBEAT_SECONDS)
    world.tell(*tell(worker, job, at, world.random))
    return Stranded(kind, job, at, is_told)


def _break(world: World, number: int, spread: float) -> tuple[str, str, datetime]:
    """A worker whose stop channel breaks. Path, endpoint, and when."""
    name = [*PATHS, NO_ADDRESS][number % (len(PATHS) + 1)]
    began = world.now + timedelta(seconds=world.random.uniform(0, spread))
    breaks_at = 60 + world.random.uniform(0, 30)
    worker = Worker(f"breaking-{number}", f"breaks-{number}")
    for seconds, attributes in reports(PATHS.get(name), breaks_at, breaks_at + 120):
        late = world.random.uniform(0.1, SENDING_SECONDS)
        world.tell(worker.span(began + timedelta(seconds=seconds), SpanName.STOP_CHANNEL, late=late, told=attributes))
    beat = began
    while beat < began + timedelta(seconds=breaks_at + 120):
        world.tell(worker.span(beat, SpanName.HEARTBEAT, late=0.5, told={Key.HEARTBEAT_JOBS: []}))
        beat += timedelta(seconds=HEARTBEAT_SECONDS)
    return name, worker.endpoint, began + timedelta(seconds=breaks_at)


async def _note_stranded(
    world: World, all_of_them: Sequence[Stranded], delays: Delays, seen: set[tuple[str, str]]
) -> None:
    rows = await world.db.query("SELECT job_id, confidence FROM jobs FINAL WHERE code = 'stranded_claim'")
    sure = {str(row["job_id"]): str(row["confidence"]) for row in rows}
    alerts = await world.db.query("SELECT DISTINCT endpoint_id FROM findings WHERE rule = 'StrandedClaims'")
    alerted = {str(row["endpoint_id"]).replace("strands", "stranded") for row in alerts}
    for one in all_of_them:
        seconds, confidence = (world.now - one.at).total_seconds(), sure.get(one.job, "")
        is_sure = confidence in ("certain", "likely")
        if one.is_told and is_sure and _new(seen, "found", one.job):
            delays.told[one.kind].append(seconds)
        if not one.is_told and confidence == "possible" and _new(seen, "possible", one.job):
            delays.possible.append(seconds)
        if not one.is_told and is_sure and _new(seen, "likely", one.job):
            delays.likely.append(seconds)
        if one.job in alerted and _new(seen, "alert", one.job):
            (delays.told_alerts if one.is_told else delays.alerts).append(seconds)


async def _note_channels(
    world: World, broken: Sequence[tuple[str, str, datetime]], delays: Delays, seen: set[tuple[str, str]]
) -> None:
    rows = await world.db.query(
        "SELECT DISTINCT endpoint_id FROM findings WHERE rule = ''"
        " AND code IN ('stop_channel_dead', 'stop_channel_spinning', 'stop_channel_disabled')"
    )
    found = {str(row["endpoint_id"]) for row in rows}
    for path, endpoint, at in broken:
        if endpoint in found and _new(seen, "channel", endpoint):
            delays.channels[path].append((world.now - at).total_seconds())


def _new(seen: set[tuple[str, str]], what: str, which: str) -> bool:
    is_new = (what, which) not in seen
    seen.add((what, which))
    return is_new


# ------------------------------------------------------------------------------------------------- no false alarm


HEALTHY_CODES = ("completed", "running", "queued")


@dataclass
class Calm:
    """What a fleet that is well, whatever happens around it, made of alarms. All but the counts should be empty."""

    worker_hours: float = 0.0
    jobs: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    notices: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)


TRUE_WORDS = ("clock_skewed", "telemetry_lost")
"""Findings that are true of such a fleet: a wrong clock, and a time in which nobody was heard."""


async def healthy(world: World, *, workers: int, hours: float, step: float, jobs_an_hour: float) -> Calm:
    """A fleet over that time; every twelve minutes another trouble meets some of it, or the collector, or the store."""
    fleet = [_well(world, number) for number in range(workers)]
    world.collectors = [world.collector()]
    calm = Calm(worker_hours=workers * hours)
    await live(world, fleet, SETTLED, step, jobs_an_hour)
    for number in range(round(hours * 5)):
        trouble = list(TROUBLES)[number % len(TROUBLES)]
        calm.troubles[trouble] += 1
        await TROUBLES[trouble](world, fleet, step, jobs_an_hour)
        await _note_alarms(world, calm)
        world.said(f"{number + 1}: {trouble}, {len(calm.verdicts)} wrong, {len(world.kept.notices)} told")
        for worker in fleet:
            worker.gaps.clear()
    calm.jobs = (await world.db.query("SELECT uniqExact(job_id) AS n FROM jobs"))[0]["n"]
    calm.notices += [
        f"{notice.rule}: {notice.sentence}" for _, notice in world.kept.notices if not _is_true(notice.group)
    ]
    return calm


def _is_true(group: str) -> bool:
    return group == "store"  # the watcher was blind, and said so


def _well(world: World, number: int) -> Live:
    """One in ten has a clock that is ten minutes ahead or behind."""
    skew = world.random.choice((600.0, -600.0)) if number % 10 == 0 else 0.0
    phase = world.random.uniform(0, HEARTBEAT_SECONDS)
    boot = hex_id(world.random, 16)
    return Live(f"worker-{number}", f"endpoint-{number % 25}", skew=skew, phase=phase, boot=boot)


ROUND_SECONDS = 720.0


async def _meets(world: World, fleet: Sequence[Live], step: float, jobs: float, *, share: float, gap: Gap) -> None:
    for worker in world.random.sample(list(fleet), max(1, round(share * len(fleet)))):
        worker.gaps.append(gap)
    await live(world, fleet, ROUND_SECONDS, step, jobs)


def _gap(world: World, kind: str, seconds: float) -> Gap:
    start = world.now + timedelta(seconds=60 + world.random.uniform(0, 15))
    return Gap(kind, start, start + timedelta(seconds=seconds))


async def _held(world: World, fleet: Sequence[Live], step: float, jobs: float) -> None:
    await _meets(world, fleet, step, jobs, share=0.2, gap=_gap(world, "held", 30))


async def _cut(world: World, fleet: Sequence[Live], step: float, jobs: float) -> None:
    await _meets(world, fleet, step, jobs, share=world.random.choice((0.05, 0.5, 1.0)), gap=_gap(world, "cut", 60))


async def _paused(world: World, fleet: Sequence[Live], step: float, jobs: float) -> None:
    seconds = world.random.uniform(20, 100)  # with the beat before it less than 120 s, when silence is worth an alert
    await _meets(world, fleet, step, jobs, share=0.05, gap=_gap(world, "paused", seconds))


async def _collector_restarts(world: World, fleet: Sequence[Live], step: float, jobs: float) -> None:
    await live(world, fleet, 60, step, jobs)
    world.collectors, world.ingest_is_away = [], True
    await live(world, fleet, 20, step, jobs)
    world.collectors, world.ingest_is_away = [world.collector()], False
    await live(world, fleet, ROUND_SECONDS - 80, step, jobs)


async def _store_goes_away(world: World, fleet: Sequence[Live], step: float, jobs: float) -> None:
    await live(world, fleet, 60, step, jobs)
    world.store_is_away = True
    await live(world, fleet, 300, step, jobs)
    world.store_is_away = False
    await live(world, fleet, ROUND_SECONDS - 360, step, jobs)


async def _spools_replay(world: World, fleet: Sequence[Live], step: float, jobs: float) -> None:
    """Earlier boots of some workers ran, worked and left an hour ago; only now does anybody hear of it."""
    for worker in world.random.sample(list(fleet), max(1, len(fleet) // 20)):
        world.tell(*_earlier_boot(world, worker))
    await live(world, fleet, ROUND_SECONDS, step, jobs)


def _earlier_boot(world: World, worker: Live) -> Iterator[SpanRow]:
    earlier = Live(worker.name, worker.endpoint, skew=worker.skew, phase=worker.phase)
    began = world.now - timedelta(hours=1)
    ended = began + timedelta(minutes=20)
    spans = [
        earlier.boot_started(began),
        earlier.span(began, SpanName.BOOT, status="ok"),
        *earlier.lives(world.random, began, ended, jobs_an_hour=30.0),
        *earlier.lives(world.random, ended, ended + timedelta(seconds=300)),  # what it has in hand comes to its end
        earlier.span(ended + timedelta(seconds=300), SpanName.SHUTDOWN + STARTED_SUFFIX),
        earlier.span(ended + timedelta(seconds=301), SpanName.DEATH, status="ok", told={Key.EXIT_CODE: 0}),
    ]
    spans.sort(key=lambda span: span.start_ns)
    for place, span in enumerate(spans):  # a backlog comes in its order, in pieces
        yield replace(span, arrived_ms=ms_of(world.now) + 60_000 + 40_000 * place // len(spans))


async def _scales(world: World, fleet: list[Live], step: float, jobs: float) -> None:
    """Idle workers leave, and others come in their place."""
    for place in world.random.sample(range(len(fleet)), max(1, len(fleet) // 20)):
        leaving = fleet[place]
        if leaving.busy is not None:
            continue
        at = world.now + timedelta(seconds=1)
        signal = {Key.SHUTDOWN_SIGNAL: "SIGTERM", Key.SHUTDOWN_JOBS_IN_HAND: []}
        world.tell(
            leaving.span(at, SpanName.SHUTDOWN + STARTED_SUFFIX, late=1.0, told=signal),
            leaving.span(at + timedelta(seconds=9), SpanName.DEATH, status="ok", late=1.0, told={Key.EXIT_CODE: 0}),
        )
        fleet[place] = Live(f"{leaving.name}-n", leaving.endpoint, skew=leaving.skew, phase=leaving.phase)
        world.tell(fleet[place].boot_started(at), fleet[place].span(at, SpanName.BOOT, status="ok"))
    await live(world, fleet, ROUND_SECONDS, step, jobs)


Trouble = Callable[[World, list[Live], float, float], Awaitable[None]]
TROUBLES: dict[str, Trouble] = {
    "threads held for 30 s": _held,
    "network away for 60 s": _cut,
    "paused and resumed": _paused,
    "collector restarted": _collector_restarts,
    "store away for 5 min": _store_goes_away,
    "spools replayed an hour late": _spools_replay,
    "scaled down and up": _scales,
}


async def _note_alarms(world: World, calm: Calm) -> None:
    findings = await world.db.query(
        "SELECT DISTINCT splitByChar(':', key)[1] AS code, sentence FROM finding_history"
        " WHERE rule = '' AND code NOT IN {true:Array(String)} LIMIT 20",
        {"true": list(TRUE_WORDS)},
    )
    calm.findings = [f"{row['code']}: {row['sentence']}" for row in findings]
    wrong = await world.db.query(
        "SELECT code, confidence, sentence FROM jobs WHERE confidence IN ('certain', 'likely')"
        " AND code NOT IN {good:Array(String)} LIMIT 20",
        {"good": list(HEALTHY_CODES)},
    )
    calm.verdicts = [f"{row['code']} ({row['confidence']}): {row['sentence']}" for row in wrong]
