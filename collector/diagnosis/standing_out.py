"""What stands out among failures: the endpoint, host, GPU, driver, image, release, region or SDK that has more of them.

The question is whether failures come more often, per request, where a dimension has one value than where it has others.
Given how many there are in all, the number at the value is binomial if the rate is the same everywhere (the exact
conditional test of two rates), and the same tail gives the interval of the risk ratio, so that test and interval never
disagree. Where failures are common it errs on the side of silence. False discoveries are held down over all values of
all dimensions together (Benjamini and Hochberg), of which those are left out that no outcome could have shown (Tarone).

These few lines are exact; scipy and statsmodels would weigh more than the rest of the server together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

DIMENSIONS: Final = ("endpoint", "host", "gpu", "driver", "image", "release", "region", "sdk")
LEVEL: Final = 0.05
"""Expected share of false ones among what is said to stand out."""
INTERVAL: Final = 0.95
LEAST_FAILURES: Final = 3
"""Fewer have everything in common by chance."""
LEAST_RATIO: Final = 2.0
"""A rate that is proven to be a little higher is no clue."""
QUIET_NS: Final = 86_400 * 1_000_000_000
RETURN_LEVEL: Final = 0.01
"""Chance at most that a failure which is said to have returned had only paused: it is looked for at every pause."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests that share all dimensions: how many there were, and how many of them failed in the way asked about.

    `where` holds a value for each of DIMENSIONS, "" where it is not known. `first_ns`: the first request's time, Unix
    nanoseconds.
    """

    where: Mapping[str, str]
    failed: int
    total: int
    first_ns: int = 0


@dataclass(frozen=True, slots=True)
class StandsOut:
    """A value with a higher rate of the failure than the others of its dimension have.

    `risk_ratio` and `high` are None where they have no bound: nothing failed elsewhere. The interval holds the true
    ratio in 95 of 100 cases or more. `share`: of the failures; `share_elsewhere`: of the requests without the failure.
    """

    dimension: str
    value: str
    count: int  # failures there
    share: float
    share_elsewhere: float
    total: int  # requests there
    count_elsewhere: int
    total_elsewhere: int
    risk_ratio: float | None
    low: float
    high: float | None
    p: float  # of as many failures there by chance


@dataclass(frozen=True, slots=True)
class _Split:
    """The requests of one dimension: those with one value, and the others."""

    dimension: str
    value: str
    failed: int
    total: int
    failed_elsewhere: int
    total_elsewhere: int

    @property
    def expected_share(self) -> float:
        """The share of all failures that would fall to the value if its rate were like the others'."""
        return self.total / (self.total + self.total_elsewhere)

    @property
    def p(self) -> float:
        """The chance of as many failures at the value, or more."""
        return at_least(self.failed, self.failed + self.failed_elsewhere, self.expected_share)

    @property
    def least_p(self) -> float:
        """The smallest `p` that these numbers of failures and requests allow."""
        failures = self.failed + self.failed_elsewhere
        return at_least(min(failures, self.total), failures, self.expected_share)


def stands_out(tallies: Sequence[Tally], *, level: float = LEVEL) -> tuple[StandsOut, ...]:
    """The values that stand out, the most certain first.

    One that does so only for requests that it shares with a value of another dimension is left out. Two that have
    exactly the same requests are both told, since nothing tells them apart.
    """
    splits = [split for dimension in DIMENSIONS for split in _splits(tallies, dimension)]
    tested = [split for split in splits if _can_show(split, level)]
    found = [split for split in _discovered(tested, level) if _matters(split)]
    rivals = [(one, other) for place, one in enumerate(found) for other in found[place + 1 :]]
    left_out = [_lesser(one, other, tallies, level) for one, other in rivals]
    return tuple(_told(split) for split in found if split not in left_out)


@dataclass(frozen=True, slots=True)
class NewIn:
    """The value (an image, a release) that brought the failure. `since_ns`: its first request, Unix nanoseconds."""

    dimension: str
    value: str
    count: int
    total: int
    total_before: int  # requests with other values before its first
    since_ns: int


def new_in(tallies: Sequence[Tally], dimension: str, *, level: float = LEVEL) -> NewIn | None:
    """The one value where all of the failure is, where so many requests with other values went before without it that
    this is no chance; None where that cannot be said."""
    failing = {tally.where[dimension] for tally in tallies if tally.failed}
    if len(failing) != 1 or (value := failing.pop()) == "":
        return None
    there = [tally for tally in tallies if tally.where[dimension] == value]
    count, total = sum(tally.failed for tally in there), sum(tally.total for tally in there)
    since_ns = min(tally.first_ns for tally in there)
    before = sum(t.total for t in tallies if t.where[dimension] not in ("", value) and t.first_ns < since_ns)
    if at_least(count, count, total / (total + before)) > level:
        return None
    return NewIn(dimension, value, count, total, before, since_ns)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Requests of some length of time: how many there were and how many failed in the way asked about.

    Times are Unix nanoseconds, of the first and the last failure; 0 where there is none.
    """

    failed: int
    total: int
    first_failed_ns: int = 0
    last_failed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Returned:
    """A failure that had gone and came back: when it was seen last and again (Unix nanoseconds)."""

    gone_ns: int
    back_ns: int
    requests_between: int


def returned(stretches: Sequence[Stretch]) -> Returned | None:
    """The last time that the failure came back after a day or more without it, where that was no chance: its rate
    before, over the requests between, would have shown it. `stretches` are in the order of time."""
    found, failed, total, between, gone_ns = None, 0, 0, 0, 0
    for stretch in stretches:
        if stretch.failed and failed:
            quiet = stretch.first_failed_ns - gone_ns >= QUIET_NS and failed >= LEAST_FAILURES
            if quiet and at_least(failed, failed, total / (total + between)) <= RETURN_LEVEL:
                found = Returned(gone_ns, stretch.first_failed_ns, between)
        if stretch.failed:
            failed, total = failed + stretch.failed, total + between + stretch.total
            between, gone_ns = 0, stretch.last_failed_ns
        else:
            between += stretch.total
    return found


def _splits(tallies: Iterable[Tally], dimension: str) -> list[_Split]:
    failed: dict[str, int] = {}
    total: dict[str, int] = {}
    for tally in tallies:
        if value := tally.where[dimension]:
            failed[value] = failed.get(value, 0) + tally.failed
            total[value] = total.get(value, 0) + tally.total
    failures, requests = sum(failed.values()), sum(total.values())
    return [
        _Split(dimension, value, failed[value], total[value], failures - failed[value], requests - total[value])
        for value in sorted(total)
    ]


def _can_show(split: _Split, level: float) -> bool:
    """Whether some outcome with these margins would be told: decided without looking at the outcome."""
    failures = split.failed + split.failed_elsewhere
    comparable = split.total_elsewhere > 0 and min(failures, split.total) >= LEAST_FAILURES
    return comparable and split.least_p <= level


def _discovered(splits: Sequence[_Split], level: float) -> list[_Split]:
    """Those that pass with the false discovery rate held at `level`, the most certain first."""
    ordered = sorted(splits, key=lambda split: (split.p, -split.failed, split.dimension, split.value))
    passing = [rank for rank, split in enumerate(ordered, 1) if split.p <= level * rank / len(ordered)]
    return ordered[: max(passing, default=0)]


def _matters(split: _Split) -> bool:
    often = split.failed >= LEAST_FAILURES
    return often and split.failed * split.total_elsewhere >= LEAST_RATIO * split.failed_elsewhere * split.total


def _lesser(one: _Split, other: _Split, tallies: Sequence[Tally], level: float) -> _Split | None:
    """Which of the two has only the other's failures to show; None where each has its own, or the very same.

    `one` is the more certain, and stays where neither has anything of its own.
    """
    if one.dimension == other.dimension or _same_requests(one, other, tallies):
        return None
    if not _by_itself(other, one, tallies, level):
        return other
    return None if _by_itself(one, other, tallies, level) else one


def _same_requests(one: _Split, other: _Split, tallies: Sequence[Tally]) -> bool:
    return all((t.where[one.dimension] == one.value) == (t.where[other.dimension] == other.value) for t in tallies)


def _by_itself(split: _Split, other: _Split, tallies: Sequence[Tally], level: float) -> bool:
    """Whether `split` would be told of the requests without `other`, or of those with it alone: a host that is worse
    than the others of its region, or an image that fails in each."""
    with_other = [tally for tally in tallies if tally.where[other.dimension] == other.value]
    without = [tally for tally in tallies if tally.where[other.dimension] != other.value]
    return any(
        left.total_elsewhere > 0 and _matters(left) and left.p <= level
        for part in (with_other, without)
        for left in _splits(part, split.dimension)
        if left.value == split.value
    )


def _told(split: _Split) -> StandsOut:
    failures, ratio = split.failed + split.failed_elsewhere, split.total_elsewhere / split.total
    low, high = interval(split.failed, failures)
    well, well_elsewhere = split.total - split.failed, split.total_elsewhere - split.failed_elsewhere
    return StandsOut(
        dimension=split.dimension,
        value=split.value,
        count=split.failed,
        share=split.failed / failures,
        share_elsewhere=well / (well + well_elsewhere) if well + well_elsewhere else 0.0,
        total=split.total,
        count_elsewhere=split.failed_elsewhere,
        total_elsewhere=split.total_elsewhere,
        risk_ratio=split.failed / split.failed_elsewhere * ratio if split.failed_elsewhere else None,
        low=low / (1 - low) * ratio,
        high=high / (1 - high) * ratio if high < 1 else None,
        p=split.p,
    )


# ------------------------------------------------------------------------------------------------------ the binomial


def at_least(successes: int, tries: int, chance: float) -> float:
    """The chance of so many successes or more."""
    if successes <= 0:
        return 1.0
    if chance <= 0 or successes > tries:
        return 0.0
    if chance >= 1:
        return 1.0
    odds = chance / (1 - chance)
    if successes > tries * chance:  # beyond the mean each term is smaller than the one before
        return _summed(successes, tries, chance, lambda n: odds * (tries - n) / (n + 1), step=1)
    return 1.0 - _summed(successes - 1, tries, chance, lambda n: n / odds / (tries - n + 1), step=-1)


def _summed(first: int, tries: int, chance: float, ratio: Callable[[int], float], *, step: int) -> float:
    """The chances of `first` successes and those beyond it, as long as they add anything."""
    log_choices = math.lgamma(tries + 1) - math.lgamma(first + 1) - math.lgamma(tries - first + 1)
    term = math.exp(log_choices + first * math.log(chance) + (tries - first) * math.log1p(-chance))
    total, n = 0.0, first
    while term > total * 1e-16 and 0 <= n <= tries:
        total += term
        term *= ratio(n)
        n += step
    return min(total, 1.0)


def interval(successes: int, tries: int, *, level: float = INTERVAL) -> tuple[float, float]:
    """Clopper and Pearson's interval of the chance of a success."""
    side = (1 - level) / 2
    low = _root(lambda chance: at_least(successes, tries, chance), side) if successes > 0 else 0.0
    high = _root(lambda chance: at_least(successes + 1, tries, chance), 1 - side) if successes < tries else 1.0
    return low, high


def _root(rising: Callable[[float], float], value: float) -> float:
    """Where a function that rises from 0 to 1 takes the value."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return (low + high) / 2
