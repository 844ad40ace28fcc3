"""Every scenario of the demo, by real workers, against both stores: each must get the verdict that really happened.

All scenarios of one store are played once, several at a time, and then looked at one by one. Rare ones are played on
the embedded store only: they add to the worker's side and to the verdicts, which know no store.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from parts import server_url

from collector.demo.platform import running_platform
from collector.demo.scenarios import SCENARIOS, Scenario
from collector.demo.show import Outcome, play_all, running_server, table

USUAL = tuple(scenario for scenario in SCENARIOS if not scenario.slow)
PLAYED = {"embedded": SCENARIOS, "server": USUAL}
CASES = [(store, scenario.name) for store, scenarios in PLAYED.items() for scenario in scenarios]


Outcomes = dict[str, Outcome]


@pytest.fixture(scope="module")
def played() -> dict[str, Outcomes]:
    """What came of the scenarios, by store and name; the first test of a store plays all of them."""
    return {}


def outcomes_on(store: str, played: dict[str, Outcomes], request: pytest.FixtureRequest, directory: Path) -> Outcomes:
    if store not in played:
        if store == "server":
            url = server_url(request.getfixturevalue("clickhouse"))
        else:
            pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
            url = f"chdb://{directory / 'store'}"
        played[store] = {outcome.scenario.name: outcome for outcome in asyncio.run(_play(url, PLAYED[store]))}
    return played[store]


async def _play(database_url: str, scenarios: tuple[Scenario, ...]) -> list[Outcome]:
    async with running_server(database_url) as server, running_platform() as platform:
        return await play_all(scenarios, platform, server)


@pytest.mark.timeout(900)  # the first one waits for all to be played
@pytest.mark.parametrize(("store", "name"), CASES)
def test_the_verdict_is_what_really_happened(
    store: str, name: str, played: dict[str, Outcomes], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    outcome = outcomes_on(store, played, request, tmp_path)[name]
    assert outcome.problem == "", f"{outcome.verdict}: {outcome.evidence}"


def test_at_least_three_scenarios_run_as_shipped() -> None:
    """Handler logs are off unless somebody turned them on: the verdicts must do without."""
    assert sum(not scenario.handler_logs for scenario in USUAL) >= 3


def test_names_are_unique_and_each_scenario_tells_its_story() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    assert len(USUAL) >= 14
    assert all(scenario.story.endswith(".") for scenario in SCENARIOS)


async def test_a_scenario_that_cannot_be_played_is_a_row_and_not_the_end(tmp_path: Path) -> None:
    async def never_happens(stage: object) -> list[str]:
        raise TimeoutError("waited 60 s for the line 'step 1'")

    broken = Scenario("broken", "Nothing comes.", "completed", "no_failure", never_happens, says="")
    async with running_platform() as platform:
        outcomes = await play_all([broken], platform, "http://127.0.0.1:9")
    assert table(outcomes) == [
        (
            "broken",
            "completed/no_failure",
            "no answer",
            "could not be played: TimeoutError: waited 60 s for the line 'step 1'",
            False,
        )
    ]
