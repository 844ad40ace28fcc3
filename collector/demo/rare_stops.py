"""Rare things that were seen of stop signals and of the channel that brings them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from collector.demo.platform import Fault
from collector.demo.scenario import QUICK_BEATS, Drive, Scenario, rare, waiting
from collector.demo.stage import Stage

ALWAYS: Final = 10_000
"""A fault for so many polls outlasts every scenario."""


async def _one_of_three_stopped(stage: Stage) -> list[str]:
    worker, jobs = await waiting(stage, "a lighthouse", "a harbour", "a storm", at_a_time=3)
    await stage.caller.cancel(jobs[0])
    await worker.wait_line("Job stopped.")
    stage.download_ends("picture.png")
    for job in jobs[1:]:
        await stage.ended(job, "COMPLETED")
    return jobs[1:]


async def _stop_meets_delivery(stage: Stage) -> list[str]:
    """The stop lands while the result is on its way; nobody answers the worker until it has been stopped."""
    arrived = asyncio.Event()
    stage.platform.arm("job-done", Fault(serve=True, until=arrived, endpoint=stage.endpoint))
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("echo")
    await stage.seen("job-done", job=job)
    await stage.caller.cancel(job)
    await worker.wait_line("Job stopped.")
    arrived.set()
    await stage.ended(job)
    return [job]


async def _stop_late_while_leaving(stage: Stage) -> list[str]:
    """A handler that blocks the loop holds up the stop and the shutdown alike."""
    arrived = asyncio.Event()
    stage.platform.arm("job-done", Fault(serve=True, until=arrived, endpoint=stage.endpoint))
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("blocks_loop")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.seen("stop-sent")
    stage.download_ends("picture.png")
    await worker.wait_line("Stopping job.")
    worker.terminate()
    arrived.set()
    await stage.ended(job)
    return [job]


def _stop_channel_refuses(status: int) -> Drive:
    """Every poll of the stop channel is refused: the signal waits at the platform, and the handler runs on."""

    async def drive(stage: Stage) -> list[str]:
        stage.platform.arm("job-stop", Fault(status=status, times=ALWAYS, endpoint=stage.endpoint))
        _, jobs = await waiting(stage, "a lighthouse", beats=True)
        await stage.caller.cancel(jobs[0])
        await stage.ended(jobs[0])
        await stage.found("stop_channel_dead")
        stage.download_ends("picture.png")
        await stage.seen("late-result", job=jobs[0])
        return jobs

    return drive


def _told_as(change: Callable[[list[str]], object]) -> Callable[[str], str]:
    """Rewrite a stop signal: `change` is given the ids, and what it returns is sent."""
    return lambda text: json.dumps(change(json.loads(text)["jobsToStop"]))


SHAPES: Final = (
    Fault(change=_told_as(lambda ids: {"jobsToStop": [f"{one}-2" for one in ids]})),  # an id that nobody knows
    Fault(change=_told_as(lambda ids: ids)),
    Fault(change=_told_as(lambda ids: {"jobsToStop": ids[0]})),
    Fault(change=_told_as(lambda ids: {"jobsToStop": [{"id": one} for one in ids]})),
    Fault(change=lambda text: text[:-2]),
    Fault(garble=True, status=200, body="<html>signed out</html>", content_type="text/html"),
)
"""Stop signals that the worker SDK drops, each on a poll of its own."""


async def _stop_shapes(stage: Stage) -> list[str]:
    for shape in SHAPES:
        stage.platform.arm("job-stop", replace(shape, endpoint=stage.endpoint))
    prompts = [f"picture {number} of {len(SHAPES)}" for number in range(1, len(SHAPES) + 1)]
    _, jobs = await waiting(stage, *prompts, at_a_time=len(SHAPES), beats=True)
    for count, job in enumerate(jobs, 1):
        await stage.caller.cancel(job)
        await stage.ended(job)
        await stage.seen("stop-sent", count=count)
    await stage.found("stop_channel_violating")
    stage.download_ends("picture.png")
    for job in jobs:
        await stage.seen("late-result", job=job)
    return jobs


def _without_stop_address(stage: Stage) -> dict[str, str]:
    return {"RUNPOD_WEBHOOK_GET_JOB": f"{stage.platform.base}/v2/{stage.endpoint}/job-take-batch/$ID?gpu=NONE"}


async def _no_stop_channel(stage: Stage) -> list[str]:
    """The worker takes its requests from an address that the SDK cannot make a stop address of."""
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("waits", settings={**_without_stop_address(stage), **QUICK_BEATS})
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await stage.found("stop_channel_disabled")
    stage.download_ends("picture.png")
    await stage.seen("late-result", job=job)
    return [job]


async def _over_its_time(stage: Stage) -> list[str]:
    """The platform ends the request by its time limit, and the worker never hears of it."""
    body = {"input": {"prompt": "a lighthouse"}, "policy": {"executionTimeout": 1000}}
    job = await stage.caller.submit(body)
    worker = await stage.start_worker("waits", settings=_without_stop_address(stage))
    await worker.wait_line("step 1 of")
    await stage.ended(job, "TIMED_OUT")
    return [job]


STOPS: Final = (
    Scenario(  # shown without --all too: nothing crashes, and still it is found
        "stop-channel-fails",
        "The caller cancels; the stop channel answers every poll with 500.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_channel_refuses(500),
        says="stop channel failing",
    ),
    rare(
        "stop-channel-throttled",
        "The caller cancels; the stop channel answers every poll with 429.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_channel_refuses(429),
        says="stop channel failing",
    ),
    rare(
        "stop-shapes",
        "The caller cancels six requests; each signal has another wrong shape.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_shapes,
        says="stop channel violating",
    ),
    rare(
        "stop-channel-disabled",
        "The caller cancels; the worker has no address to hear of it.",
        "stop_signal_lost",
        "platform_api_error",
        _no_stop_channel,
        says="stop channel disabled",
    ),
    rare(
        "over-its-time",
        "A request runs longer than its caller allows.",
        "execution_timeout",
        "timeout",
        _over_its_time,
        says="TIMED_OUT",
        while_it_lives=True,
    ),
    rare(
        "stop-meets-delivery",
        "The caller cancels while the result is on its way.",
        "stop_late",
        "request_cancelled",
        _stop_meets_delivery,
    ),
    rare(
        "stop-late-while-leaving",
        "The caller cancels and the worker is told to leave; a sync handler blocks the loop.",
        "stop_late",
        "request_cancelled",
        _stop_late_while_leaving,
    ),
    rare(
        "one-of-three-stopped",
        "One of three requests of a worker is stopped; the others go on.",
        "completed",
        "no_failure",
        _one_of_three_stopped,
    ),
)
