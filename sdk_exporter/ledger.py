"""Jobs that this worker holds, from the claim until they have left its hands."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sdk_exporter import events
from sdk_exporter.events import Attempt

RECENT_JOBS: Final = 256
"""Released jobs remembered, to tell a late stop signal from one for an unknown job."""

in_hand: dict[str, Attempt] = {}
"""By job id. No lock: single dict operations only, since a signal handler may look at any moment."""
_recent: OrderedDict[str, str] = OrderedDict()


def claim(job_id: str) -> Attempt:
    """A new attempt at `job_id`, in hand from now on."""
    attempt = Attempt(job_id)
    attempt.claimed = True
    in_hand[job_id] = attempt
    return attempt


def attempt_of(job_id: str) -> Attempt:
    """The attempt in hand, or a new one for a job whose claim nobody saw (local runs, the API server)."""
    attempt = in_hand.get(job_id)
    if attempt is None:
        attempt = Attempt(job_id)
        in_hand[job_id] = attempt
        events.hand(attempt)
    return attempt


def release(attempt: Attempt, outcome: str) -> None:
    """Told once per attempt: the first outcome stands."""
    if attempt.outcome is not None:
        return
    attempt.outcome = outcome
    if in_hand.get(attempt.job_id) is attempt:
        del in_hand[attempt.job_id]
    _recent[attempt.job_id] = outcome
    while len(_recent) > RECENT_JOBS:
        _recent.popitem(last=False)
    events.release(attempt, outcome)


def was_here(job_id: str) -> bool:
    """Whether this worker released the job a short while ago."""
    return job_id in _recent


def ids() -> list[str]:
    """Ids in hand."""
    return list(in_hand)
