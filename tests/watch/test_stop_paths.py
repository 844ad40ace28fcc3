"""Each way in which a stop channel falls silent is told by the worker's exporter as soon as that can be known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stop_paths import GOOD, NO_ADDRESS, PATHS, Path, Ticking, reports

from sdk_exporter.contract import Key


@pytest.mark.parametrize("name", [*PATHS, NO_ADDRESS])
def test_a_silent_path_is_told_within_a_minute(name: str) -> None:
    """A channel that breaks at 100 s: the poll that is open then is still answered well, 10 s later."""
    told = reports(PATHS.get(name), 100, 300)
    bad = [(at, report) for at, report in told if report[Key.CHANNEL_STATE] != "ok"]
    dead = [
        at
        for at, report in bad
        if report[Key.CHANNEL_STATE] in ("spinning", "disabled")
        or Key.CHANNEL_UNANSWERED_SECONDS in report
        or report[Key.CHANNEL_LAST_OK_AGE_SECONDS] >= 29
    ]
    assert 100 <= bad[0][0] <= 142
    assert dead[0] <= 142
    assert len(told) <= 9, "a report a minute, and one at each change"


def test_polls_that_are_held_for_their_whole_bound_are_healthy() -> None:
    held = Path(90.0, GOOD.status, GOOD.content_type, is_empty=True)
    told = reports(held, 0, 1800)
    assert {report.get(Key.CHANNEL_STATE, "none yet") for _, report in told} == {"none yet", "ok"}


@pytest.fixture
def ticking() -> Iterator[Ticking]:
    with Ticking.with_a_good_poll() as made:
        yield made


def test_a_process_that_was_paused_owes_no_answer(ticking: Ticking) -> None:
    ticking.clock.now += 300  # nobody looked meanwhile
    ticking.look(29)
    assert ticking.states == ["ok"] * 2
    ticking.look(2)
    assert ticking.told[-1][Key.CHANNEL_POLLING] is False


def test_the_second_good_answer_is_told_after_nobody_polled(ticking: Ticking) -> None:
    ticking.look(31)
    for _ in range(3):
        ticking.poll_well()
    assert ticking.states == ["ok", "failing", "ok", "ok"]
    assert Key.CHANNEL_UNANSWERED_SECONDS not in ticking.told[-1]
