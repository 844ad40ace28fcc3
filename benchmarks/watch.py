"""How soon the watcher finds what is wrong, and what it says of a fleet that is well: `python benchmarks/watch.py`.

Records are replayed over a real store under an accelerated clock: see `tests/watch/incidents.py`. Goals: a stranded
request within 45 s (p99) where a record tells of its worker's end, from silence `possible` at 45 s and an alert at
120 s; a broken stop channel within 60 s on every path; no alarm in 30,000 healthy worker-hours; in 30 days with 50
incidents and two collectors, one killed now and then, at most 1.1 notices an incident, none missed, each recovery told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from pydantic import SecretStr

from collector import migrate
from collector.clickhouse import Database
from collector.settings import Settings

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "watch")]
import incidents  # noqa: E402 - beside the tests, which run the same small and seeded
import month as months  # noqa: E402
from simulation import World  # noqa: E402


async def detection(world: World) -> None:
    """240 stranded requests and 130 broken stop channels."""
    found = await incidents.detection(world, stranded=240, channels=130, spread=1800)
    print(f"stranded, told by a record: {_delays(found.found)}; until the alert {_delays(found.told_alerts)}")
    for kind, seconds in found.told.items():
        print(f"  {kind}: {_delays(seconds)}")
    print(f"stranded, from silence: possible {_delays(found.possible)}; likely {_delays(found.likely)};"
          f" alert {_delays(found.alerts)}, earliest {min(found.alerts, default=0):.0f} s")  # fmt: skip
    for path, seconds in found.channels.items():
        print(f"  stop channel, {path}: {_delays(seconds)}")


def _delays(seconds: list[float]) -> str:
    shares = [incidents.percentile(seconds, share) for share in (0.5, 0.99, 1.0)]
    return f"{len(seconds)} found, p50 {shares[0]:.0f} s, p99 {shares[1]:.0f} s, most {shares[2]:.0f} s"


async def healthy(world: World) -> None:
    """That many workers over that many hours, 30,000 worker-hours in all."""
    calm = await incidents.healthy(world, workers=2000, hours=15, step=30.0, jobs_an_hour=0.3)
    print(f"{calm.worker_hours:,.0f} worker-hours, {world.stored:,} records, {calm.jobs:,} requests;"
          f" {json.dumps(calm.troubles)}")  # fmt: skip
    for what, some in (("notices", calm.notices), ("findings", calm.findings), ("verdicts", calm.verdicts)):
        print(f"false {what}: {len(some)}", *some[:20], sep="\n  ")


async def month(world: World) -> None:
    """30 days with 50 incidents, two collectors."""
    told = await months.month(world, days=30, count=50)
    print(f"{told.days:.0f} days, {told.incidents} incidents, {told.kills} collectors killed: {told.notices} notices"
          f" ({told.notices / told.incidents:.2f} an incident; {told.repeated} words twice), {len(told.missed)} missed,"
          f" {len(told.unrecovered)} recoveries not told")  # fmt: skip
    print(*told.missed, *told.unrecovered, *told.surplus, sep="\n  ")


PARTS: dict[str, Callable[[World], Awaitable[None]]] = {
    "detection": detection,
    "healthy": healthy,
    "month": month,
}


async def run(name: str, seed: int) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(database_url=SecretStr(f"chdb://{directory}/store"), query_seconds=120)
        db = await Database.open(settings)
        await migrate.apply(db, retention_days=settings.retention_days)
        world = World(db, settings, Random(seed), said=lambda words: print(words, file=sys.stderr, flush=True))
        try:
            await PARTS[name](world)
        finally:
            await world.close()
            await db.close()
    print(f"{name}: seed {seed}, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(PARTS), help="which simulation")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(run(given.part, given.seed))


if __name__ == "__main__":
    main()
