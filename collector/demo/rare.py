"""Rare things that were seen of real workers, and what each must be told to be. All are shown with `--all` only.

`docs/observations.md` lists which scenario stands for which observation.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from collector.demo.platform import Fault
from collector.demo.scenario import QUICK_BEATS, Drive, Scenario
from collector.demo.stage import Stage, WorkerProcess

ALWAYS: Final = 10_000
"""A fault for so many polls outlasts every scenario."""


# ---------------------------------------------------------------------------------------------------- several, leaving


async def _waiting(
    stage: Stage, *prompts: str, at_a_time: int = 1, beats: bool = False
) -> tuple[WorkerProcess, list[str]]:
    """A worker that holds all these requests, each in its handler."""
    jobs = [await stage.submit(prompt=prompt) for prompt in prompts]
    settings = {"DEMO_CONCURRENCY": str(at_a_time), **(QUICK_BEATS if beats else {})}
    worker = await stage.start_worker("waits", settings=settings)
    for prompt in prompts:
        await worker.wait_line(f"step 1 of 1 for {prompt}")
    return worker, jobs


async def _drained(stage: Stage) -> list[str]:
    worker, jobs = await _waiting(stage, "a lighthouse")
    worker.terminate()
    await worker.wait_line("Kill worker.")
    stage.download_ends("picture.png")
    await stage.ended(jobs[0], "COMPLETED")
    return jobs


async def _three_drained(stage: Stage) -> list[str]:
    """The fourth stays in the queue: a worker that leaves takes no more."""
    worker, jobs = await _waiting(stage, "a lighthouse", "a harbour", "a storm", at_a_time=3)
    worker.terminate()
    await worker.wait_line("Kill worker.")
    fourth = await stage.submit(prompt="a calm")
    stage.download_ends("picture.png")
    for job in jobs:
        await stage.ended(job, "COMPLETED")
    stage.platform.hold(stage.endpoint, 0.2, stop_seconds=0.2)
    await worker.wait_exit()
    if (said := await stage.caller.poll(fourth))["status"] != "IN_QUEUE":
        raise ValueError(f"the worker that left took one more: {said}")
    return jobs


async def _one_of_three_stopped(stage: Stage) -> list[str]:
    worker, jobs = await _waiting(stage, "a lighthouse", "a harbour", "a storm", at_a_time=3)
    await stage.caller.cancel(jobs[0])
    await worker.wait_line("Job stopped.")
    stage.download_ends("picture.png")
    for job in jobs[1:]:
        await stage.ended(job, "COMPLETED")
    return jobs[1:]


async def _refreshed(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("leaves_after_one")
    await stage.seen("stop-pod", job=job)
    await stage.ended(job)
    stage.platform.hold(stage.endpoint, 0.2, stop_seconds=0.2)  # it leaves when its open polls are answered
    await worker.wait_exit()
    return [job]


def _streams(kind: str, *, tokens: int) -> Drive:
    async def drive(stage: Stage) -> list[str]:
        job = await stage.submit(tokens=tokens)
        await stage.start_worker("streams", settings={"DEMO_GENERATOR": kind})
        await stage.ended(job)
        return [job]

    return drive


# --------------------------------------------------------------------------------------------------------------- stops


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
        _, jobs = await _waiting(stage, "a lighthouse", beats=True)
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
    _, jobs = await _waiting(stage, *prompts, at_a_time=len(SHAPES), beats=True)
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


# ----------------------------------------------------------------------------------------------------- ends and losses


def _ends_worker(way: str) -> Drive:
    async def drive(stage: Stage) -> list[str]:
        job = await stage.submit(way=way)
        worker = await stage.start_worker("ends_worker")
        await stage.seen("claimed", job=job)
        stage.platform.hold(stage.endpoint, 0.2, stop_seconds=0.2)  # an interrupted worker waits for its open polls
        await worker.wait_exit()
        await stage.caller.poll(job)
        return [job]

    return drive


async def _killed_unwatched(stage: Stage) -> list[str]:
    """Without the launcher nobody sees the death, and the worker's other process goes on telling that it lives."""
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("slow", launcher=False)
    await worker.wait_line("in process")
    os.kill(worker.pid, signal.SIGKILL)
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 3)
    await stage.caller.poll(job)
    return [job]


async def _scaling_breaks(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("scaling_breaks")
    await worker.wait_line("step 1 of")
    stage.platform.hold(stage.endpoint, 0.2, stop_seconds=0.2)  # it calculates again when its poll was answered
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def _boot_crash_held(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("boot_crash_held")
    await worker.wait_line("ModuleNotFoundError")
    await stage.caller.poll(job)
    return [job]


async def _claim_unreadable(stage: Stage) -> list[str]:
    """One answer is a page of a proxy, one is cut short. A third request tells that the worker went on."""
    html = Fault(garble=True, status=200, body="<html>busy</html>", content_type="text/html", endpoint=stage.endpoint)
    stage.platform.arm("job-take", html)
    stage.platform.arm("job-take", Fault(change=lambda text: text[:-5], endpoint=stage.endpoint))
    jobs = [await stage.submit(prompt=prompt) for prompt in ("a lighthouse", "a harbour", "a storm")]
    await stage.start_worker("echo")
    await stage.ended(jobs[2], "COMPLETED")
    for job in jobs[:2]:
        await stage.caller.poll(job)
    return jobs[:2]


async def _not_encodable_either(stage: Stage) -> list[str]:
    """The SDK says nothing that can be waited for; a third request tells that the worker went on."""
    jobs = [await stage.submit(prompt="a tree", form=form) for form in ("circular", "half a character", "text")]
    await stage.start_worker("cannot_encode")
    await stage.ended(jobs[2], "COMPLETED")
    for job in jobs[:2]:
        await stage.caller.poll(job)
    return jobs[:2]


async def _results_on_the_way(stage: Stage) -> list[str]:
    """One result meets a connection that breaks, one a platform that fails three times, which is all that is tried."""
    stage.platform.arm("job-done", Fault(hangup=True, endpoint=stage.endpoint))
    stage.platform.arm("job-done", Fault(status=500, times=3, endpoint=stage.endpoint))
    jobs = [await stage.submit(prompt=prompt) for prompt in ("a lighthouse", "a harbour", "a storm")]
    await stage.start_worker("echo")
    await stage.ended(jobs[2], "COMPLETED")
    for job in jobs[:2]:
        await stage.caller.poll(job)
    return jobs[:2]


# ------------------------------------------------------------------------------------------------------------- prestart


def _starts_badly(how: str, *, bound: str | None = None) -> Drive:
    async def drive(stage: Stage) -> list[str]:
        job = await stage.submit(prompt="a lighthouse")
        settings = {"DEMO_START": how, **({"DEMO_BOUND": bound} if bound is not None else {})}
        await stage.start_worker("starts_badly", settings=settings)
        await stage.ended(job)
        return [job]

    return drive


async def _fails_before_any_request(stage: Stage) -> list[str]:
    """The request comes when the hook has failed already, and the worker claims it only to fail it."""
    worker = await stage.start_worker("starts_badly", settings={"DEMO_START": "raises"})
    await worker.wait_line("warming up")
    await stage.seen("job-take")
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def _told_to_leave_in_prestart(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("starts_badly", settings={"DEMO_START": "hangs"})
    await worker.wait_line("warming up")
    await stage.seen("claimed", job=job)
    # The platform's answer still has to reach the worker; its other process pings once a second.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 3)
    worker.terminate()
    await stage.ended(job)
    return [job]


async def _loop_held(stage: Stage, how: str) -> tuple[WorkerProcess, str]:
    """The poll that is open when prestart takes the loop away is answered with a request."""
    stage.platform.hold(stage.endpoint, 120.0, stop_seconds=120.0)
    worker = await stage.start_worker("holds_loop", settings={"DEMO_HOLD": how})
    await stage.seen("job-take")
    stage.download_ends("polled")
    await worker.wait_line("compiling kernels")
    job = await stage.submit(prompt="a lighthouse")
    await stage.seen("claimed", job=job)
    return worker, job


async def _freed_from_prestart(stage: Stage) -> list[str]:
    worker, job = await _loop_held(stage, "Python")
    worker.terminate()
    await stage.ended(job)
    return [job]


async def _left_unread(stage: Stage) -> list[str]:
    worker, job = await _loop_held(stage, "native code")
    stage.download_ends("tokenizer.json")
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


def _rare(
    name: str, story: str, verdict: str, cause: str, drive: Drive, says: str = "", *, while_it_lives: bool = False
) -> Scenario:
    return Scenario(name, story, verdict, cause, drive, says=says, slow=True, while_it_lives=while_it_lives)


RARE: Final = (
    # The long ones first, so that the others play beside them.
    _rare(
        "stop-channel-fails",
        "The caller cancels; the stop channel answers every poll with 500.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_channel_refuses(500),
        says="stop channel failing",
    ),
    _rare(
        "stop-channel-throttled",
        "The caller cancels; the stop channel answers every poll with 429.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_channel_refuses(429),
        says="stop channel failing",
    ),
    _rare(
        "stop-shapes",
        "The caller cancels six requests; each signal has another wrong shape.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_shapes,
        says="stop channel violating",
    ),
    _rare(
        "stop-channel-disabled",
        "The caller cancels; the worker has no address to hear of it.",
        "stop_signal_lost",
        "platform_api_error",
        _no_stop_channel,
        says="stop channel disabled",
    ),
    _rare(
        "killed-unwatched",
        "A worker without the launcher is killed; its other process goes on pinging.",
        "worker_killed",
        "unknown",
        _killed_unwatched,
        says="not been heard of",
        while_it_lives=True,
    ),
    _rare(
        "over-its-time",
        "A request runs longer than its caller allows.",
        "execution_timeout",
        "timeout",
        _over_its_time,
        says="TIMED_OUT",
        while_it_lives=True,
    ),
    _rare(
        "stop-meets-delivery",
        "The caller cancels while the result is on its way.",
        "stop_late",
        "request_cancelled",
        _stop_meets_delivery,
    ),
    _rare(
        "stop-late-while-leaving",
        "The caller cancels and the worker is told to leave; a sync handler blocks the loop.",
        "stop_late",
        "request_cancelled",
        _stop_late_while_leaving,
    ),
    _rare("drained", "A worker that is told to leave finishes its request first.", "completed", "no_failure", _drained),
    _rare(
        "three-drained",
        "A worker that is told to leave finishes its three requests and takes no fourth.",
        "completed",
        "no_failure",
        _three_drained,
    ),
    _rare(
        "one-of-three-stopped",
        "One of three requests of a worker is stopped; the others go on.",
        "completed",
        "no_failure",
        _one_of_three_stopped,
    ),
    _rare("refreshed", "A worker leaves after each request, as it is made to.", "completed", "no_failure", _refreshed),
    _rare("streams", "An async generator streams its answer.", "completed", "no_failure", _streams("async", tokens=3)),
    _rare(
        "async-generator-raises",
        "An async generator breaks after its third chunk.",
        "generator_failed",
        "handler_exception",
        _streams("async", tokens=4),
        says="no fourth token",
    ),
    _rare(
        "plain-generator-raises",
        "A generator whose chunks are not gathered breaks after its third.",
        "generator_failed",
        "handler_exception",
        _streams("sync", tokens=4),
        says="no fourth token",
    ),
    _rare(
        "handler-exits-at-once",
        "The handler ends the process without a clean-up, by `os._exit`.",
        "handler_exited",
        "unknown",
        _ends_worker("exit"),
        says="7",
    ),
    _rare(
        "handler-interrupts",
        "The handler raises KeyboardInterrupt, which ends the worker.",
        "handler_exited",
        "handler_exception",
        _ends_worker("interrupt"),
        says="KeyboardInterrupt",
    ),
    _rare(
        "scaling-breaks",
        "The function that sets how many requests a worker takes raises while one is running.",
        "worker_crashed",
        "handler_exception",
        _scaling_breaks,
        says="free memory of this GPU",
    ),
    _rare(
        "boot-crash-held",
        "The worker's script fails while it is imported, and a thread keeps the process.",
        "boot_crashed",
        "import_error",
        _boot_crash_held,
        says="flash_attention_kernels",
        while_it_lives=True,
    ),
    _rare(
        "claim-unreadable",
        "The platform hands a request out in an answer that cannot be read.",
        "claim_lost_on_intake",
        "platform_api_error",
        _claim_unreadable,
    ),
    _rare(
        "result-circular",
        "The handler returns a dict that holds itself, or half a character.",
        "result_undeliverable",
        "output_not_serializable",
        _not_encodable_either,
    ),
    _rare(
        "result-on-the-way",
        "The connection breaks under the result, or the platform fails three times.",
        "result_lost",
        "platform_api_error",
        _results_on_the_way,
    ),
    _rare(
        "prestart-fails-at-once",
        "A prestart hook fails at once, with a request in the queue.",
        "prestart_failed",
        "model_not_found",
        _starts_badly("raises"),
        says="tokenizer.json",
    ),
    _rare(
        "prestart-fails-idle",
        "A prestart hook fails before any request has come.",
        "prestart_failed",
        "model_not_found",
        _fails_before_any_request,
        says="tokenizer.json",
    ),
    _rare(
        "prestart-own-timeout",
        "A prestart hook raises a TimeoutError of its own; no bound is set.",
        "prestart_failed",
        "timeout",
        _starts_badly("own timeout"),
        says="did not answer within 5 s",
    ),
    _rare(
        "initializer-own-timeout",
        "The initializer raises a TimeoutError of its own; no bound is set.",
        "init_failed",
        "timeout",
        _starts_badly("initializer's own timeout"),
        says="did not answer within 5 s",
    ),
    _rare(
        "prestart-deaf",
        "A prestart hook ignores its cancellation when its bound of two seconds is over.",
        "prestart_timeout",
        "timeout",
        _starts_badly("deaf", bound="2"),
        says="warm_up",
    ),
    _rare(
        "prestart-bound-of-zero",
        "The bound of the prestart phase is 0, which is a bound.",
        "prestart_timeout",
        "timeout",
        _starts_badly("hangs", bound="0"),
        says="warm_up",
    ),
    _rare(
        "freed-from-prestart",
        "A prestart hook blocks the event loop while a request is handed out, and the worker is told to leave.",
        "prestart_failed",
        "terminated_by_platform",
        _freed_from_prestart,
        says="warm_up",
    ),
    _rare(
        "claim-left-unread",
        "Native code holds the event loop while a request is handed out, and prestart fails.",
        "claim_lost_on_intake",
        "model_not_found",
        _left_unread,
        says="unread",
    ),
    _rare(
        "told-to-leave-in-prestart",
        "A worker with a request in hand is told to leave while a prestart hook hangs.",
        "prestart_failed",
        "terminated_by_platform",
        _told_to_leave_in_prestart,
        says="warm_up",
    ),
)
