"""The simulations of `benchmarks/watch.py`, small and seeded: what is wrong is found in time, what is well alerts
nobody, and an incident is one notice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest
from incidents import STRANDINGS, detection, healthy, percentile
from month import month
from simulation import World
from stop_paths import NO_ADDRESS, PATHS

from collector.clickhouse import Database
from collector.settings import Settings

pytestmark = pytest.mark.timeout(900)  # much is done, and the machine may be busy


@pytest.fixture
async def world(db: Database, settings: Settings) -> AsyncIterator[World]:
    made = World(db, settings, Random(20260101))  # noqa: S311  no secret
    yield made
    await made.close()


async def test_what_is_wrong_is_found_in_time(world: World) -> None:
    found = await detection(world, stranded=len(STRANDINGS), channels=len(PATHS) + 1, spread=30)
    told = sum(is_told for _, is_told in STRANDINGS.values())
    assert len(found.found) == len(found.told_alerts) == told
    assert max(found.found) <= percentile(found.told_alerts, 1.0) <= 45
    silent = len(STRANDINGS) - told
    assert len(found.possible) == len(found.likely) == len(found.alerts) == silent
    assert all(45 <= seconds <= 55 for seconds in found.possible)
    assert all(120 <= seconds <= 130 for seconds in (*found.likely, *found.alerts)), "and no alert before"
    assert set(found.channels) == {*PATHS, NO_ADDRESS}
    assert max(seconds for some in found.channels.values() for seconds in some) <= 60


async def test_a_fleet_that_is_well_alerts_nobody_whatever_happens_around_it(world: World) -> None:
    calm = await healthy(world, workers=25, hours=1.4, step=120.0, jobs_an_hour=6.0)
    assert calm.jobs > 50
    assert set(calm.troubles.values()) == {1}
    assert (calm.notices, calm.findings, calm.verdicts) == ([], [], [])


async def test_an_incident_is_one_notice_and_one_recovery(world: World) -> None:
    told = await month(world, days=0.5, count=4, step=30.0)
    assert told.incidents == told.notices == 4
    assert (told.missed, told.unrecovered, told.surplus) == ([], [], [])
