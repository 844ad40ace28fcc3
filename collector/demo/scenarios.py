"""What can happen to a request, each with a real worker that does it: shown by `stallscope demo`, checked by the tests.

A scenario's `drive` brings it about on a stage and returns the ids of the requests that it is about; each of them must
get the expected verdict and cause. It goes on by what platform, worker or process show, never by time passed.
"""

from __future__ import annotations

import json
import os
import re
import signal
from typing import Final

from collector.demo.platform import Fault
from collector.demo.rare import RARE
from collector.demo.scenario import QUICK_BEATS, Scenario
from collector.demo.stage import Stage, WorkerProcess

__all__ = ["SCENARIOS", "Scenario"]


async def _answers(stage: Stage) -> list[str]:
    await stage.start_worker("echo", launcher=False)
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def _prestart_out_of_memory(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker("prestart_out_of_memory")
    await stage.seen("claimed", job=job)
    stage.download_ends("model-00002-of-00002.safetensors")
    await stage.ended(job)
    return [job]


async def _initializer_raises(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker("initializer_raises")
    await stage.seen("claimed", job=job)
    stage.download_ends("config.json")
    await stage.ended(job)
    return [job]


async def _prestart_times_out(stage: Stage) -> list[str]:
    stage.download_ends("cache")
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker("prestart_hangs")
    await stage.ended(job)
    return [job]


async def _async_initializer_raises(stage: Stage) -> list[str]:
    """The request comes when the initializer has failed already, and the worker claims it only to fail it."""
    worker = await stage.start_worker("async_initializer_raises")
    await worker.wait_line("connecting to the vector store")
    await stage.seen("job-take")
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def _boot_crashes(stage: Stage) -> list[str]:
    """The platform never hears of this worker: the request is queued and stays so."""
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("boot_crashes")
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def _handler_raises(stage: Stage) -> list[str]:
    await stage.start_worker("handler_raises", launcher=False)
    job = await stage.submit(prompt="a lighthouse")
    await stage.ended(job)
    return [job]


async def _generator_raises(stage: Stage) -> list[str]:
    await stage.start_worker("generator_raises")
    job = await stage.submit(prompt="what is it?")
    await stage.ended(job)
    return [job]


async def _stopped(stage: Stage) -> list[str]:
    worker = await stage.start_worker("slow")
    job = await stage.submit(prompt="a lighthouse")
    await worker.wait_line("step 1 of")  # before its first step the SDK would drop the stop signal
    await stage.caller.cancel(job)
    await stage.ended(job)
    await worker.wait_line("Job stopped.")
    return [job]


async def _stop_swallowed(stage: Stage) -> list[str]:
    worker = await stage.start_worker("swallows_stop")
    job = await stage.submit(prompt="a lighthouse")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await stage.seen("late-result", job=job)
    return [job]


async def _stranded(stage: Stage) -> list[str]:
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


async def _worker_killed(stage: Stage) -> list[str]:
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


async def _three_in_hand(stage: Stage) -> list[str]:
    jobs = [await stage.submit(prompt=prompt) for prompt in ("a lighthouse", "a harbour", "a storm")]
    await stage.start_worker("three_in_hand")
    for job in jobs:
        await stage.seen("claimed", job=job)
    stage.download_ends("model.tar")
    for job in jobs:
        await stage.ended(job)
    return jobs


async def _result_refused(stage: Stage) -> list[str]:
    stage.platform.arm("job-done", Fault(status=400, body="bad request", endpoint=stage.endpoint))
    worker = await stage.start_worker("echo")
    job = await stage.submit(prompt="a lighthouse")
    await stage.seen("fault", job=job)
    await worker.wait_line("Failed to return job results")
    await stage.caller.poll(job)
    return [job]


async def _one_request(stage: Stage, worker: str) -> str:
    """Start a worker and send it one request."""
    job = await stage.submit(prompt="a lighthouse")
    await stage.start_worker(worker)
    return job


async def _returns_error(stage: Stage) -> list[str]:
    job = await _one_request(stage, "returns_error")
    await stage.ended(job)
    return [job]


async def _handler_exits(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("exits")
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def _native_crash(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("native_crash")
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def _cannot_encode(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("cannot_encode")
    await worker.wait_line("Finished.")  # the worker SDK says so even though nothing was sent
    await stage.caller.poll(job)
    return [job]


async def _cleanup_fails(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("cleanup_fails")
    await worker.wait_line("step 1 of")
    await stage.caller.cancel(job)
    await stage.ended(job)
    await stage.seen("late-result", job=job)
    return [job]


async def _stop_late(stage: Stage) -> list[str]:
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


async def _cancels_itself(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("cancels_itself")
    await worker.wait_line("Job stopped.")
    await stage.caller.poll(job)
    return [job]


async def _initializer_times_out(stage: Stage) -> list[str]:
    job = await _one_request(stage, "initializer_hangs")
    await stage.ended(job)
    return [job]


async def _unfit(stage: Stage) -> list[str]:
    """A worker that finds itself unfit never asks for work: the request is queued and stays so."""
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("unfit")
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def _cancelled_in_queue(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    await stage.caller.cancel(job)
    await stage.ended(job)
    return [job]


async def _empty_input(stage: Stage) -> list[str]:
    job = await stage.submit()
    worker = await stage.start_worker("echo")
    await worker.wait_line("missing field(s)")
    await stage.caller.poll(job)
    return [job]


async def _boot_hangs(stage: Stage) -> list[str]:
    """Nothing ever comes of this worker; somebody ends it, and the request is queued still."""
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("boot_hangs")
    await worker.wait_line("at import time")
    worker.terminate()
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


async def _engine_dies(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a novel")
    worker = await stage.start_worker("engine_dies", settings=QUICK_BEATS)
    await worker.wait_line("asking the engine")
    # The recorder looks once a second which processes the worker has; so does the worker's other process ping.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 4)
    stage.download_ends("long-prompt")
    await worker.wait_line("CUDA out of memory")
    return [job]


async def _interpreter_held(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("holds_interpreter", settings=QUICK_BEATS)
    await worker.wait_line("calling the kernel")
    return [job]


async def _killed_in_prestart(stage: Stage) -> list[str]:
    job = await stage.submit(prompt="a lighthouse")
    worker = await stage.start_worker("prestart_long")
    await stage.seen("claimed", job=job)
    # The platform's answer still has to reach the worker; its other process pings once a second.
    pings = len(stage.platform.find_events("ping", endpoint=stage.endpoint))
    await stage.seen("ping", count=pings + 3)
    await _kill(worker)
    await stage.caller.poll(job)
    return [job]


async def _stop_ignored(stage: Stage) -> list[str]:
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


async def _stop_signal_lost(stage: Stage) -> list[str]:
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


async def _claim_lost(stage: Stage) -> list[str]:
    """One item of the batch that a worker takes has no id: the SDK breaks on it, and loses the good one too."""
    broken = Fault(change=_with_an_item_without_id, endpoint=stage.endpoint)
    job = await stage.submit(prompt="a lighthouse")
    stage.platform.arm("job-take-batch", broken)
    worker = await stage.start_worker("takes_three")
    await stage.seen("claimed", job=job)
    await worker.wait_exit()
    await stage.caller.poll(job)
    return [job]


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        "prestart-out-of-memory",
        "A prestart hook loads a model that does not fit the GPU.",
        "prestart_failed",
        "cuda_oom",
        _prestart_out_of_memory,
        says="CUDA out of memory",
    ),
    Scenario(
        "success",
        "A request is answered.",
        "completed",
        "no_failure",
        _answers,
        says="",
    ),
    Scenario(
        "initializer-raises",
        "The initializer loads a model whose licence was not accepted.",
        "init_failed",
        "gated_model_auth",
        _initializer_raises,
        says="gatedrepo",
    ),
    Scenario(
        "prestart-times-out",
        "The second of two prestart hooks hangs; the phase has a bound.",
        "prestart_timeout",
        "timeout",
        _prestart_times_out,
        says="fetch_weights",
    ),
    Scenario(
        "async-initializer-raises",
        "An async initializer fails at once, before any request has come.",
        "init_failed",
        "config_invalid",
        _async_initializer_raises,
        says="VECTOR_STORE_URL",
    ),
    Scenario(
        "boot-crashes",
        "The worker's script fails while it is imported.",
        "boot_crashed",
        "import_error",
        _boot_crashes,
        says="flash_attention_kernels",
    ),
    Scenario(
        "handler-raises",
        "The handler expects a key that the request does not have.",
        "handler_failed",
        "handler_exception",
        _handler_raises,
        says="image_size",
    ),
    Scenario(
        "generator-raises",
        "A generator handler breaks after its third chunk.",
        "generator_failed",
        "cuda_error",
        _generator_raises,
        says="device-side assert",
        handler_logs=True,
    ),
    Scenario(
        "stopped",
        "The caller cancels; the async handler lets itself be stopped.",
        "stopped",
        "request_cancelled",
        _stopped,
        says="",
    ),
    Scenario(
        "stop-swallowed",
        "The caller cancels; the handler catches the cancellation and returns a result.",
        "stop_swallowed",
        "request_cancelled",
        _stop_swallowed,
        says="",
        handler_logs=True,
    ),
    Scenario(
        "stranded-claim",
        "A worker that was told to leave still claims a request, and leaves with it.",
        "stranded_claim",
        "terminated_by_platform",
        _stranded,
        says="SIGTERM",
    ),
    Scenario(
        "worker-killed",
        "The worker is killed in the middle of a request.",
        "worker_killed",
        "unknown",
        _worker_killed,
        says="SIGKILL",
        names_setting="STALLSCOPE_HANDLER_LOGS",
    ),
    Scenario(
        "three-in-hand",
        "The initializer finds the disk full while the worker holds three requests.",
        "init_failed",
        "disk_full",
        _three_in_hand,
        says="No space left on device",
    ),
    Scenario(
        "result-refused",
        "The platform refuses the result; the worker says it has finished.",
        "result_lost",
        "platform_api_error",
        _result_refused,
        says="400",
    ),
    Scenario(
        "handler-returns-error",
        "The handler returns a dict with `error`.",
        "handler_returned_error",
        "disk_full",
        _returns_error,
        says="No space left on device",
        handler_logs=True,
        slow=True,
    ),
    Scenario(
        "handler-exits",
        "The handler ends the process.",
        "handler_exited",
        "handler_exception",
        _handler_exits,
        says="SystemExit",
        slow=True,
    ),
    Scenario(
        "native-crash",
        "Native code crashes the process in the middle of a request.",
        "worker_crashed",
        "native_crash",
        _native_crash,
        says="SIGSEGV",
        slow=True,
    ),
    Scenario(
        "result-not-encodable",
        "The handler returns an object that JSON does not know.",
        "result_undeliverable",
        "output_not_serializable",
        _cannot_encode,
        says="JSON serializable",
        slow=True,
    ),
    Scenario(
        "stop-cleanup-fails",
        "The caller cancels; the handler raises while it tidies up.",
        "stop_cleanup_failed",
        "handler_exception",
        _cleanup_fails,
        says="half-done.png",
        slow=True,
    ),
    Scenario(
        "stop-late",
        "The caller cancels; a sync handler blocks the worker's loop and delivers all the same.",
        "stop_late",
        "request_cancelled",
        _stop_late,
        says="",
        slow=True,
    ),
    Scenario(
        "cancels-itself",
        "The handler raises CancelledError though nobody asked for a stop.",
        "self_cancelled",
        "handler_exception",
        _cancels_itself,
        says="CancelledError",
        slow=True,
    ),
    Scenario(
        "initializer-times-out",
        "The initializer hangs; it has a bound.",
        "init_timeout",
        "timeout",
        _initializer_times_out,
        says="load_model",
        slow=True,
    ),
    Scenario(
        "unfit",
        "A fitness check finds no GPU.",
        "fitness_failed",
        "gpu_unavailable",
        _unfit,
        says="No CUDA GPUs are available",
        slow=True,
    ),
    Scenario(
        "cancelled-in-queue",
        "The caller cancels before any worker has come.",
        "cancelled_in_queue",
        "request_cancelled",
        _cancelled_in_queue,
        says="",
        slow=True,
    ),
    Scenario(
        "empty-input",
        "The caller sends an empty input, which is dropped on the way.",
        "empty_input_dropped",
        "input_invalid",
        _empty_input,
        says="",
        slow=True,
    ),
    Scenario(
        "claim-lost-on-intake",
        "The batch that hands the request out holds an item without an id.",
        "claim_lost_on_intake",
        "platform_api_error",
        _claim_lost,
        says="no id",
        slow=True,
    ),
    Scenario(
        "boot-hangs",
        "The worker's script waits for a download while it is imported.",
        "boot_hung",
        "unknown",
        _boot_hangs,
        says="at import time",
        slow=True,
    ),
    Scenario(
        "engine-dies",
        "The engine, a child process of the worker, is killed; the handler waits for its answer.",
        "backend_dead",
        "cuda_oom",
        _engine_dies,
        says="collector.demo.workers.engine",
        handler_logs=True,
        slow=True,
        while_it_lives=True,
    ),
    Scenario(
        "interpreter-held",
        "Native code in the handler never gives Python back: event loop and threads stand still.",
        "worker_hung",
        "unknown",
        _interpreter_held,
        says="no thread",
        slow=True,
        while_it_lives=True,
    ),
    Scenario(
        "killed-in-prestart",
        "The worker is killed while its prestart hook loads the model, with a request in hand.",
        "stranded_claim",
        "unknown",
        _killed_in_prestart,
        says="load_model",
        slow=True,
    ),
    Scenario(
        "stop-ignored",
        "The caller cancels; the handler catches every cancellation and goes on.",
        "stop_ignored",
        "request_cancelled",
        _stop_ignored,
        says="ignored",
        slow=True,
    ),
    Scenario(
        "stop-signal-lost",
        "The caller cancels; the signal has another shape than the worker reads.",
        "stop_signal_lost",
        "platform_api_error",
        _stop_signal_lost,
        says="never reached",
        slow=True,
    ),
    *RARE,
)
