"""Endpoints on which a request waits, as the platform, its workers and its caller tell them. Varied by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import histories as h

from collector.rows import SpanRow
from sdk_exporter.contract import Key, SpanName

COUNTS = {
    "running": Key.PLATFORM_WORKERS_RUNNING,
    "idle": Key.PLATFORM_WORKERS_IDLE,
    "initializing": Key.PLATFORM_WORKERS_INITIALIZING,
    "throttled": Key.PLATFORM_WORKERS_THROTTLED,
    "unhealthy": Key.PLATFORM_WORKERS_UNHEALTHY,
}
TAIL = (
    "loading\nTraceback (most recent call last):\n"
    '  File "/app/handler.py", line 3, in <module>\n    import flash_attn\n'
    "ModuleNotFoundError: No module named 'flash_attn'\n"
)
NOISE = ("create 20GB volume", "create container registry.test/painter:1", "pulling image: 40 %", "image is up to date")


def answer(at: float, *, most: int = 3, queued: int = 1, jobs: int = 0, **more: Any) -> SpanRow:
    """`platform.endpoint`; counts by status, and other attributes by key."""
    counts = {name: more.pop(name, 0) for name in COUNTS}
    told = {COUNTS[name]: count for name, count in counts.items()}
    told |= {Key.PLATFORM_WORKERS: sum(counts.values()), Key.PLATFORM_WORKERS_MAX: most}
    told |= {Key.PLATFORM_JOBS_QUEUED: queued, Key.PLATFORM_JOBS_RUNNING: jobs, **more.pop("attributes", {})}
    assert not more, more
    return h.span(SpanName.PLATFORM_ENDPOINT, at, job="", worker="", boot="", attributes=told)


def answers(since: float, until: float, **more: Any) -> list[SpanRow]:
    """The same told once a minute, and last a moment before `until`."""
    times = [*(since + 60.0 * n for n in range(int((until - since) // 60) + 1)), until - 1]
    return [answer(at, **more) for at in times]


def gap(since: float, until: float, route: str = "workers") -> SpanRow:
    """A time in which the platform could not be asked."""
    told = {Key.ERROR_TYPE: "http_500", Key.PLATFORM_ROUTE: route}
    more: dict[str, Any] = {"status": "error", "message": f"{route}: HTTP 500", "attributes": told}
    return h.span(SpanName.PLATFORM_ENDPOINT, since, until, job="", worker="", boot="", **more)


def shown(at: float, worker: str, status: str) -> SpanRow:
    """`platform.worker`."""
    told = {Key.PLATFORM_STATUS: status}
    return h.span(SpanName.PLATFORM_WORKER, at, job="", worker=worker, boot="", attributes=told)


def line(at: float, worker: str, text: str) -> SpanRow:
    """`platform.log`."""
    return h.span(SpanName.PLATFORM_LOG, at, job="", worker=worker, boot="", attributes={Key.PLATFORM_LINE: text})


def take(at: float, worker: str, **told: Any) -> SpanRow:
    """`job_take`, a report of the channel that asks for requests."""
    return h.worker_span(SpanName.JOB_TAKE, at, worker=worker, boot=boot_of(worker), attributes=told)


def boot_of(worker: str) -> str:
    return h.identifier(worker) * 2


def serving(worker: str, began: float, now: float, *, jobs: Sequence[str] = ()) -> list[SpanRow]:
    """A worker that came through its start and is there."""
    place: dict[str, Any] = {"worker": worker, "boot": boot_of(worker)}
    beat = h.worker_span(SpanName.HEARTBEAT, now - 3, attributes={Key.HEARTBEAT_JOBS: list(jobs)}, **place)
    return [*h.boot(began, began + 5, **place), beat]


Sources = dict[str, list[SpanRow]]
"""Spans by who told them: caller, worker, platform."""


def _waited(dice: random.Random, least: float, most: float) -> tuple[float, Sources]:
    waited = dice.uniform(least, most)
    noise = [line(dice.uniform(0, waited), "w1", dice.choice(NOISE)) for _ in range(dice.randrange(4))]
    return waited, {"caller": [h.request(0)], "worker": [], "platform": noise}


def no_capacity(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 400, 3_000)
    told["platform"] += answers(dice.uniform(-100, 30), now, queued=dice.randint(1, 9))
    return now, told


def throttled(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 120, 3_000)
    told["platform"] += answers(dice.uniform(-100, 30), now, throttled=dice.randint(1, 9), queued=dice.randint(1, 9))
    return now, told


def scaled_to_zero(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 10, 3_000)
    told["platform"] += answers(dice.uniform(-100, 0), now, most=0)
    return now, told


def paused(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 10, 3_000)
    told["platform"] += answers(dice.uniform(-100, 0), now, most=0, attributes={Key.PLATFORM_PAUSED_BY: "rel-7"})
    return now, told


def crash_loop(dice: random.Random) -> tuple[float, Sources]:
    """Seen by the platform as starts of one container, by the recorder as deaths, or by both."""
    now, told = _waited(dice, 120, 550)
    starts = sorted(dice.uniform(1, now - 5) for _ in range(dice.randint(3, 8)))
    status = dice.choice(["RUNNING", "UNHEALTHY", "THROTTLED", "INITIALIZING"])  # its word is not to be trusted
    told["platform"] += [shown(0, "w1", status), *answers(-50, now, **{status.lower(): 1})]
    for number, at in enumerate(starts):
        boot = h.identifier("boot", number) * 2
        told["platform"] += [line(at, "w1", "start container for registry.test/painter:1: begin")]
        told["worker"] += h.boot(at, worker="w1", boot=boot)
        told["worker"] += [h.death(at + 0.5, code=1, tail=TAIL, worker="w1", boot=boot)]
    return now, told


def no_poller(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 120, 3_000)
    idle = dice.randint(1, 4)
    told["platform"] += [shown(-90, f"w{n}", "IDLE") for n in range(idle)]
    told["platform"] += answers(dice.uniform(-100, 30), now, idle=idle)
    for number in range(idle):
        told["worker"] += serving(f"w{number}", -90, now)
        state = {Key.CHANNEL_STATE: dice.choice(["failing", "disabled"])}
        told["worker"] += [take(now - 10, f"w{number}", **state)]
    return now, told


def funnelled(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 120, 3_000)
    held, idle = [f"other-{n}" for n in range(dice.randint(2, 6))], dice.randint(1, 4)
    told["platform"] += answers(dice.uniform(-100, 30), now, idle=idle, running=1, jobs=len(held))
    told["worker"] += serving("busy", -200, now, jobs=held)
    for number in range(idle):
        told["worker"] += serving(f"w{number}", -90, now)
    return now, told


def bad_payload(dice: random.Random) -> tuple[float, Sources]:
    now, told = _waited(dice, 120, 3_000)
    told["platform"] += answers(dice.uniform(-100, 30), now, idle=1)
    told["worker"] += serving("w0", -90, now)
    for _ in range(dice.randint(2, 4)):
        told["worker"] += [take(dice.uniform(1, now), "w0", **{Key.CHANNEL_VIOLATION: "parse"})]
    return now, told


QUEUES: dict[str, Callable[[random.Random], tuple[float, Sources]]] = {
    made.__name__: made
    for made in (no_capacity, throttled, scaled_to_zero, paused, crash_loop, no_poller, funnelled, bad_payload)
}
