"""Time on the caller's side: the clock, the total wait, and how long to pause between two looks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

CALL_SECONDS: Final = 30.0
"""Longest time of one HTTP call."""
CALL_FLOOR_SECONDS: Final = 1.0
"""Shortest time a call is given, however little is left of the wait: the most by which a wait is overrun."""
FIRST_PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 5.0
"""Longest pause, before jitter."""
DOUBLINGS: Final = 3
"""ceil(log2(PAUSE_SECONDS / FIRST_PAUSE_SECONDS)): later ones change nothing, and 2.0**1024 overflows."""
JITTER: Final = 0.2


@dataclass(frozen=True, slots=True)
class Timing:
    """Where time and chance come from; tests give their own. `monotonic` in seconds, `chance` in [0, 1)."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random


class Budget:
    """What is left of a total wait. None: there is no wait, a thing is asked once, and only a call has a limit."""

    def __init__(self, timing: Timing, seconds: float | None) -> None:
        self.seconds = seconds
        self._timing = timing
        self._began = timing.monotonic()

    @property
    def waits(self) -> bool:
        return self.seconds is not None

    def left(self) -> float:
        """Seconds, never negative; infinite where there is no wait."""
        if self.seconds is None:
            return float("inf")
        left = self.seconds - (self._timing.monotonic() - self._began)
        return left if left > 0.001 else 0.0  # what clocks round is no time for a call

    def call_seconds(self) -> float:
        """How long the next call may take."""
        return max(min(CALL_SECONDS, self.left()), CALL_FLOOR_SECONDS)


class Pauses:
    """1, 2, 4, 5, 5, … seconds, each up to a fifth more or less, so that clients do not move in step."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._made = 0

    def next(self) -> float:
        plain = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._made, DOUBLINGS), PAUSE_SECONDS)
        self._made += 1
        return plain * (1 - JITTER + 2 * JITTER * self._timing.chance())


def span_of(seconds: float) -> str:
    """A time for people: `0.5 s`, `12 s`, `5 min`, `1 h 30 min`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes, odd = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "min"), (odd, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
