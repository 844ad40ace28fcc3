"""Workers that bring their own event loop or their own threads to the SDK."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from observed_worker import observed_worker, spans

from collector.demo.platform import Platform

UVLOOP = """
import asyncio, threading
import uvloop
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
import runpod
import sdk_exporter

{hook}

async def handler(job):
    assert type(asyncio.get_running_loop()).__module__ == "uvloop"
    do = job["input"]["do"]
    if do == "raise":
        raise ValueError("no")
    if do == "wait":
        print("waiting", flush=True)
        await asyncio.Event().wait()
    return do

runpod.serverless.start({{"handler": handler}})
"""
HOLDS_LOOP = """
@sdk_exporter.prestart
async def warm_up():
    print("held", flush=True)
    threading.Event().wait()
"""

THREADS = """
import anyio, asyncio, concurrent.futures, threading
import runpod
import sdk_exporter

def steps(job):
    with sdk_exporter.job(job["id"]), sdk_exporter.phase("step"):
        return job["input"]["do"]

async def in_trio(job):
    import trio
    async with trio.open_nursery():
        return await trio.to_thread.run_sync(steps, job)

async def handler(job):
    do = job["input"]["do"]
    if do == "anyio":
        return await anyio.to_thread.run_sync(steps, job)
    if do == "trio":
        import trio
        return await asyncio.to_thread(trio.run, in_trio, job)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, steps, job)

runpod.serverless.start({"handler": handler})
"""


async def test_a_worker_on_another_event_loop_is_told_like_any_other(platform: Platform, tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    async with observed_worker(platform, tmp_path, UVLOOP.format(hook="")) as worker:
        await worker.finish(do="something")
        await worker.finish(do="raise")
        stopped = await worker.submit(do="wait")
        await worker.wait_output("waiting")
        await worker.cancel(stopped)
        await worker.wait_span("job.stop")
        assert [(r["s"], r["a"].get("error.type")) for r in spans(worker, "job.run")] == [
            ("ok", None),
            ("error", "ValueError"),
            ("unset", None),
        ]
        assert [r["a"]["stallscope.stop.outcome"] for r in spans(worker, "job.stop")] == ["stopped"]
        assert worker.loop_beat_ns() > 0
        assert await worker.terminate() == 0


async def test_a_hook_that_holds_another_event_loop_is_interrupted_too(platform: Platform, tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    async with observed_worker(platform, tmp_path, UVLOOP.format(hook=HOLDS_LOOP)) as worker:
        await worker.wait_output("held")
        job_id = await worker.submit(do="something")
        assert await worker.terminate() == 0
        job = platform.jobs[job_id]
        # Where no poll was open when the hook took the loop, nobody has claimed the request.
        assert job.status == "IN_QUEUE" or json.loads(job.error)["error_type"] == "PrestartInterrupted"


async def test_work_on_threads_of_other_libraries_belongs_to_its_job(platform: Platform, tmp_path: Path) -> None:
    pytest.importorskip("trio")
    async with observed_worker(platform, tmp_path, THREADS) as worker:
        ids = [await worker.finish(do=do) for do in ("anyio", "trio", "a pool")]
        assert [platform.jobs[job_id].output for job_id in ids] == ["anyio", "trio", "a pool"]
        assert [r["j"] for r in spans(worker, "phase.step")] == ids
        assert [r["j"] for r in spans(worker, "job.run")] == ids
        assert await worker.terminate() == 0
