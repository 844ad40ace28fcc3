"""What is told about the worker itself: its poll channels, its shutdown, its fitness checks, its end."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from observed_worker import observed_worker, spans, story

from collector.demo.platform import Platform
from sdk_exporter import spool

PLAIN = """
import runpod

def handler(job):
    return job["input"]

runpod.serverless.start({"handler": handler})
"""


async def test_a_worker_shut_down_while_idle_leaves_the_claim_of_its_open_poll(
    platform: Platform, tmp_path: Path
) -> None:  # A15
    """The stranded claim: told to stop, the worker takes a request with the poll that is open, and ends with 0."""
    async with observed_worker(platform, tmp_path, PLAIN) as worker:
        platform.hold(worker.endpoint, 30.0, stop_seconds=0.5)
        await worker.finish(number=1)
        done = len(platform.find_events("job-take", worker=worker.name))
        await platform.wait_event("job-take", worker=worker.name, count=done + 1)
        worker.process.send_signal(signal.SIGTERM)
        await worker.wait_span("worker.shutdown", kind="start")
        # The SDK's loop that runs requests looks every 0.1 s whether it may go; once the same event loop has beaten
        # later than that, it has gone.
        signalled = time.monotonic_ns()
        await worker.wait_for(lambda _: worker.loop_beat_ns() > signalled + 10**9, "beat after the shutdown")
        stranded = await worker.submit(number=2)
        assert await worker.exit_code() == 0
        assert platform.jobs[stranded].status == "IN_PROGRESS"
        assert [(r["k"], r.get("n")) for r in worker.records() if r.get("j") == stranded] == [
            ("point", "job.claimed"),
            ("hand", None),
        ]
        begun, ended = [r for r in worker.records() if r.get("n") == "worker.shutdown"]
        assert begun["a"] == {"stallscope.shutdown.signal": "SIGTERM", "stallscope.shutdown.jobs_in_hand": []}
        assert ended["a"] == {"stallscope.shutdown.signal": "SIGTERM", "stallscope.shutdown.jobs_in_hand": [stranded]}
        assert ended["s"] == "ok"


async def test_a_handler_that_exits_keeps_its_exit_code_and_its_job_in_hand(platform: Platform, tmp_path: Path) -> None:
    code = PLAIN.replace("return job", "import sys\n    sys.exit(3)\n    return job")
    async with observed_worker(platform, tmp_path, code) as worker:
        job_id = await worker.submit(number=1)
        assert await worker.exit_code() == 3
        run = spans(worker, "job.run")[0]
        assert (run["s"], run["a"]["error.type"], run["x"]["message"]) == ("error", "SystemExit", "3")
        assert [r["j"] for r in worker.records() if r["k"] == "hand"] == [job_id]
        assert not [r for r in worker.records() if r["k"] == "release"]


async def test_a_worker_that_refreshes_itself_shuts_down_without_a_signal(platform: Platform, tmp_path: Path) -> None:
    code = PLAIN.replace('{"handler": handler}', '{"handler": handler, "refresh_worker": True}')
    async with observed_worker(platform, tmp_path, code) as worker:
        await worker.finish(number=1)
        assert await worker.exit_code() == 0
        shutdown = story(worker, names=["worker.shutdown"])
        assert [(r["k"], r["a"].get("shutdown.signal")) for r in shutdown] == [("start", None), ("end", None)]


async def test_each_fitness_check_is_told_and_the_one_that_ends_the_worker(platform: Platform, tmp_path: Path) -> None:
    checks = """
import runpod

@runpod.serverless.register_fitness_check
def has_a_disk():
    pass

@runpod.serverless.register_fitness_check
async def has_a_model():
    raise FileNotFoundError("weights.bin")
"""
    async with observed_worker(platform, tmp_path, checks + PLAIN) as worker:
        assert await worker.exit_code() == 1
        first, second = spans(worker, "worker.fitness_check")
        assert (first["s"], first["a"]) == ("ok", {"stallscope.check.name": "has_a_disk"})
        about = {"stallscope.check.name": "has_a_model", "error.type": "FileNotFoundError"}
        assert (second["s"], second["a"], second["x"]["message"]) == ("error", about, "weights.bin")
        ping = platform.find_events("ping", worker=worker.name)[0]
        assert "has_a_model" in json.dumps(dict(ping.detail))


async def test_a_claim_that_the_sdk_loses_on_intake_is_told(platform: Platform, tmp_path: Path) -> None:
    async with observed_worker(platform, tmp_path, PLAIN) as worker:
        dropped = await worker.submit()  # an empty input does not reach the worker
        await worker.wait_for(lambda records: any(r["k"] == "release" for r in records), "release")
        assert story(worker, job_id=dropped) == [
            {
                "k": "point",
                "id": "job.claimed",
                "j": "A",
                "a": {
                    "claim.wait_seconds": "seconds",
                    "claim.batch_size": 1,
                    "error.type": "empty_input_dropped",
                },
                "s": "error",
                "x": {
                    "type": "empty_input_dropped",
                    "message": "Job has missing field(s): id or input.",
                    "stacktrace": "",
                },
                "li": ["trace of boot", "worker.boot"],
            },
            {"k": "hand", "j": "A"},
            {"k": "release", "j": "A", "o": "claim_lost"},
        ]


async def test_a_stop_that_nobody_answers_is_told_as_ignored_and_then_as_it_ends(
    platform: Platform, tmp_path: Path
) -> None:  # A49
    code = """
import asyncio, pathlib
import runpod

async def handler(job):
    print("waiting", flush=True)
    while not pathlib.Path("go").exists():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            pass
    return 1

runpod.serverless.start({"handler": handler})
"""
    async with observed_worker(platform, tmp_path, code) as worker:
        job_id = await worker.submit(number=1)
        await worker.wait_output("waiting")
        await worker.cancel(job_id)
        await worker.wait_span("job.stop")
        (worker.directory / "go").touch()
        await worker.wait_span("job.stop", count=2)
        told = [(r["s"], r["a"]["stallscope.stop.outcome"]) for r in spans(worker, "job.stop")]
        assert told == [("error", "ignored"), ("error", "swallowed")]
        assert spans(worker, "job.stop")[0]["a"]["stallscope.stop.seconds"] >= 10


async def test_an_error_while_the_worker_drains_is_told_like_any_other(
    platform: Platform, tmp_path: Path
) -> None:  # A47
    code = """
import asyncio, pathlib
import runpod

async def handler(job):
    print("waiting", flush=True)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.05)
    raise RuntimeError("late and genuine")

runpod.serverless.start({"handler": handler})
"""
    async with observed_worker(platform, tmp_path, code) as worker:
        job_id = await worker.submit(number=1)
        await worker.wait_output("waiting")
        worker.process.send_signal(signal.SIGTERM)
        await worker.wait_span("worker.shutdown", kind="start")
        (worker.directory / "go").touch()
        assert await worker.exit_code() == 0
        (run,), (sent,) = spans(worker, "job.run"), spans(worker, "job.deliver")
        assert (run["s"], run["x"]["message"], sent["s"]) == ("error", "late and genuine", "ok")
        begun, ended = story(worker, names=["worker.shutdown"])
        assert (begun["a"]["shutdown.jobs_in_hand"], ended["a"]["shutdown.jobs_in_hand"]) == (["A"], [])
        assert platform.jobs[job_id].status == "FAILED"


async def test_a_full_event_file_costs_the_records_and_nothing_else(platform: Platform, tmp_path: Path) -> None:
    full = spool.DEFAULT_CAP_BYTES + 1
    async with observed_worker(platform, tmp_path, PLAIN, unread_bytes=full) as worker:
        job_id = await worker.finish(number=1)
        assert platform.jobs[job_id].output == {"number": 1}
        assert await worker.terminate() == 0
        assert (worker.directory / "events").stat().st_size == full
        assert worker.dropped() >= 10


async def test_a_stop_for_a_handler_that_blocks_the_loop_comes_too_late(
    platform: Platform, tmp_path: Path
) -> None:  # A52
    code = PLAIN.replace(
        "return job",
        "import pathlib, time\n    print('waiting', flush=True)\n"
        "    while not pathlib.Path('go').exists():\n        time.sleep(0.02)\n    return job",
    )
    async with observed_worker(platform, tmp_path, code) as worker:
        platform.hold(worker.endpoint, 1.0, stop_seconds=30.0)
        job_id = await worker.submit(number=1)
        await worker.wait_output("waiting")
        await worker.cancel(job_id)
        await platform.wait_event("stop-sent", worker=worker.name)
        (worker.directory / "go").touch()
        await worker.wait_for(
            lambda records: any(r.get("n") == "job.stop" and r["k"] in ("end", "point") for r in records), "job.stop"
        )
        (stop,) = spans(worker, "job.stop")
        assert (stop["j"], stop["s"], stop["a"]["stallscope.stop.outcome"]) == (job_id, "error", "late")
        (run,) = spans(worker, "job.run")
        assert run["s"] == "ok"
