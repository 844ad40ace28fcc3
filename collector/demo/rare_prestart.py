"""Rare ways in which a worker does not become ready."""

from __future__ import annotations

from typing import Final

from collector.demo.scenario import Drive, rare
from collector.demo.stage import Stage, WorkerProcess


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


PRESTART: Final = (
    rare(
        "prestart-fails-at-once",
        "A prestart hook fails at once, with a request in the queue.",
        "prestart_failed",
        "model_not_found",
        _starts_badly("raises"),
        says="tokenizer.json",
    ),
    rare(
        "prestart-fails-idle",
        "A prestart hook fails before any request has come.",
        "prestart_failed",
        "model_not_found",
        _fails_before_any_request,
        says="tokenizer.json",
    ),
    rare(
        "prestart-own-timeout",
        "A prestart hook raises a TimeoutError of its own; no bound is set.",
        "prestart_failed",
        "timeout",
        _starts_badly("own timeout"),
        says="did not answer within 5 s",
    ),
    rare(
        "initializer-own-timeout",
        "The initializer raises a TimeoutError of its own; no bound is set.",
        "init_failed",
        "timeout",
        _starts_badly("initializer's own timeout"),
        says="did not answer within 5 s",
    ),
    rare(
        "prestart-deaf",
        "A prestart hook ignores its cancellation when its bound of two seconds is over.",
        "prestart_timeout",
        "timeout",
        _starts_badly("deaf", bound="2"),
        says="warm_up",
    ),
    rare(
        "prestart-bound-of-zero",
        "The bound of the prestart phase is 0, which is a bound.",
        "prestart_timeout",
        "timeout",
        _starts_badly("hangs", bound="0"),
        says="warm_up",
    ),
    rare(
        "freed-from-prestart",
        "A prestart hook blocks the event loop while a request is handed out, and the worker is told to leave.",
        "prestart_failed",
        "terminated_by_platform",
        _freed_from_prestart,
        says="warm_up",
    ),
    rare(
        "claim-left-unread",
        "Native code holds the event loop while a request is handed out, and prestart fails.",
        "claim_lost_on_intake",
        "model_not_found",
        _left_unread,
        says="unread",
    ),
    rare(
        "told-to-leave-in-prestart",
        "A worker with a request in hand is told to leave while a prestart hook hangs.",
        "prestart_failed",
        "terminated_by_platform",
        _told_to_leave_in_prestart,
        says="warm_up",
    ),
)
