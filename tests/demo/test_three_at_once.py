"""Three requests at once in one worker, with all that its handler prints allowed out: each gets its own answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from collector.demo.platform import running_platform
from collector.demo.show import running_server
from collector.demo.stage import Stage

WORKER = """
import asyncio
import runpod
import sdk_exporter
sdk_exporter.instrument()

running = 0
all_running = asyncio.Event()

async def handler(job):
    global running
    name = job["input"]["name"]
    print(f"{name} begins", flush=True)
    running += 1
    if running == 3:
        all_running.set()
    await all_running.wait()
    for number in range(20):
        print(f"{name} writes line {number}", flush=True)
        await asyncio.sleep(0)
    if name == "anna":
        raise RuntimeError("the model of anna is gone")
    if name == "berta":
        print("berta waits", flush=True)
        await asyncio.Event().wait()
    return name

runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda now: 3})
"""
EXPECTED = {"anna": "handler_failed", "berta": "stopped", "carla": "completed"}
REASON = "the model of anna is gone"


async def answers_of(server: str, jobs: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The server's answers by name, once all have the expected verdict and the reason is there (the caller's word that
    it failed may come first), or the time for it is over."""
    async with httpx.AsyncClient(base_url=server, trust_env=False, timeout=60) as client:
        for _ in range(300):
            replies = {name: await client.get(f"/api/v1/jobs/{job}") for name, job in jobs.items()}
            found = {name: reply.json() for name, reply in replies.items() if reply.status_code == httpx.codes.OK}
            codes = {name: answer["verdict"]["code"] for name, answer in found.items()}
            if codes == EXPECTED and REASON in str(found["anna"]):
                break
            await asyncio.sleep(0.2)
        return found


@pytest.mark.parametrize("launcher", [True, False], ids=["under the launcher", "alone"])
async def test_one_fails_one_is_stopped_one_is_fine_and_none_has_a_line_of_another(  # A39
    tmp_path: Path, launcher: bool
) -> None:
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    (tmp_path / "three.py").write_text(WORKER)
    async with (
        running_server(f"chdb://{tmp_path / 'store'}") as server,
        running_platform(hold_seconds=1.0, stop_hold_seconds=1.0) as platform,
        Stage(platform, server, tmp_path, "three", handler_logs=True) as stage,
    ):
        jobs = {name: await stage.submit(name=name) for name in EXPECTED}
        worker = await stage.start_worker(str(tmp_path / "three"), launcher=launcher)
        await worker.wait_line("berta waits")
        await stage.ended(jobs["anna"])
        await stage.ended(jobs["carla"])
        await stage.caller.cancel(jobs["berta"])
        await worker.wait_line("Job stopped.")
        found = await answers_of(server, jobs)
        assert {name: answer["verdict"]["code"] for name, answer in found.items()} == EXPECTED
        tails = {name: str(answer) for name, answer in found.items()}
        assert REASON in tails["anna"]
        for name, text in tails.items():
            for other in set(EXPECTED) - {name}:
                assert f"{other} writes" not in text, (name, text)
                assert f"{other} begins" not in text
        if not launcher:
            assert "anna writes line 19" in tails["anna"]
