"""How each usual scenario comes about: a drive goes on by what platform, worker or process show, not by time passed."""

from __future__ import annotations

import json
import os
import re
import signal

from collector.demo.platform import Fault
from collector.demo.scenario import QUICK_BEATS, Drive
from collector.demo.stage import Stage, WorkerProcess


def until_ended(worker: str) -> Drive:
    """A request waits for a worker, and ends for the platform."""

    async def drive(stage: Stage) -> list[str]:
        job = await stage.submit(prompt="a lighthouse")
        await stage.start_worker(worker)
        await stage.ended(job)
        return [job]

    return drive


def until_exit(worker: str) -> Drive:
    """A request waits for a worker that ends by itself, of which the platform hears nothing."""

    async def drive(stage: Stage) -> list[str]:
        job = await stage.submit(prompt="a lighthouse")
        await (await stage.start_worker(worker)).wait_exit()
        await stage.caller.poll(job)
        return [job]

    return drive


def until_line(worker: str, text: str) -> Drive:
    """A request waits for a worker whose last word about it is a line of its log, and no answer."""

    async def drive(stage: Stage) -> list[str]:
        job = await stage.submit(prompt="a lighthouse")
        await (await stage.start_worker(worker)).wait_line(text)
        await stage.caller.poll(job)
        return [job]

    return drive


async def answers(stage: Stage) -> list[str]:
    await stage.start_worker("echo", launcher=False)
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def prestart_out_of_memory(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker("prestart_out_of_memory")
    await stage.seen("claimed", job=job)
    stage.download_ends("model-00002-of-00002.safetensors")
    await stage.ended(job)
    return [job]


async def initializer_raises(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker("initializer_raises")
    await stage.seen("claimed", job=job)
    stage.download_ends("config.json")
    await stage.ended(job)
    return [job]


async def prestart_times_out(stage: Stage) -> list[str]:
    stage.download_ends("cache")
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker("prestart_hangs")
    await stage.ended(job)
    return [job]


async def async_initializer_raises(stage: Stage) -> list[str]:
    """The request comes when the initializer has failed already, and the worker claims it only to fail it."""
    worker = await stage.start_worker("async_initializer_raises")
    await worker.wait_line("connecting to the vector store")
    await stage.seen("job-take")
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def handler_raises(stage: Stage) -> list[str]:
    await stage.start_worker("handler_raises", launcher=False)
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def generator_raises(stage: Stage) -> list[str]:
    await stage.start_worker("generator_raises")
    job = await stage.submit(prompt="what is it?")
    await stage.ended(job)
    return [job]


async def stopped(stage: Stage) -> list[str]:
    worker = await stage.start_worker("slow")
    job = await stage.submit(prompt="a lighthouse")
    await worker.wait_line("step 1 of")  # before its first step the SDK would drop the stop signal
    await stage.caller.cancel(job)
    await stage.ended(job)
    await worker.wait_line("Job stopped.")
    return [job]


async def stop_swallowed(stage: Stage) -> list[str]:
    worker = await stage.start_worker("swallows_stop")
    job = await stage.submit(prompt="a lighthouse")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await stage.seen("late-result", job=job)
    return [job]


async def stranded(stage: Stage) -> list[str]:
    """A worker that was told to leave still has its poll open; the platform answers it with a request."""
    stage.platform.hold(stage.endpoint, 120.0, stop_seconds=1.0)
    worker = await stage.start_worker("echo")
    await stage.seen("job-take")
    worker.terminate()
    await worker.wait_line("Kill worker.")
    # Its loop that runs requests ends within 0.1 s, without a word. Two pings of its other process are a second apart.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 2)
    job = await stage.submit(prompt="a lighthouse")
    await stage.seen("claimed", job=job)
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def worker_killed(stage: Stage) -> list[str]:
    worker = await stage.start_worker("slow")
    job = await stage.submit(prompt="a lighthouse")
    await _kill(worker)
    await stage.caller.poll(job)
    return [job]


async def _kill(worker: WorkerProcess) -> None:
    """SIGKILL the worker itself, not its launcher: its handler writes its process id."""
    line = await worker.wait_line("in process")
    found = re.search(r"in process (\d+)", line)
    if found is None:
        raise ValueError(f"no process id in {line!r}")
    os.kill(int(found[1]), signal.SIGKILL)
    await worker.wait_exit()


async def three_in_hand(stage: Stage) -> list[str]:
    jobs = [await stage.submit(prompt=prompt) for prompt in ("a lighthouse", "a harbour", "a storm")]
    await stage.start_worker("three_in_hand")
    for job in jobs:
        await stage.seen("claimed", job=job)
    stage.download_ends("model.tar")
    for job in jobs:
        await stage.ended(job)
    return jobs


async def result_refused(stage: Stage) -> list[str]:
    stage.platform.arm("job-done", Fault(status=400, body="bad request", endpoint=stage.endpoint))
    worker = await stage.start_worker("echo")
    job = await stage.submit(prompt="a lighthouse")
    await stage.seen("fault", job=job)
    await worker.wait_line("Failed to return job results")
    await stage.caller.poll(job)
    return [job]


async def cleanup_fails(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("cleanup_fails")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await stage.seen("late-result", job=job)
    return [job]


async def stop_late(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("blocks_loop")
    await worker.wait_line("step 1 of")
    # The result is held on its way, so that the signal lands while the worker still has the request.
    stage.platform.arm("job-done", Fault(serve=True, delay_seconds=2.0, endpoint=stage.endpoint))
    await stage.caller.cancel(job)
    await stage.seen("stop-sent")
    stage.download_ends("picture.png")
    await stage.ended(job)
    await worker.wait_line("Stopping job.")
    return [job]


async def cancelled_in_queue(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    await stage.caller.cancel(job)
    await stage.ended(job)
    return [job]


async def empty_input(stage: Stage) -> list[str]:
    job = await stage.submit()
    worker = await stage.start_worker("echo")
    await worker.wait_line("missing field(s)")
    await stage.caller.poll(job)
    return [job]


async def boot_hangs(stage: Stage) -> list[str]:
    """Nothing ever comes of this worker; somebody ends it, and the request is queued still."""
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("boot_hangs")
    await worker.wait_line("at import time")
    worker.terminate()
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def engine_dies(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a novel")
    worker = await stage.start_worker("engine_dies", settings=QUICK_BEATS)
    await worker.wait_line("asking the engine")
    # The recorder looks once a second which processes the worker has; so does the worker's other process ping.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 4)
    stage.download_ends("long-prompt")
    await worker.wait_line("CUDA out of memory")
    return [job]


async def interpreter_held(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("holds_interpreter", settings=QUICK_BEATS)
    await worker.wait_line("calling the kernel")
    return [job]


async def killed_in_prestart(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("prestart_long")
    await stage.seen("claimed", job=job)
    # The platform's answer still has to reach the worker; its other process pings once a second.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 3)
    await _kill(worker)
    await stage.caller.poll(job)
    return [job]


async def stop_ignored(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("ignores_stop")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await worker.wait_line("interrupted, going on")
    # A stop counts as ignored after ten seconds; the worker's other process pings once a second.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 13)
    await _kill(worker)
    return [job]


async def stop_signal_lost(stage: Stage) -> list[str]:
    """The signal names its list in another way than the worker SDK reads it, which drops it without a word."""
    broken = Fault(change=lambda text: text.replace("jobsToStop", "jobs_to_stop"), endpoint=stage.endpoint)
    job = await stage.submit(prompt="a lighthouse")
    stage.platform.arm("job-stop", broken)  # for the poll that the worker opens first
    worker = await stage.start_worker("waits")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await stage.seen("stop-sent")
    await stage.seen("job-stop", count=2)
    stage.download_ends("picture.png")
    await stage.seen("late-result", job=job)
    return [job]


def _with_an_item_without_id(batch: str) -> str:
    return json.dumps([{"input": {"prompt": "nobody's"}}, *json.loads(batch)])


async def claim_lost(stage: Stage) -> list[str]:
    """One item of the batch that a worker takes has no id: the SDK breaks on it, and loses the good one too."""
    broken = Fault(change=_with_an_item_without_id, endpoint=stage.endpoint)
    job = await stage.submit(prompt="a lighthouse")
    stage.platform.arm("job-take-batch", broken)
    worker = await stage.start_worker("takes_three")
    await stage.seen("claimed", job=job)
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]
