"""The platform stand-in, asked by the real worker SDK and by plain callers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from collector.demo.platform import Fault, Platform, running_platform, worker_env

ENDPOINT = "endpoint-a"
WORKER = "worker-a"

ECHO = """
import asyncio, runpod
async def handler(job):
    if job["input"].get("sleep"):
        print("the handler runs", flush=True)
        await asyncio.sleep(600)
    if job["input"].get("raise"):
        raise ValueError("no such prompt")
    return {"echo": job["input"]}
runpod.serverless.start({"handler": handler})
"""

GENERATOR = """
import runpod
def handler(job):
    yield {"part": 1}
    yield {"part": 2}
runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
"""


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with running_platform(hold_seconds=2, stop_hold_seconds=2) as running:
        yield running


@pytest.fixture
async def caller(platform: Platform) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"{platform.base}/v2/{ENDPOINT}/") as session:
        yield session


@asynccontextmanager
async def worker(platform: Platform, home: Path, source: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A real worker process of the real SDK, in a process group of its own (it forks a pinger)."""
    (home / "worker.py").write_text(source)
    environment = {**os.environ, **worker_env(platform.base, ENDPOINT, WORKER, home=str(home))}
    command = (sys.executable, "-u", "worker.py")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=home, env=environment, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, 9)
        assert process.stdout is not None
        await process.stdout.read()
        await process.wait()


async def post(caller: aiohttp.ClientSession, path: str, body: Any = None) -> dict[str, Any]:
    async with caller.post(path, json=body) as answer:
        said: dict[str, Any] = await answer.json()
        return said


async def test_a_real_worker_takes_a_job_and_its_result_is_answered(
    platform: Platform, caller: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with worker(platform, tmp_path, ECHO):
        said = await post(caller, "run", {"input": {"prompt": "hi"}})
        assert said["status"] == "IN_QUEUE"
        job = await platform.wait_status(said["id"])
        assert job.view() == {
            "id": said["id"],
            "status": "COMPLETED",
            "delayTime": job.view()["delayTime"],
            "executionTime": job.view()["executionTime"],
            "workerId": WORKER,
            "output": {"echo": {"prompt": "hi"}},
        }
        await platform.wait_event("ping", worker=WORKER)
        async with caller.get("health") as answer:
            health = await answer.json()
        assert health["jobs"]["completed"] == 1
        assert health["workers"]["ready"] == 1
        failing = await post(caller, "run", {"input": {"raise": True}})
        job = await platform.wait_status(failing["id"])
        assert job.status == "FAILED"
        assert json.loads(job.error)["error_message"] == "no such prompt"


async def test_cancelling_a_running_job_sends_its_stop_signal_once(
    platform: Platform, caller: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with worker(platform, tmp_path, ECHO) as process:
        said = await post(caller, "run", {"input": {"sleep": True}})
        assert process.stdout is not None
        # Between claim and start there is a window in which the SDK drops a stop signal for good.
        while b"the handler runs" not in await asyncio.wait_for(process.stdout.readline(), 60):
            pass
        assert await post(caller, f"cancel/{said['id']}") == {"id": said["id"], "status": "CANCELLED"}
        await platform.wait_event("stop-sent", worker=WORKER)
        after = await post(caller, "run", {"input": {"prompt": "the slot is free"}})
        assert (await platform.wait_status(after["id"])).status == "COMPLETED"
        assert len(platform.find_events("stop-sent")) == 1
        assert platform.find_events("job-done", job=said["id"]) == []


async def test_a_generator_streams_its_parts_and_then_delivers(
    platform: Platform, caller: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with worker(platform, tmp_path, GENERATOR):
        said = await post(caller, "run", {"input": {"prompt": "hi"}})
        assert (await platform.wait_status(said["id"])).output == [{"part": 1}, {"part": 2}]
        async with caller.get(f"stream/{said['id']}") as answer:
            streamed = await answer.json()
        assert [chunk["output"] for chunk in streamed["stream"]] == [{"part": 1}, {"part": 2}]


async def test_a_refused_result_leaves_the_job_in_progress(
    platform: Platform, caller: aiohttp.ClientSession, tmp_path: Path
) -> None:
    platform.arm("job-done", Fault(status=400))
    async with worker(platform, tmp_path, ECHO):
        said = await post(caller, "run", {"input": {"prompt": "hi"}})
        refused = await platform.wait_event("fault", job=said["id"])
        assert (refused.detail["route"], refused.detail["status"]) == ("job-done", 400)
        after = await post(caller, "run", {"input": {"prompt": "next"}})
        await platform.wait_status(after["id"])
        assert platform.jobs[said["id"]].status == "IN_PROGRESS"


async def test_an_empty_input_is_dropped_on_the_way(platform: Platform, caller: aiohttp.ClientSession) -> None:
    said = await post(caller, "run", {"input": {}})
    async with caller.get(f"job-take/{WORKER}") as answer:
        taken = await answer.json()
    assert taken["id"] == said["id"]
    assert "input" not in taken


async def test_a_poll_is_held_until_a_job_comes_and_ends_empty(
    platform: Platform, caller: aiohttp.ClientSession
) -> None:
    held = asyncio.ensure_future(caller.get(f"job-take-batch/{WORKER}?batch_size=2"))
    await platform.wait_event("job-take-batch", worker=WORKER)
    said = await post(caller, "run", {"input": {"n": 1}})
    answer = await held
    assert [job["id"] for job in await answer.json()] == [said["id"]]
    async with caller.get(f"job-take/{WORKER}") as nothing:
        assert nothing.status == 204
    async with caller.get(f"job-stop/{WORKER}") as nothing:
        assert nothing.status == 204


async def test_a_poll_whose_client_has_gone_claims_nothing(platform: Platform, caller: aiohttp.ClientSession) -> None:
    held = asyncio.ensure_future(caller.get(f"job-take/{WORKER}-gone"))
    await platform.wait_event("job-take", worker=f"{WORKER}-gone")
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    async with caller.get("health") as answer:  # a full round trip: the closed connection has been noticed
        await answer.read()
    said = await post(caller, "run", {"input": {"n": 1}})
    async with caller.get(f"job-take/{WORKER}") as taken:
        assert (await taken.json())["id"] == said["id"]


async def test_raw_stop_bodies_and_faults_are_answered_as_given(
    platform: Platform, caller: aiohttp.ClientSession
) -> None:
    platform.send_stop(ENDPOINT, WORKER, '{"jobs_to_stop": []}', "text/html")
    async with caller.get(f"job-stop/{WORKER}") as answer:
        assert (answer.content_type, await answer.text()) == ("text/html", '{"jobs_to_stop": []}')
    base = platform.base
    async with caller.post(f"{base}/_sim/fault", json={"route": "job-take", "status": 429, "n": 2}) as armed:
        assert armed.status == 200
    for _ in range(2):
        async with caller.get(f"job-take/{WORKER}") as answer:
            assert answer.status == 429
    platform.arm("job-done", Fault(hangup=True))
    with pytest.raises(aiohttp.ClientError):
        await caller.post(f"job-done/{WORKER}/some-job", data=b"{}")
    async with caller.get(f"{base}/_sim/events", params={"kind": "fault"}) as answer:
        assert len((await answer.json())["events"]) == 3


async def test_runsync_answers_the_pending_job_when_its_wait_is_over(
    platform: Platform, caller: aiohttp.ClientSession
) -> None:
    said = await post(caller, "runsync?wait=1000", {"input": {"n": 1}})
    assert said["status"] == "IN_QUEUE"
    assert said["id"].startswith("sync-")


async def test_policies_time_out_and_delete(platform: Platform, caller: aiohttp.ClientSession) -> None:
    slow = await post(caller, "run", {"input": {"n": 1}, "policy": {"executionTimeout": 1}})
    async with caller.get(f"job-take/{WORKER}"):
        pass
    assert (await platform.wait_status(slow["id"])).status == "TIMED_OUT"
    await post(caller, f"retry/{slow['id']}")
    brief = await post(caller, "run", {"input": {"n": 1}, "policy": {"ttl": 1}})
    await platform.wait_event("ttl-expired", job=brief["id"])
    async with caller.get(f"status/{brief['id']}") as answer:
        assert answer.status == 404
    assert await post(caller, "purge-queue") == {"removed": 1, "status": "completed"}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"input": []}', b'{"input": null}', b'{"policy": {}}'])
async def test_a_body_without_an_input_object_is_refused(caller: aiohttp.ClientSession, body: bytes) -> None:
    async with caller.post("run", data=body) as answer:
        assert answer.status == 400


async def test_a_job_of_a_silent_worker_is_queued_again_and_then_fails() -> None:
    async with running_platform(requeue_after_seconds=0.1) as platform, aiohttp.ClientSession(platform.base) as caller:
        said = await post(caller, f"/v2/{ENDPOINT}/run", {"input": {"n": 1}})
        for _ in range(2):
            async with caller.get(f"/v2/{ENDPOINT}/job-take/{WORKER}") as answer:
                assert (await answer.json())["id"] == said["id"]
        job = await platform.wait_status(said["id"])
        assert (job.status, job.error) == ("FAILED", "job timed out after 1 retries")


async def test_an_answer_can_be_changed_or_garbled_on_its_way(
    platform: Platform, caller: aiohttp.ClientSession
) -> None:
    platform.arm("job-take", Fault(change=lambda text: text.replace("prompt", "tpmorp")))
    platform.arm("job-take", Fault(status=200, body="{broken", content_type="application/json", garble=True))
    jobs = [await post(caller, "run", {"input": {"prompt": "hi"}}) for _ in range(2)]
    async with caller.get(f"job-take/{WORKER}") as answer:
        assert (await answer.json())["input"] == {"tpmorp": "hi"}
    async with caller.get(f"job-take/{WORKER}") as answer:
        assert await answer.text() == "{broken"
    assert {platform.jobs[job["id"]].status for job in jobs} == {"IN_PROGRESS"}


async def test_an_answer_is_held_until_the_test_lets_it_go(platform: Platform, caller: aiohttp.ClientSession) -> None:
    may_go = asyncio.Event()
    platform.arm("job-done", Fault(serve=True, until=may_go))
    job = (await post(caller, "run", {"input": {"prompt": "hi"}}))["id"]
    delivering = asyncio.create_task(post(caller, f"job-done/{WORKER}/{job}", {"output": "hello"}))
    await platform.wait_event("job-done", job=job)
    assert (platform.jobs[job].status, delivering.done()) == ("IN_QUEUE", False)
    may_go.set()
    await delivering
    assert platform.jobs[job].status == "COMPLETED"
