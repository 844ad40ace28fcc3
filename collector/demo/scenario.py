"""What a scenario is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from collector.demo.stage import Stage

QUICK_BEATS: Final = {"STALLSCOPE_HEARTBEAT_SECONDS": "2"}
"""For what shows in heartbeats only."""

Drive = Callable[[Stage], Awaitable[list[str]]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing that can happen to a request."""

    name: str  # also the endpoint's name
    story: str  # what the user did and met
    verdict: str
    cause: str
    drive: Drive
    says: str  # a text that sentence or evidence must hold
    handler_logs: bool = False  # the shipped default: no output of a handler leaves the worker
    names_setting: str = ""  # where the default hides the reason: what the answer must say is missing
    slow: bool = False  # shown with --all only
    seconds: float = 300.0  # after which the scenario has failed
    while_it_lives: bool = False  # asked while the worker is there: its end would make something else of it
