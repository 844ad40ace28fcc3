"""What stands out among failures: found early where it was planted, never more often than promised where it was not."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.diagnosis.standing_out import (
    DIMENSIONS,
    LEVEL,
    QUIET_NS,
    NewIn,
    Returned,
    StandsOut,
    Stretch,
    Tally,
    at_least,
    interval,
    new_in,
    returned,
    stands_out,
)

DAY_NS = QUIET_NS


def tally(failed: int, total: int, first_ns: int = 0, **where: str) -> Tally:
    return Tally({**dict.fromkeys(DIMENSIONS, ""), **where}, failed, total, first_ns)


def requests(seed: int, hosts: int, rate: float, planted: float = 1.0) -> Iterator[tuple[dict[str, str], bool]]:
    """Requests on hosts of equal traffic, without an end. Those on host 1 fail `planted` times as often."""
    dice = random.Random(seed)  # noqa: S311
    while True:
        host = dice.randrange(hosts)
        where = {
            "endpoint": f"ep-{dice.randrange(2)}",
            "host": f"host-{host}",
            "gpu": f"gpu-{host % 3}",
            "driver": f"driver-{host % 2}",
            "image": f"image-{dice.randrange(3)}",
            "release": f"release-{dice.randrange(2)}",
            "region": f"region-{host % 4}",
            "sdk": "1.12.0",
        }
        yield where, dice.random() < rate * (planted if host == 1 else 1.0)


class Counting:
    """Requests counted by what they ran on."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], list[int]] = {}

    def add(self, where: dict[str, str], failed: bool) -> None:
        count = self.counts.setdefault(tuple(where.values()), [0, 0])
        count[0] += failed
        count[1] += 1

    @property
    def tallies(self) -> list[Tally]:
        return [Tally(dict(zip(DIMENSIONS, place, strict=True)), *count) for place, count in self.counts.items()]


@pytest.mark.parametrize(("hosts", "number", "rate"), [(10, 600, 0.05), (30, 1000, 0.02), (5, 300, 0.2)])
def test_nothing_is_found_where_nothing_is(hosts: int, number: int, rate: float) -> None:
    """Of 200 worlds without any difference, at most the promised share has a finding."""
    false = 0
    for seed in range(200):
        counting = Counting()
        for (where, failed), _ in zip(requests(seed, hosts, rate), range(number), strict=False):
            counting.add(where, failed)
        false += bool(stands_out(counting.tallies))
    assert false <= 200 * LEVEL


@pytest.mark.parametrize(("hosts", "rate"), [(10, 0.02), (20, 0.02), (10, 0.1)])
def test_a_host_that_fails_nine_times_as_often_is_found_within_eight_failures(hosts: int, rate: float) -> None:
    """By its eighth failure in more than nine of ten worlds, by its fifth in half of them. Other hosts fail too."""
    found_at = []
    for seed in range(100):
        counting, hits = Counting(), 0
        for where, failed in requests(seed, hosts, rate, planted=9.0):
            counting.add(where, failed)
            if not failed or where["host"] != "host-1":
                continue
            hits += 1
            if any(found.value == "host-1" for found in stands_out(counting.tallies)):
                found_at.append(hits)
                break
            if hits == 8:
                break
    assert len(found_at) > 90
    assert sorted(found_at)[50] <= 5


def test_what_is_told_of_a_value() -> None:
    """Numbers by an independent implementation (scipy's `binomtest(9, 9, 9 / 129)`, exact interval)."""
    (found,) = stands_out([tally(9, 9, host="bad"), tally(0, 60, host="a"), tally(0, 60, host="b")])
    assert found == StandsOut(
        "host",
        "bad",
        count=9,
        share=1.0,
        share_elsewhere=0.0,
        total=9,
        count_elsewhere=0,
        total_elsewhere=120,
        risk_ratio=None,
        low=pytest.approx(26.3178, rel=1e-4),
        high=None,
        p=pytest.approx(3.9162931e-11, rel=1e-6),
    )


def test_a_ratio_has_an_interval_around_it() -> None:
    (found,) = stands_out([tally(12, 100, host="bad"), tally(5, 500, host="a"), tally(5, 500, host="b")])
    assert found.risk_ratio == pytest.approx(12.0)
    assert found.high is not None
    assert 2.0 < found.low < 12.0 < found.high < 40.0


@pytest.mark.parametrize(
    ("why", "tallies"),
    [
        ("two failures", [tally(2, 2, host="bad"), tally(0, 500, host="a")]),
        ("nothing to compare with", [tally(9, 9, host="bad")]),
        ("hosts that are not known", [tally(9, 9), tally(0, 120)]),
        ("a rate that is a little higher", [tally(1500, 10_000, host="bad"), tally(1000, 10_000, host="a")]),
        ("no failure", [tally(0, 9, host="bad"), tally(0, 9, host="a")]),
        ("nothing", []),
    ],
)
def test_what_is_no_finding(why: str, tallies: list[Tally]) -> None:
    assert stands_out(tallies) == (), why


def test_what_shares_its_requests_with_a_more_certain_value_is_left_out() -> None:
    """The bad host is one of three of its GPU type: the others of the type are fine."""
    found = stands_out(
        [
            tally(20, 40, host="bad", gpu="L4"),
            tally(0, 40, host="a", gpu="L4"),
            tally(0, 40, host="b", gpu="L4"),
            *(tally(0, 40, host=f"c{n}", gpu="A40") for n in range(6)),
        ]
    )
    assert [(one.dimension, one.value) for one in found] == [("host", "bad")]


def test_a_region_that_fails_is_told_and_not_its_hosts() -> None:
    found = stands_out(
        [tally(6, 30, host=f"h{n}", region="eu") for n in range(4)]
        + [tally(0, 30, host=f"h{n}", region="us") for n in range(4, 12)]
    )
    assert [(one.dimension, one.value) for one in found] == [("region", "eu")]


def test_the_image_explains_its_hosts() -> None:
    found = stands_out(
        [tally(5, 10, host=f"h{n}", image="v43") for n in range(6)]
        + [tally(0, 30, host=f"h{n}", image="v42") for n in range(4, 10)]
    )
    assert [(one.dimension, one.value) for one in found] == [("image", "v43")]


def test_what_nothing_tells_apart_is_told_twice() -> None:
    found = stands_out([tally(9, 9, host="bad", driver="535"), tally(0, 60, host="a", driver="550")])
    assert [(one.dimension, one.value) for one in found] == [("driver", "535"), ("host", "bad")]


@given(st.integers(1, 3000), st.data())
@settings(max_examples=200, deadline=None)
def test_the_tail_and_the_interval_belong_together(tries: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, tries))
    chance = data.draw(st.floats(0.0, 1.0))
    tail = at_least(successes, tries, chance)
    assert 0.0 <= tail <= 1.0
    assert at_least(successes + 1, tries, chance) <= tail + 1e-9
    low, high = interval(successes, tries)
    assert low <= successes / tries <= high
    if successes > 0:
        assert at_least(successes, tries, low) == pytest.approx(0.025, rel=1e-6)
    if successes < tries:
        assert at_least(successes + 1, tries, high) == pytest.approx(0.975, rel=1e-6)


@pytest.mark.parametrize(
    ("successes", "tries", "chance", "expected"),
    [
        (3, 10, 0.2, 0.32220047),
        (8, 25, 0.05, 1.9580554e-05),
        (1, 200_000, 1e-6, 0.18126933),
        (60, 100, 0.5, 0.02844397),
    ],
)
def test_the_tail_agrees_with_another_implementation(
    successes: int, tries: int, chance: float, expected: float
) -> None:
    """`scipy.stats.binom.sf(successes - 1, tries, chance)`."""
    assert at_least(successes, tries, chance) == pytest.approx(expected, rel=1e-3)


# ------------------------------------------------------------------------------------------------- new, and back


def test_the_image_that_brought_the_failure() -> None:
    tallies = [tally(0, 120, 1, image="v42"), tally(3, 4, 50, image="v43"), tally(2, 2, 60, image="v43", host="x")]
    assert new_in(tallies, "image") == NewIn("image", "v43", 5, 6, 120, 50)


@pytest.mark.parametrize(
    ("why", "tallies"),
    [
        ("it was there before", [tally(1, 120, 1, image="v42"), tally(5, 6, 50, image="v43")]),
        ("too few went before", [tally(0, 2, 1, image="v42"), tally(1, 6, 50, image="v43")]),
        ("the others came later", [tally(0, 120, 99, image="v44"), tally(5, 6, 50, image="v43")]),
        ("no image is known", [tally(5, 6, 50)]),
        ("nothing failed", [tally(0, 6, 50, image="v43")]),
    ],
)
def test_what_did_not_come_with_an_image(why: str, tallies: list[Tally]) -> None:
    assert new_in(tallies, "image") is None, why


def stretch(failed: int, total: int, day: float) -> Stretch:
    at_ns = round(day * DAY_NS) + 1
    return Stretch(failed, total, at_ns if failed else 0, at_ns if failed else 0)


def test_a_failure_that_had_gone_and_came_back() -> None:
    days = [stretch(5, 100, 0), stretch(5, 100, 1), *(stretch(0, 100, day) for day in (2, 3, 4)), stretch(2, 100, 5)]
    assert returned(days) == Returned(DAY_NS + 1, 5 * DAY_NS + 1, 300)
    assert returned([*days, stretch(1, 100, 5.5)]) == returned(days)


@pytest.mark.parametrize(
    ("why", "days"),
    [
        ("it never went", [stretch(1, 100, day) for day in range(5)]),
        ("it never came back", [stretch(5, 100, 0), stretch(0, 900, 3)]),
        ("a pause by night", [stretch(5, 100, 0), stretch(0, 500, 0.3), stretch(5, 100, 0.6)]),
        ("nothing ran meanwhile", [stretch(5, 100, 0), stretch(5, 100, 9)]),
        ("it was rare before", [stretch(3, 3000, 0), stretch(0, 300, 2), stretch(1, 100, 4)]),
        ("nothing", []),
    ],
)
def test_what_did_not_return(why: str, days: list[Stretch]) -> None:
    assert returned(days) is None, why
