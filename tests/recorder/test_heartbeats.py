"""The four heartbeats of a real worker under the launcher: each stops for a reason of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from launched import clean_environment, until, worker_of
from launched import sink as sink
from otlp_sink import Sink

from collector.demo.platform import Platform, running_platform, worker_env
from collector.demo.stage import descendants, kill

WORKER = """
import asyncio, pathlib, subprocess, sys, time
import runpod
import sdk_exporter
sdk_exporter.instrument()

engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # engine"])

def blocked(job):
    while not pathlib.Path("go " + job["id"]).exists():
        time.sleep(0.05)

async def handler(job):
    print("step", job["input"]["do"], flush=True)
    if job["input"]["do"] == "block the loop":
        blocked(job)
    elif job["input"]["do"] == "wait for the GPU":
        await asyncio.to_thread(blocked, job)
    elif job["input"]["do"] == "lose the engine":
        engine.kill()
    return 1

runpod.serverless.start({"handler": handler})
"""

OLD, FRESH = 4.0, 2.0
"""Seconds: what has stopped is looked for until it is this old, while at least one beat shows the others fresh."""


def beats(sink: Sink) -> list[dict[str, Any]]:
    prefix = "stallscope.heartbeat."
    return [
        {key.removeprefix(prefix): value for key, value in span.attributes.items() if key.startswith(prefix)}
        for span in sink.named("worker.heartbeat")
    ]


def fresh(beat: dict[str, Any], *names: str) -> bool:
    return all(beat.get(name, OLD) < FRESH for name in names)


def stopped(beat: dict[str, Any], *names: str) -> bool:
    """One that never came is no sign of anything."""
    return all(beat.get(name, 0.0) > OLD for name in names)


async def beat(sink: Sink, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """A heartbeat that fulfils the condition."""
    return await asyncio.to_thread(sink.wait_for, lambda sink: next(filter(condition, beats(sink)), None), 90.0)


async def test_process_loop_progress_and_backend_are_told_apart(sink: Sink, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    async with running_platform(hold_seconds=1.0, stop_hold_seconds=1.0) as platform:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sdk_exporter", "--", sys.executable, str(tmp_path / "worker.py")),
            env={
                **clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url, STALLSCOPE_HEARTBEAT_SECONDS="0.5"),
                **worker_env(platform.base, "beats", "w", home=str(tmp_path)),
            },
            cwd=tmp_path,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await lose_one_after_the_other(platform, sink, tmp_path, process.pid)
        finally:
            kill([process.pid, *descendants(process.pid)])
            await process.wait()


def let_go(directory: Path, job: str) -> None:
    (directory / f"go {job}").touch()


async def lose_one_after_the_other(platform: Platform, sink: Sink, directory: Path, keeper: int) -> None:
    async def submit(do: str) -> str:
        address = f"{platform.base}/v2/beats/run"
        async with aiohttp.ClientSession() as session, session.post(address, json={"input": {"do": do}}) as answer:
            return str((await answer.json())["id"])

    # All is well: an engine that lives, a loop that turns.
    await beat(sink, lambda b: fresh(b, "process", "loop", "backend"))

    # The handler does not come on, and all else does: what a CUDA call that hangs looks like.
    job = await submit("wait for the GPU")
    await beat(sink, lambda b: b["jobs"] == [job] and stopped(b, "progress") and fresh(b, "process", "loop"))
    let_go(directory, job)
    await platform.wait_status(job)

    # The loop is blocked; the process's own thread goes on.
    job = await submit("block the loop")
    await beat(sink, lambda b: b["jobs"] == [job] and stopped(b, "loop") and fresh(b, "process"))
    let_go(directory, job)
    await platform.wait_status(job)

    # The engine is dead; worker and loop are well.
    await platform.wait_status(await submit("lose the engine"))
    await beat(sink, lambda b: stopped(b, "backend") and fresh(b, "process", "loop"))
    (death,) = sink.named("backend.death")
    assert "# engine" in death.attributes["process.command"]

    # The whole process stands still.
    worker = until(lambda: worker_of(keeper))
    os.kill(worker, signal.SIGSTOP)
    await beat(sink, lambda b: stopped(b, "process", "loop"))
    os.kill(worker, signal.SIGKILL)
    await asyncio.to_thread(sink.wait_for, lambda sink: sink.named("worker.death"), 90.0)
