"""Stop signals that find no running handler: before it, and where nobody is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from observed_worker import observed_worker, spans

from collector.demo.platform import Platform
from sdk_exporter import ledger
from sdk_exporter.contract import Key
from sdk_exporter.hooks import stops

Read = Callable[[], list[dict[str, Any]]]

GATED = """
import pathlib, time
import runpod
import sdk_exporter

@sdk_exporter.prestart
def load_model():
    while not pathlib.Path("go").exists():
        time.sleep(0.02)

def handler(job):
    return job["input"]["number"]

runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda now: 2})
"""


async def test_a_request_that_waits_for_prestart_is_stopped_and_the_other_goes_on(
    platform: Platform, tmp_path: Path
) -> None:  # A39, A50
    async with observed_worker(platform, tmp_path, GATED) as worker:
        stopped, other = [await worker.submit(number=number) for number in range(2)]
        await worker.wait_span("job.gated", kind="start", count=2)
        await worker.cancel(stopped)
        await worker.wait_span("job.stop")
        (worker.directory / "go").touch()
        assert (await platform.wait_status(other)).output == 1
        await worker.wait_for(lambda records: sum(r["k"] == "release" for r in records) == 2, "both releases")
        assert {r["j"]: r["o"] for r in worker.records() if r["k"] == "release"} == {
            stopped: "stopped",
            other: "delivered",
        }
        assert [(r["j"], r["a"]["stallscope.stop.outcome"]) for r in spans(worker, "job.stop")] == [
            (stopped, "stopped")
        ]
        assert {r["j"]: r["s"] for r in spans(worker, "job.gated")} == {stopped: "unset", other: "ok"}
        assert [r["j"] for r in spans(worker, "job.run")] == [other]
        assert await worker.terminate() == 0


def outcomes(read: Read) -> list[tuple[str, str, str]]:
    told = [record for record in read() if record.get("n") == "job.stop" and record["k"] != "start"]
    return [(record["j"], record["k"], record["a"][Key.STOP_OUTCOME]) for record in told]


def test_a_signal_for_a_request_that_has_no_task_yet_is_told_as_lost(written: Read) -> None:  # A50
    """The SDK drops it with one line of DEBUG; the claim shows that the request was here."""
    attempt = ledger.claim("claimed")
    stops.signalled("claimed", False, None)
    stops.signalled("claimed", False, None)  # repeated: nothing new
    assert outcomes(written) == [("claimed", "point", "unknown_job")]
    assert written()[-1]["tr"] == attempt.trace_id


async def test_a_task_that_is_cancelled_before_its_first_step_counts_as_stopped(written: Read) -> None:  # A50, A51
    attempt = ledger.claim("begun")

    async def job() -> None:
        raise AssertionError("its first step never comes")

    task = asyncio.create_task(job())
    stops.signalled("begun", True, task)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert outcomes(written) == [("begun", "end", "stopped")]
    assert attempt.outcome == "stopped"
