"""The table of observations and the scenarios that play them are the same list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.demo.scenarios import SCENARIOS
from collector.diagnosis.verdicts import VERDICTS

PAGE = Path(__file__).parents[2] / "docs" / "observations.md"
ROW = re.compile(r"^\| (P?\d+) \| (.+) \| `([a-z0-9-]+)` \| `([a-z_]+)`(?:, finding `([a-z_]+)`)? \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
EXPECTED = {scenario.name: scenario.verdict for scenario in SCENARIOS}
NEVER_PLAYED = {
    "cold_start_slow": "needs five minutes of waiting",
    "expired": "needs a queue that runs into its time limit; held by the tests of the verdicts",
    "pending_returned": "is told by the caller's own library; held by the tests of the caller",
    "queue_stalled": "needs a quarter of an hour of waiting",
    "queued": "is where every request begins",
    "result_expired": "needs half an hour of waiting",
    "running": "is where every request goes through",
    "unknown": "is what remains where nothing was told",
    "worker_replaced": "needs a platform that takes a worker away in the middle of a request",
}


def test_every_observation_has_a_row() -> None:
    numbers = [number for number, *_ in ROWS]
    assert list(dict.fromkeys(numbers)) == [*map(str, range(1, 34)), *(f"P{number}" for number in range(1, 11))]


@pytest.mark.parametrize(("scenario", "verdict"), sorted({(row[2], row[3]) for row in ROWS}))
def test_the_scenario_of_a_row_expects_its_verdict(scenario: str, verdict: str) -> None:
    assert EXPECTED[scenario] == verdict


def test_every_verdict_is_played_but_those_that_say_why_not() -> None:
    assert set(VERDICTS) - set(EXPECTED.values()) == set(NEVER_PLAYED)
