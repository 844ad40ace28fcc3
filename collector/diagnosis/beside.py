"""What happened beside a request: to others on its worker, and to its endpoint in the time around it.

It is gathered by `collector.queries.beside`, in bounds, and handed in as a part of the evidence: nothing here asks.
`lifecycle_beside` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from collector.diagnosis.records import Record
from collector.diagnosis.standing_out import Tally


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a worker of the endpoint that ended before `start()`. `span_id`: the record that tells the end."""

    worker_id: str
    boot_id: str
    ended_ns: int
    span_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How another request of the endpoint ended. `same`: in the failure that this evidence is about."""

    job_id: str
    first_ns: int
    same: bool


@dataclass(frozen=True, slots=True)
class Beside:
    """All of it. Empty where nothing was asked or there is nothing; `gaps` names what could not be read."""

    siblings: tuple[Record, ...] = ()
    """`job.run` of other requests on the worker boots that had this one, by start."""
    starts: tuple[Start, ...] = ()
    """Starts of the endpoint that failed in the ten minutes before the last of them, by their end."""
    tallies: tuple[Tally, ...] = ()
    """Requests of the endpoint in the days around, by what they ran on; `failed` counts the failure of this one."""
    where: Mapping[str, str] = field(default_factory=dict)
    """What this request ran on: a value for each dimension of the tallies that is known."""
    outcomes: tuple[Outcome, ...] = ()
    """The endpoint's newest requests that came to an end, newest first; this one may be among them."""
    gaps: tuple[str, ...] = ()


NOTHING: Final = Beside()
