"""What a scenario is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from collector.demo.stage import Stage, WorkerProcess

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


def rare(
    name: str, story: str, verdict: str, cause: str, drive: Drive, says: str = "", *, while_it_lives: bool = False
) -> Scenario:
    """One that is shown with `--all` only."""
    return Scenario(name, story, verdict, cause, drive, says=says, slow=True, while_it_lives=while_it_lives)


async def waiting(
    stage: Stage, *prompts: str, at_a_time: int = 1, beats: bool = False
) -> tuple[WorkerProcess, list[str]]:
    """A worker that holds all these requests, each in its handler."""
    jobs = [await stage.submit(prompt=prompt) for prompt in prompts]
    settings = {"DEMO_CONCURRENCY": str(at_a_time), **(QUICK_BEATS if beats else {})}
    worker = await stage.start_worker("waits", settings=settings)
    for prompt in prompts:
        await worker.wait_line(f"step 1 of 1 for {prompt}")
    return worker, jobs
