"""Rare things that were seen of real workers, and what each must be told to be. All are shown with `--all` only.

`docs/observations.md` lists which scenario stands for which observation.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from collector.demo.drives import until_line
from collector.demo.platform import Fault
from collector.demo.rare_prestart import PRESTART
from collector.demo.rare_stops import STOPS
from collector.demo.scenario import Drive, rare, waiting
from collector.demo.stage import Stage


async def _drained(stage: Stage) -> list[str]:
    worker, jobs = await waiting(stage, "a lighthouse")
    worker.terminate()
    await worker.wait_line("Kill worker.")
    stage.download_ends("picture.png")
    await stage.ended(jobs[0], "COMPLETED")
    return jobs


async def _three_drained(stage: Stage) -> list[str]:
    """The fourth stays in the queue: a worker that leaves takes no more."""
    worker, jobs = await waiting(stage, "a lighthouse", "a harbour", "a storm", at_a_time=3)
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


RARE: Final = (
    *STOPS,  # the long ones first, so that the others play beside them
    rare(
        "killed-unwatched",
        "A worker without the launcher is killed; its other process goes on pinging.",
        "worker_killed",
        "unknown",
        _killed_unwatched,
        says="not been heard of",
        while_it_lives=True,
    ),
    rare("drained", "A worker that is told to leave finishes its request first.", "completed", "no_failure", _drained),
    rare(
        "three-drained",
        "A worker that is told to leave finishes its three requests and takes no fourth.",
        "completed",
        "no_failure",
        _three_drained,
    ),
    rare("refreshed", "A worker leaves after each request, as it is made to.", "completed", "no_failure", _refreshed),
    rare("streams", "An async generator streams its answer.", "completed", "no_failure", _streams("async", tokens=3)),
    rare(
        "async-generator-raises",
        "An async generator breaks after its third chunk.",
        "generator_failed",
        "handler_exception",
        _streams("async", tokens=4),
        says="no fourth token",
    ),
    rare(
        "plain-generator-raises",
        "A generator whose chunks are not gathered breaks after its third.",
        "generator_failed",
        "handler_exception",
        _streams("sync", tokens=4),
        says="no fourth token",
    ),
    rare(
        "handler-exits-at-once",
        "The handler ends the process without a clean-up, by `os._exit`.",
        "handler_exited",
        "unknown",
        _ends_worker("exit"),
        says="7",
    ),
    rare(
        "handler-interrupts",
        "The handler raises KeyboardInterrupt, which ends the worker.",
        "handler_exited",
        "handler_exception",
        _ends_worker("interrupt"),
        says="KeyboardInterrupt",
    ),
    rare(
        "scaling-breaks",
        "The function that sets how many requests a worker takes raises while one is running.",
        "worker_crashed",
        "handler_exception",
        _scaling_breaks,
        says="free memory of this GPU",
    ),
    rare(
        "boot-crash-held",
        "The worker's script fails while it is imported, and a thread keeps the process.",
        "boot_crashed",
        "import_error",
        until_line("boot_crash_held", "ModuleNotFoundError"),
        says="flash_attention_kernels",
        while_it_lives=True,
    ),
    rare(
        "claim-unreadable",
        "The platform hands a request out in an answer that cannot be read.",
        "claim_lost_on_intake",
        "platform_api_error",
        _claim_unreadable,
    ),
    rare(
        "result-circular",
        "The handler returns a dict that holds itself, or half a character.",
        "result_undeliverable",
        "output_not_serializable",
        _not_encodable_either,
    ),
    rare(
        "result-on-the-way",
        "The connection breaks under the result, or the platform fails three times.",
        "result_lost",
        "platform_api_error",
        _results_on_the_way,
    ),
    *PRESTART,
)
