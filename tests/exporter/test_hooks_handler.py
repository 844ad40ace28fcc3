"""What is told about a request: claim, run, delivery, stop, for every kind of handler of the unmodified SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from observed_worker import ObservedWorker, observed_worker, spans, story

from collector.demo.platform import Fault, Platform

SYNC = """
import runpod

class Refused(Exception):
    pass

def handler(job):
    given = job["input"]
    if given["do"] == "raise":
        raise Refused("no such model")
    if given["do"] == "return an error":
        return {"error": "not today", "kept": 1}
    if given["do"] == "return an object":
        return object()
    return {"done": given["do"]}

runpod.serverless.start({"handler": handler})
"""

ASYNC = """
import asyncio
import runpod

async def handler(job):
    do = job["input"]["do"]
    if do == "raise":
        raise ValueError("bad input")
    if do == "cancel myself":
        raise asyncio.CancelledError()
    if do == "finish":
        return "finished"
    print("waiting " + do, flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if do == "swallow":
            return "as if nothing had happened"
        if do == "fail to clean up":
            raise RuntimeError("cleaning up failed")
        raise

runpod.serverless.start({"handler": handler})
"""


def start(name: str, attributes: dict[str, Any], parent: str = "job.claimed") -> dict[str, Any]:
    return {"k": "start", "id": name, "pa": parent, "j": "A", "a": attributes}


def end(name: str, attributes: dict[str, Any], status: str = "ok", **more: Any) -> dict[str, Any]:
    return {"k": "end", "id": name, "pa": "job.claimed", "j": "A", "a": attributes, "s": status, **more}


CLAIMED = [
    {
        "k": "point",
        "id": "job.claimed",
        "j": "A",
        "a": {"claim.wait_seconds": "seconds", "claim.batch_size": 1},
        "s": "ok",
        "li": ["trace of boot", "worker.boot"],
    },
    {"k": "hand", "j": "A"},
]


def delivered(size: int, status: int = 200) -> list[dict[str, Any]]:
    about: dict[str, Any] = {"deliver.attempt": 1, "deliver.bytes": size, "deliver.last": True}
    return [
        start("job.deliver", {"deliver.attempt": 1}),
        end("job.deliver", {**about, "http.response.status_code": status}),
        {"k": "release", "j": "A", "o": "delivered"},
    ]


def result_bytes(platform: Platform, job_id: str) -> int:
    """How many bytes the platform was handed."""
    return int(platform.find_events("job-done", job=job_id)[-1].detail["bytes"])


async def released(worker: ObservedWorker, count: int) -> None:
    await worker.wait_for(lambda records: sum(r["k"] == "release" for r in records) >= count, f"{count} releases")


async def test_a_sync_handler_that_succeeds_raises_or_returns_an_error(platform: Platform, tmp_path: Path) -> None:
    async with observed_worker(platform, tmp_path, SYNC) as worker:
        good = await worker.finish(do="something")
        await released(worker, 1)
        kind = {"handler.kind": "sync"}
        ran = [start("job.run", kind), end("job.run", kind)]
        assert story(worker, job_id=good) == CLAIMED + ran + delivered(result_bytes(platform, good))

        bad = await worker.finish(do="raise")
        await released(worker, 2)
        told = [record for record in worker.records() if record.get("j") == bad and record["k"] == "end"]
        assert told[0]["s"] == "error"
        assert told[0]["a"] == {"stallscope.handler.kind": "sync", "error.type": "__main__.Refused"}
        path = worker.directory / "handler.py"
        assert told[0]["x"] == {
            "type": "__main__.Refused",
            "message": "no such model",
            "stacktrace": "Traceback (most recent call last):\n"
            f'  File "{path}", line 12, in handler\n'
            '    raise Refused("no such model")\n'
            "Refused: no such model\n",
        }
        # The caller reads the SDK's own words: no frame of ours in the trace.
        error = json.loads(platform.jobs[bad].error)
        assert "sdk_exporter" not in error["error_traceback"]
        assert error["error_traceback"].count("  File ") == 2

        returned = await worker.finish(do="return an error")
        await released(worker, 3)
        assert (platform.jobs[returned].error, platform.jobs[returned].output) == ("not today", {"kept": 1})
        run = next(r for r in worker.records() if r.get("j") == returned and r["k"] == "end" and r["n"] == "job.run")
        assert (run["s"], run["a"], run["x"]) == (
            "error",
            {
                "stallscope.handler.kind": "sync",
                "error.type": "handler_returned_error",
                "stallscope.handler.returned_error": True,
            },
            {"type": "handler_returned_error", "message": "not today", "stacktrace": ""},
        )

        assert await worker.terminate() == 0
        boot = story(worker, names=["worker.boot"])
        about = {"faas.coldstart": True}
        assert boot == [
            {"k": "start", "id": "worker.boot", "a": about},
            {"k": "end", "id": "worker.boot", "a": {**about, "boot.import_seconds": "seconds"}, "s": "ok"},
        ]


async def test_a_refused_or_impossible_result_is_told_as_lost(platform: Platform, tmp_path: Path) -> None:  # A36
    async with observed_worker(platform, tmp_path, SYNC) as worker:
        platform.arm("job-done", Fault(status=400))
        refused = await worker.submit(do="something")
        await released(worker, 1)
        # OpenTelemetry: the status is the error type where no exception says more.
        about = {"deliver.attempt": 1, "deliver.last": True, "http.response.status_code": 400, "error.type": "400"}
        told = story(worker, job_id=refused)
        assert told[-1] == {"k": "release", "j": "A", "o": "refused"}
        assert (told[-2]["s"], told[-2]["a"] | {"deliver.bytes": 0}) == ("error", about | {"deliver.bytes": 0})
        assert told[-2]["a"]["deliver.bytes"] > 0

        platform.arm("job-done", Fault(status=500))
        retried = await worker.finish(do="something")
        await released(worker, 2)
        tries = [r for r in worker.records() if r.get("j") == retried and r["k"] == "end" and r["n"] == "job.deliver"]
        assert [
            (
                r["s"],
                r["a"]["stallscope.deliver.attempt"],
                r["a"]["stallscope.deliver.last"],
                r["a"]["http.response.status_code"],
            )
            for r in tries
        ] == [("error", 1, False, 500), ("ok", 2, True, 200)]

        impossible = await worker.submit(do="return an object")
        await released(worker, 3)
        told = story(worker, job_id=impossible)
        assert told[-1] == {"k": "release", "j": "A", "o": "undeliverable"} | {"j": told[-1]["j"]}
        assert told[-2]["a"] == {"deliver.attempt": 1, "deliver.last": True, "error.type": "TypeError"}
        assert told[-2]["x"]["message"] == "Object of type object is not JSON serializable"


async def test_an_async_handler_that_is_stopped_swallows_or_cancels_itself(
    platform: Platform, tmp_path: Path
) -> None:  # A44, A46, A50, A51
    async with observed_worker(platform, tmp_path, ASYNC) as worker:
        kind = {"handler.kind": "async"}

        async def stopped(do: str, count: int) -> list[dict[str, Any]]:
            job_id = await worker.submit(do=do)
            await worker.wait_output("waiting " + do)
            await worker.cancel(job_id)
            await released(worker, count)
            await worker.wait_span("job.stop", count=count)
            told = [record for record in worker.records() if record.get("j") == job_id]
            return [
                {"n": r["n"], "s": r["s"], "a": {k.removeprefix("stallscope."): v for k, v in r["a"].items()}}
                if r["k"] == "end"
                else {"o": r["o"]}
                for r in told
                if r["k"] in ("end", "release")
            ]

        def stop(told: list[dict[str, Any]]) -> dict[str, Any]:
            (found,) = [record for record in told if record.get("n") == "job.stop"]
            assert found["a"].pop("stop.seconds") >= 0
            return found

        told = await stopped("wait", 1)
        assert stop(told) == {"n": "job.stop", "s": "ok", "a": {"stop.outcome": "stopped"}}
        assert {"n": "job.run", "s": "unset", "a": kind} in told
        assert told[-1] == {"o": "stopped"}

        told = await stopped("swallow", 2)
        assert stop(told) == {"n": "job.stop", "s": "error", "a": {"stop.outcome": "swallowed"}}
        assert {"n": "job.run", "s": "ok", "a": kind} in told

        told = await stopped("fail to clean up", 3)
        assert stop(told) == {"n": "job.stop", "s": "error", "a": {"stop.outcome": "cleanup_failed"}}
        assert {"n": "job.run", "s": "error", "a": {**kind, "error.type": "RuntimeError"}} in told

        own = await worker.submit(do="cancel myself")
        await released(worker, 4)
        run, release = story(worker, job_id=own)[-2:]
        assert (run["s"], run["a"]["error.type"]) == ("error", "asyncio.exceptions.CancelledError")
        assert release["o"] == "cancelled"

        platform.send_stop(worker.endpoint, worker.name, json.dumps({"jobsToStop": ["never-seen", own]}))
        await worker.wait_span("job.stop", kind="point", count=2)
        points = [r for r in worker.records() if r["k"] == "point" and r["n"] == "job.stop"]
        assert [(r["j"], r["a"]["stallscope.stop.outcome"]) for r in points] == [
            ("never-seen", "unknown_job"),
            (own, "late"),
        ]


GENERATOR = """
import runpod

{define} handler(job):
    for number in range(3):
        if number == job["input"]["raise_at"]:
            raise RuntimeError("out of words")
        yield {{"word": number}}

runpod.serverless.start({{"handler": handler}})
"""


async def generator(platform: Platform, directory: Path, define: str) -> None:
    async with observed_worker(platform, directory, GENERATOR.format(define=define)) as worker:
        whole = await worker.finish(raise_at=-1)
        await released(worker, 1)
        kind = {"handler.kind": "generator"}
        ran = [start("job.run", kind), end("job.run", {**kind, "handler.chunks": 3})]
        assert story(worker, job_id=whole) == CLAIMED + ran + delivered(result_bytes(platform, whole))
        assert len(platform.find_events("job-stream", job=whole)) == 3

        platform.arm("job-stream", Fault(status=400))  # the SDK skips the chunk and goes on
        broken = await worker.finish(raise_at=2)
        await released(worker, 2)
        (run,) = [r for r in spans(worker, "job.run") if r["j"] == broken]
        about = {
            "stallscope.handler.kind": "generator",
            "stallscope.handler.chunks": 2,
            "stallscope.handler.chunks_lost": 1,
            "error.type": "RuntimeError",
        }
        assert (run["s"], run["a"]) == ("error", about)
        assert run["x"]["message"] == "out of words"
        error = platform.jobs[broken].error
        assert error.startswith("handler: out of words \ntraceback: ")
        assert "sdk_exporter" not in error


async def test_a_sync_generator_counts_its_chunks_and_tells_its_exception(
    platform: Platform, tmp_path: Path
) -> None:  # A32
    await generator(platform, tmp_path, "def")


async def test_an_async_generator_counts_its_chunks_and_tells_its_exception(platform: Platform, tmp_path: Path) -> None:
    await generator(platform, tmp_path, "async def")


CONCURRENT = """
import asyncio
import runpod

running = asyncio.Event()
count = 0

async def handler(job):
    global count
    count += 1
    if count == 3:
        running.set()
    await running.wait()
    if job["input"]["number"] == 1:
        raise RuntimeError("only number 1")
    return job["input"]["number"]

runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda now: 3})
"""


async def test_jobs_at_once_are_told_apart(platform: Platform, tmp_path: Path) -> None:
    async with observed_worker(platform, tmp_path, CONCURRENT) as worker:
        ids = [await worker.submit(number=number) for number in range(3)]
        await released(worker, 3)
        runs = {record["j"]: record for record in spans(worker, "job.run")}
        assert [runs[job_id]["s"] for job_id in ids] == ["ok", "error", "ok"]
        assert len({record["tr"] for record in runs.values()}) == 3
        delivers = {record["j"]: record["tr"] for record in spans(worker, "job.deliver")}
        assert delivers == {job_id: runs[job_id]["tr"] for job_id in ids}


async def test_a_generator_in_a_local_run_is_what_it_is_without_us(platform: Platform, tmp_path: Path) -> None:
    """The SDK calls it there and prints what it got."""
    arguments = ["--test_input", json.dumps({"input": {"raise_at": -1}})]
    code = f"import sys\nsys.argv += {arguments}\n{GENERATOR.format(define='def')}"
    local = {"RUNPOD_WEBHOOK_GET_JOB": ""}
    async with observed_worker(platform, tmp_path, code, environ=local) as worker:
        await worker.exit_code()
        assert "<generator object handler at " in worker.output()
        assert [(r["s"], r["a"]["stallscope.handler.kind"]) for r in spans(worker, "job.run")] == [("ok", "sync")]


STREAMING = """
import asyncio
import runpod

async def handler(job):
    if job["input"]["do"] == "chunk with an error":
        yield 1
        yield {"error": "no more words"}
        yield 3
    yield "first"
    print("waiting", flush=True)
    await asyncio.Event().wait()

runpod.serverless.start({"handler": handler})
"""


async def test_a_stream_that_is_stopped_or_ends_itself_with_an_error_chunk(platform: Platform, tmp_path: Path) -> None:
    async with observed_worker(platform, tmp_path, STREAMING) as worker:
        broken = await worker.finish(do="chunk with an error")
        await released(worker, 1)
        assert platform.jobs[broken].error == "no more words"
        stopped = await worker.submit(do="wait")
        await worker.wait_output("waiting")
        await worker.cancel(stopped)
        await released(worker, 2)
        runs = {record["j"]: record for record in spans(worker, "job.run")}
        kind = {"stallscope.handler.kind": "generator"}
        about = {"stallscope.handler.chunks": 2, "error.type": "handler_returned_error"}
        assert (runs[broken]["s"], runs[broken]["a"]) == (
            "error",
            {**kind, **about, "stallscope.handler.returned_error": True},
        )
        assert (runs[stopped]["s"], runs[stopped]["a"]) == ("unset", {**kind, "stallscope.handler.chunks": 1})
        (stop,) = spans(worker, "job.stop")
        assert (stop["j"], stop["a"]["stallscope.stop.outcome"]) == (stopped, "stopped")


REPORTS = """
import pathlib, time
import runpod

def handler(job):
    print("computing", flush=True)
    while not pathlib.Path("report").exists():
        time.sleep(0.02)
    runpod.serverless.progress_update(job, "half")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    return 1

runpod.serverless.start({"handler": handler})
"""


async def test_progress_that_a_handler_reports_is_a_sign_of_it(platform: Platform, tmp_path: Path) -> None:
    """A handler that blocks the loop for minutes and says how far it is does not hang."""
    async with observed_worker(platform, tmp_path, REPORTS) as worker:
        job_id = await worker.submit(number=1)
        await worker.wait_output("computing")
        before = worker.progress_beat_ns()
        (worker.directory / "report").touch()
        await worker.wait_for(lambda _: worker.progress_beat_ns() > before, "sign of the handler")
        await platform.wait_event("job-done", job=job_id)
        (worker.directory / "go").touch()
        await platform.wait_status(job_id, "COMPLETED")
        await worker.wait_span("job.deliver")
        assert len(spans(worker, "job.deliver")) == 1  # the report is none
