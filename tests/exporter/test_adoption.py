"""On an SDK that supervises prestart itself, that one does, and we watch: on a shim of the proposals' shapes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from observed_worker import ObservedWorker, observed_worker, spans, story

from collector.demo.platform import Platform

SHIM = {"PYTHONPATH": str(Path(__file__).parent)}

WORKER = """
import asyncio, pathlib, threading, time
import adopting_sdk
adopting_sdk.{adopts}()
import runpod
import sdk_exporter
sdk_exporter.instrument()

def go():
    while not pathlib.Path("go").exists():
        time.sleep(0.02)

ready = []

{hooks}

def handler(job):
    return {{"ready": ready}}

config = {{"handler": handler, {config}}}
given = dict(config)
try:
    runpod.serverless.start(config)
finally:
    assert {{key: config[key] for key in given}} == given
"""


def worker_code(hooks: str, config: str = "", *, adopts: str = "with_hooks") -> str:
    return WORKER.format(hooks=hooks, config=config, adopts=adopts)


def told(worker: ObservedWorker, name: str) -> list[tuple[str, dict[str, Any]]]:
    prefix = "stallscope.prestart."
    return [(r["s"], {key.removeprefix(prefix): value for key, value in r["a"].items()}) for r in spans(worker, name)]


async def let_go(worker: ObservedWorker) -> str:
    """A request waits at the gate, then the hook goes on."""
    job_id = await worker.submit(number=1)
    await worker.wait_span("job.gated", kind="start")
    (worker.directory / "go").touch()
    return job_id


async def test_adopted_hooks_run_once_and_in_order_and_requests_wait(platform: Platform, tmp_path: Path) -> None:  # A1
    hooks = """
@sdk_exporter.prestart
def first():
    go()
    ready.append("first")

@sdk_exporter.prestart(timeout=600)
async def second():
    ready.append("second")
"""
    async with observed_worker(platform, tmp_path, worker_code(hooks), instrumented=False, environ=SHIM) as worker:
        job_id = await let_go(worker)
        job = await platform.wait_status(job_id)
        assert (job.status, job.output) == ("COMPLETED", {"ready": ["first", "second"]})
        await worker.wait_for(lambda records: any(r["k"] == "release" for r in records), "release")
        assert await worker.terminate() == 0, worker.output()
        assert told(worker, "prestart.hook") == [
            ("ok", {"hook": "first", "kind": "hook"}),
            ("ok", {"hook": "second", "kind": "hook"}),
        ]
        assert told(worker, "prestart") == [("ok", {"kind": "hook", "timeout_seconds": 600.0})]
        names = [r["id"] for r in story(worker, job_id=job_id) if r["k"] == "end"]
        assert names == ["job.gated", "job.run", "job.deliver"]


async def failed(platform: Platform, directory: Path, code: str, *, waits: bool) -> tuple[dict[str, Any], str]:
    """The error that the caller reads, and the records that matter, of a worker that cannot start."""
    async with observed_worker(platform, directory, code, instrumented=False, environ=SHIM) as worker:
        job_id = await let_go(worker) if waits else await worker.submit(number=1)
        job = await platform.wait_status(job_id)
        assert job.status == "FAILED"
        await worker.wait_for(lambda records: any(r["k"] == "release" for r in records), "release")
        assert [(r["j"], r["o"]) for r in worker.records() if r["k"] == "release"] == [(job_id, "prestart_failed")]
        assert [(r["j"], r["s"]) for r in spans(worker, "job.deliver")] == [(job_id, "ok")]
        (phase,), (hook,) = told(worker, "prestart"), told(worker, "prestart.hook")
        assert phase[0] == hook[0] == "error"
        assert phase[1]["error.type"] == hook[1]["error.type"]
        return json.loads(job.error), f"{phase[1]['kind']} {phase[1]['hook']} {phase[1]['error.type']}"


async def test_what_an_sdk_that_supervises_itself_fails_with_is_told(platform: Platform, tmp_path: Path) -> None:  # A4
    raises = "@sdk_exporter.prestart\ndef load_model():\n    go()\n    raise RuntimeError('weights are corrupt')"
    hangs = "@sdk_exporter.prestart(timeout=1.5)\nasync def stuck():\n    await asyncio.Event().wait()"
    init = "async def load():\n    raise ImportError('no module')"
    hooked, expired, initialized = await asyncio.gather(
        failed(platform, tmp_path, worker_code(raises), waits=True),
        # The bound given to us reaches the SDK in its own words.
        failed(platform, tmp_path, worker_code(hangs), waits=False),
        failed(platform, tmp_path, worker_code(init, '"initializer": load', adopts="with_initializer"), waits=False),
    )
    assert (hooked[0]["event"], hooked[0]["error_message"]) == ("prestart_failed", "weights are corrupt")
    assert (expired[0]["event"], expired[0]["error_type"]) == ("prestart_failed", "PrestartTimeout")
    assert (initialized[0]["event"], initialized[0]["error_message"]) == ("init_failed", "no module")
    assert [hooked[1], expired[1], initialized[1]] == [
        "hook load_model RuntimeError",
        "hook stuck PrestartTimeout",
        "initializer load ImportError",
    ]
