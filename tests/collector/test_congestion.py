"""Too much work is refused at once, and a few slow requests refuse nobody."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from collector.congestion import LATE_MOST, LATE_SECONDS, Congestion
from collector.errors import Overloaded


class Now:
    """A clock that the test moves."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_new_requests_are_refused_while_many_wait_too_long() -> None:
    now = Now()
    congestion = Congestion(now)
    with ExitStack() as all_but_one, ExitStack() as one:
        for number in range(LATE_MOST):
            (one if number == 0 else all_but_one).enter_context(congestion.waiting())
        now.seconds += LATE_SECONDS
        congestion.refuse_when_late()
        now.seconds += 0.1
        with pytest.raises(Overloaded, match="8 requests wait") as refused:
            congestion.refuse_when_late()
        assert refused.value.retry_after_seconds
        one.close()
        congestion.refuse_when_late()


def test_many_that_just_came_refuse_nobody() -> None:
    now = Now()
    congestion = Congestion(now)
    with ExitStack() as waiting:
        for _ in range(LATE_MOST - 1):
            waiting.enter_context(congestion.waiting())
        now.seconds += 10 * LATE_SECONDS
        for _ in range(100):
            waiting.enter_context(congestion.waiting())
        congestion.refuse_when_late()
