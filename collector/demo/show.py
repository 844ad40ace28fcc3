"""Play scenarios against a running server and compare what it answers with what really happened."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from collector.demo.platform import Platform
from collector.demo.scenarios import Scenario
from collector.demo.stage import Stage

PARALLEL: Final = 3
"""Scenarios at once: importing the worker SDK alone takes a core for two seconds."""
START_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 45.0
"""How long the server may take to come to the right verdict after all has been sent."""
LOOK_SECONDS: Final = 0.3
STOP_SECONDS: Final = 15.0
EVIDENCE_WIDTH: Final = 100
GOOD: Final = frozenset({"completed", "stopped", "queued", "running"})


class ServerFailed(Exception):
    """The demo's own server did not come up. The message holds the address or the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scenario that was played: the server's answers, and what is wrong with them (empty: nothing)."""

    scenario: Scenario
    answers: tuple[dict[str, Any], ...]
    problem: str

    @property
    def verdict(self) -> str:
        """`code/cause` of each answer, those alike once."""
        verdicts = [f"{answer['verdict']['code']}/{answer['verdict']['cause']}" for answer in self.answers]
        return ", ".join(dict.fromkeys(verdicts)) or "no answer"

    @property
    def evidence(self) -> str:
        """The line that tells most, as one line: what the scenario is about, a log line before anything else."""
        says = self.scenario.says.lower()
        items = [item for answer in self.answers for item in answer["verdict"]["evidence"]]
        items.sort(key=lambda item: (says not in item["text"].lower(), item["what"] != "log_line"))
        return _clipped(items[0]["text"], around=says) if items else ""

    @property
    def bad_news(self) -> str | None:
        """Id of a request that failed, where one did."""
        return next((a["job_id"] for a in self.answers if a["verdict"]["code"] not in GOOD), None)


@asynccontextmanager
async def running_server(database_url: str, *, port: int = 0) -> AsyncIterator[str]:
    """The real server as a process of its own, its store migrated; its address.

    Settings of the caller's environment do not reach it. Raises ServerFailed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STALLSCOPE_")}
    environment["STALLSCOPE_DATABASE_URL"] = database_url
    if not database_url.startswith("chdb:"):
        await _migrate(environment)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "collector.cli", "serve", "--port", str(port), "--grpc-port", "0"),
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the demo, which ends the server last
    )
    try:
        yield await asyncio.wait_for(_address(process), START_SECONDS)
    except asyncio.TimeoutError:
        raise ServerFailed(f"the server did not come up in {START_SECONDS:g} s") from None
    finally:
        await _stop(process)


async def _migrate(environment: dict[str, str]) -> None:
    command = (sys.executable, "-m", "collector.cli", "migrate")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
    if await process.wait() != 0:
        raise ServerFailed("the store could not be migrated")


async def _address(process: asyncio.subprocess.Process) -> str:
    """The address that the server prints, once it is ready to answer from the store."""
    line = await process.stdout.readline() if process.stdout is not None else b""
    base = line.decode().strip()
    if not base:
        raise ServerFailed("the server ended while starting")
    async with httpx.AsyncClient(trust_env=False) as client:
        while (await client.get(f"{base}/readyz")).status_code != httpx.codes.OK:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(LOOK_SECONDS)
    return base


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()


async def play_all(
    scenarios: Iterable[Scenario],
    platform: Platform,
    server: str,
    *,
    parallel: int = PARALLEL,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Play scenarios, several at once; `tell` hears of each as it ends. Outcomes in the order given."""
    turn = asyncio.Semaphore(parallel)

    async def one(scenario: Scenario) -> Outcome:
        async with AsyncExitStack() as held:
            await held.enter_async_context(turn)
            outcome = await play(scenario, platform, server, driven=held.aclose)
        tell(outcome)
        return outcome

    return list(await asyncio.gather(*(one(scenario) for scenario in scenarios)))


async def _nobody_waits() -> None:
    pass


async def play(
    scenario: Scenario, platform: Platform, server: str, *, driven: Callable[[], Awaitable[None]] = _nobody_waits
) -> Outcome:
    """Bring one scenario about, and ask the server about its requests.

    `driven` is called when all has happened: what remains is to wait for workers to leave and for the right answer.
    """
    with tempfile.TemporaryDirectory(prefix="stallscope-stage-", ignore_cleanup_errors=True) as directory:
        stage = Stage(platform, server, Path(directory), scenario.name, handler_logs=scenario.handler_logs)
        try:
            async with stage:
                jobs = await asyncio.wait_for(scenario.drive(stage), scenario.seconds)
                await driven()
                if scenario.while_it_lives:
                    outcome = await judge(scenario, jobs, server, seconds=scenario.seconds)
                    stage.has_told_all = True
                    return outcome
        except Exception as error:  # noqa: BLE001 - broad: whatever went wrong is this scenario's row, and the others go on
            return Outcome(scenario, (), f"could not be played: {type(error).__name__}: {error}")
    return await judge(scenario, jobs, server)


async def judge(scenario: Scenario, jobs: Sequence[str], server: str, *, seconds: float = ANSWER_SECONDS) -> Outcome:
    """The server's answers once they are right, or as they are when the time for it is over."""
    deadline = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=server, trust_env=False, timeout=ANSWER_SECONDS) as client:
        while True:
            asked = [await _ask(client, job) for job in jobs]
            answers = tuple(answer for answer, _ in asked if answer is not None)
            problems = [wrong_with(scenario, answer) if answer is not None else why for answer, why in asked]
            problem = "; ".join(dict.fromkeys(filter(None, problems)))
            if not problem or time.monotonic() > deadline:
                return Outcome(scenario, answers, problem)
            await asyncio.sleep(LOOK_SECONDS)


async def _ask(client: httpx.AsyncClient, job: str) -> tuple[dict[str, Any] | None, str]:
    """The server's answer, or None and why there is none."""
    try:
        reply = await client.get(f"/api/v1/jobs/{quote(job, safe='')}")
    except httpx.HTTPError as error:
        return None, f"the server does not answer: {type(error).__name__}"
    if reply.status_code != httpx.codes.OK:
        return None, f"the server answered {reply.status_code}"
    return reply.json(), ""


def wrong_with(scenario: Scenario, answer: dict[str, Any]) -> str:
    """What is wrong with an answer; empty when it is right."""
    verdict = answer["verdict"]
    if (verdict["code"], verdict["cause"]) != (scenario.verdict, scenario.cause):
        return f"verdict is {verdict['code']}/{verdict['cause']}"
    if not verdict["evidence"]:
        return "no evidence"
    told = "\n".join([verdict["sentence"], *(item["text"] for item in verdict["evidence"])])
    if scenario.says.lower() not in told.lower():
        return f"neither sentence nor evidence says {scenario.says!r}"
    named = " ".join(gap["how"] for gap in verdict["missing"])
    if scenario.names_setting not in named:
        return f"the answer does not name {scenario.names_setting}"
    return ""


def table(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str, bool]]:
    """Rows: scenario, expected, verdict, evidence (or what is wrong), right."""
    return [
        (
            outcome.scenario.name,
            f"{outcome.scenario.verdict}/{outcome.scenario.cause}",
            outcome.verdict,
            _clipped(outcome.problem) or outcome.evidence,
            not outcome.problem,
        )
        for outcome in outcomes
    ]


def _clipped(text: str, *, around: str = "") -> str:
    """One line of bounded width, in which `around` can be seen."""
    line = " ".join(text.split())
    begin = max(0, line.lower().find(around) - EVIDENCE_WIDTH // 3)
    if begin + EVIDENCE_WIDTH >= len(line):
        begin = max(0, len(line) - EVIDENCE_WIDTH)
    shown = line[begin : begin + EVIDENCE_WIDTH]
    return ("…" if begin else "") + shown + ("…" if begin + EVIDENCE_WIDTH < len(line) else "")
