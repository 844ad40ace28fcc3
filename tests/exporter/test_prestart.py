"""Supervised prestart on an SDK that has none: order, gate, bound, and what is told to whom when it fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from observed_worker import PATIENCE_SECONDS, ObservedWorker, observed_worker, spans, story
from sink import Sink

import sdk_exporter
from collector.demo.platform import Fault, Platform
from sdk_exporter import spool, supervisor
from sdk_exporter.failure import Failure

START = """
def handler(job):
    return {"ready": ready}

ready = []
"""


def worker_code(hooks: str, config: str = "") -> str:
    return (
        "import asyncio, threading, time\nimport runpod\n"
        + START
        + hooks
        + f'\nrunpod.serverless.start({{"handler": handler, {config}}})\n'
    )


def failure(platform: Platform, job_id: str) -> dict[str, Any]:
    """The error that the caller of the job reads."""
    assert platform.jobs[job_id].status == "FAILED"
    return dict(json.loads(platform.jobs[job_id].error))


def parsed(record: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, str]]:
    attributes = {key.removeprefix("stallscope."): value for key, value in record["a"].items()}
    return record["s"], attributes, record.get("x", {})


async def failed_worker(worker: ObservedWorker, *ids: str) -> None:
    """The worker has failed the requests and ended with 1, and its heartbeat with it."""
    assert await worker.exit_code() == 1
    assert [r["o"] for r in worker.records() if r["k"] == "release"] == ["prestart_failed"] * len(ids)
    assert {r["j"] for r in worker.records() if r["k"] == "release"} == set(ids)


async def test_hooks_run_in_order_and_requests_wait_for_them(platform: Platform, tmp_path: Path) -> None:  # A1, A3
    code = worker_code(
        """
import sdk_exporter

@sdk_exporter.prestart
def first():
    go.wait()
    ready.append("first")

@sdk_exporter.prestart(timeout=60)
async def second():
    await asyncio.sleep(0)
    ready.append("second")

@sdk_exporter.prestart
def third():
    ready.append(threading.current_thread() is not threading.main_thread())

go = threading.Event()
def watch():
    import pathlib
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    go.set()
threading.Thread(target=watch, daemon=True).start()
"""
    )
    async with observed_worker(platform, tmp_path, code) as worker:
        job_id = await worker.submit(number=1)
        await worker.wait_span("job.gated", kind="start")
        assert not spans(worker, "job.run")
        (worker.directory / "go").touch()
        job = await platform.wait_status(job_id)
        assert (job.status, job.output) == ("COMPLETED", {"ready": ["first", "second", True]})
        await worker.wait_for(lambda records: any(r["k"] == "release" for r in records), "release")
        assert await worker.terminate() == 0

        whole: dict[str, Any] = {"prestart.kind": "hook", "prestart.timeout_seconds": "seconds"}

        def hook(number: int, name: str) -> list[dict[str, Any]]:
            label = "prestart.hook" if number == 1 else f"prestart.hook#{number}"
            about = {"prestart.hook": name, "prestart.kind": "hook"}
            return [
                {"k": "start", "id": label, "pa": "prestart", "a": about},
                {"k": "end", "id": label, "pa": "prestart", "a": about, "s": "ok"},
            ]

        assert story(worker, names=["prestart", "prestart.hook"]) == [
            {"k": "start", "id": "prestart", "pa": "worker.boot", "a": whole},
            *hook(1, "first"),
            *hook(2, "second"),
            *hook(3, "third"),
            {"k": "end", "id": "prestart", "pa": "worker.boot", "a": whole, "s": "ok"},
        ]
        gated = [r for r in story(worker, job_id=job_id) if r.get("id") == "job.gated"]
        assert gated == [
            {"k": "start", "id": "job.gated", "pa": "job.claimed", "j": "A", "a": {}},
            {"k": "end", "id": "job.gated", "pa": "job.claimed", "j": "A", "a": {}, "s": "ok"},
        ]


async def test_a_hook_out_of_gpu_memory_fails_the_request_in_hand_with_its_reason(
    platform: Platform, tmp_path: Path
) -> None:  # A4, A17, A21
    code = worker_code(
        """
import sdk_exporter
import pathlib

@sdk_exporter.prestart
def load_model():
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")

@sdk_exporter.prestart
def never():
    raise AssertionError("not after a failure")
"""
    )
    async with observed_worker(platform, tmp_path, code) as worker:
        platform.hold(worker.endpoint, 600.0, stop_seconds=600.0)  # the exit does not wait for open polls
        job_id = await worker.submit(number=1)
        await worker.wait_span("job.gated", kind="start")
        (worker.directory / "go").touch()
        await failed_worker(worker, job_id)
        told = failure(platform, job_id)
        stack = told.pop("error_traceback")
        assert told == {
            "event": "prestart_failed",
            "error_type": "RuntimeError",
            "error_message": "CUDA out of memory. Tried to allocate 20.00 MiB",
            "hook": "load_model",
        }
        assert stack.endswith('MiB")\nRuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB\n')
        assert "sdk_exporter" not in stack
        exception = {"type": "RuntimeError", "message": told["error_message"], "stacktrace": stack}
        about = {"prestart.kind": "hook", "error.type": "RuntimeError", "prestart.hook": "load_model"}
        assert [parsed(record) for record in spans(worker, "prestart")] == [("error", about, exception)]
        assert [parsed(record) for record in spans(worker, "prestart.hook")] == [("error", about, exception)]
        gated, delivered = spans(worker, "job.gated")[0], spans(worker, "job.deliver")[0]
        assert (gated["s"], delivered["s"], gated["j"], delivered["j"]) == ("error", "ok", job_id, job_id)
        # The reason is in the worker's log as well, before the exit.
        assert "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB" in worker.output()
        # Nothing pings for the dead worker.
        pings = len(platform.find_events("ping", worker=worker.name))
        with pytest.raises(TimeoutError):
            await platform.wait_event("ping", worker=worker.name, count=pings + 1, seconds=3.0)


CHATTY = worker_code(
    """
import pathlib
import sdk_exporter
sdk_exporter.instrument()

@sdk_exporter.prestart
def load_model():
    while not pathlib.Path("quiet").exists():
        time.sleep(0.02)
    print("loading weights", flush=True)  # now, since two threads that print at once may do so into one line
    runpod.RunPodLogger().debug("layer 7 of 80")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    raise RuntimeError("weights are corrupt")
"""
)
UNDER_LAUNCHER = (sys.executable, "-m", "sdk_exporter", "--flush", "30", "--", sys.executable)


@pytest.mark.parametrize(
    ("command", "endpoint"),
    [(UNDER_LAUNCHER, "e"), ((sys.executable,), "")],
    ids=["JSON under the launcher", "plain text alone"],
)
async def test_no_progress_note_of_the_sdk_is_in_the_tail_of_prestart(
    platform: Platform, sink: Sink, tmp_path: Path, command: tuple[str, ...], endpoint: str
) -> None:  # A21
    """It writes several for each poll at its usual level, as JSON on an endpoint. The worker's output keeps them."""
    environ = {
        "RUNPOD_LOG_LEVEL": "DEBUG",
        "RUNPOD_ENDPOINT_ID": endpoint,
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base,
        spool.ENVIRONMENT_KEY: "",
    }
    async with observed_worker(
        platform, tmp_path, CHATTY, instrumented=False, environ=environ, command=command
    ) as worker:
        platform.hold(worker.endpoint, 600.0, stop_seconds=600.0)
        await platform.wait_event("job-take", worker=worker.name, seconds=PATIENCE_SECONDS)
        (worker.directory / "quiet").touch()
        await worker.wait_output("layer 7 of 80")
        platform.hold(worker.endpoint, 0.1, stop_seconds=0.1)
        await worker.wait_output("No jobs acquired")
        job_id = await worker.submit(number=1)
        await worker.wait_output("Handling Job")
        (worker.directory / "go").touch()
        assert await worker.exit_code() == 1
        assert "rp_job" not in failure(platform, job_id)["error_traceback"]
        tail = (await sink.wait_for("prestart"))["stallscope.log.tail"]
        for line in ("loading weights", "layer 7 of 80", "RuntimeError: weights are corrupt"):
            assert line in tail
        for note in ("JobScaler", "rp_job", "Jobs in queue", "Job Queued", "Handling Job", "Starting", "stallscope:"):
            assert note not in tail, tail
        assert "JobScaler.get_jobs" in worker.output()


HANGING = """
import sdk_exporter

@sdk_exporter.prestart
def quick():
    pass

@sdk_exporter.prestart
{define}
"""

HANGS = {
    "sync": "def stuck():\n    threading.Event().wait()",
    "async": "async def stuck():\n    await asyncio.Event().wait()",
    "async that ignores its cancellation": (
        "async def stuck():\n    while True:\n        try:\n            await asyncio.Event().wait()\n"
        "        except asyncio.CancelledError:\n            pass"
    ),
    "async that blocks the loop": "async def stuck():\n    threading.Event().wait()",
    "async that blocks the loop and cannot be interrupted": (
        "async def stuck():\n    while True:\n        try:\n            threading.Event().wait()\n"
        "        except asyncio.CancelledError:\n            pass"
    ),
}


async def test_the_phase_is_bounded_whatever_the_hook_does(
    platform: Platform, tmp_path: Path
) -> None:  # A2, A18, A20, A35
    # At once: each waits for the others' bounds otherwise.
    await asyncio.gather(*(bounded(platform, tmp_path, define) for define in HANGS.values()))


async def bounded(platform: Platform, tmp_path: Path, define: str) -> None:
    code = worker_code(HANGING.format(define=define), '"prestart_timeout": 1.5')
    async with observed_worker(platform, tmp_path, code) as worker:
        platform.hold(worker.endpoint, 0.2, stop_seconds=0.2)
        if define == HANGS["async that blocks the loop and cannot be interrupted"]:
            # What a poll of the blocked loop took would never be read: see below.
            await worker.wait_span("prestart")
        job_id = await worker.submit(number=1)
        await failed_worker(worker, job_id)
        told = failure(platform, job_id)
        assert (told["event"], told["error_type"], told["hook"], told["error_message"]) == (
            "prestart_failed",
            "PrestartTimeout",
            "stuck",
            "prestart exceeded its timeout of 1.5 s while hook 'stuck' was running",
        )
        (phase,) = spans(worker, "prestart")
        about = {"prestart.kind": "hook", "prestart.timeout_seconds": 1.5, "prestart.hook": "stuck"}
        status, attributes, exception = parsed(phase)
        assert (status, attributes) == ("error", {**about, "error.type": "PrestartTimeout"})
        assert exception["message"] == told["error_message"]
        assert (phase["t"] - phase["t0"]) / 1e9 >= 1.5


HOLDS_LOOP = """
import sdk_exporter, pathlib

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.02)
{hooks}
"""
IN_PYTHON = """
@sdk_exporter.prestart
async def stuck():
    while not pathlib.Path("polled").exists():
        await asyncio.sleep(0.02)
    print("held", flush=True)
    threading.Event().wait()
"""
IN_NATIVE_CODE = """
import ctypes
mutex = ctypes.create_string_buffer(128)
lock = ctypes.CDLL(None).pthread_mutex_lock  # no signal ends its wait

def hold():
    lock(mutex)
    print("held", flush=True)
    lock(mutex)

@sdk_exporter.prestart
async def first():
    global loop
    loop = asyncio.get_running_loop()

@sdk_exporter.prestart
def stuck():
    wait_for("polled")
    loop.call_soon_threadsafe(hold)
    wait_for("go")
    raise RuntimeError("no kernels")
"""


async def answered_while_the_loop_is_held(platform: Platform, worker: ObservedWorker) -> str:
    """The poll that is open when the loop is taken away is answered with a request, and nobody reads it."""
    platform.hold(worker.endpoint, 600.0, stop_seconds=600.0)
    await platform.wait_event("job-take", worker=worker.name, seconds=PATIENCE_SECONDS)
    (worker.directory / "polled").touch()
    await worker.wait_output("held")
    job_id = await worker.submit(number=1)
    await platform.wait_event("claimed", job=job_id, seconds=PATIENCE_SECONDS)
    return job_id


async def test_a_request_that_came_while_a_hook_held_the_loop_hears_the_reason(
    platform: Platform, tmp_path: Path
) -> None:
    """The hook is interrupted where it stands, so that the SDK reads its answer: else nobody knows the request's id."""
    async with observed_worker(platform, tmp_path, worker_code(HOLDS_LOOP.format(hooks=IN_PYTHON))) as worker:
        job_id = await answered_while_the_loop_is_held(platform, worker)
        assert await worker.terminate() == 0
        assert failure(platform, job_id)["error_type"] == "PrestartInterrupted"
        assert [r["o"] for r in worker.records() if r["k"] == "release"] == ["prestart_failed"]
        assert not [r for r in spans(worker, "job_take") if "stallscope.claim.unread" in r["a"]]


async def test_a_request_that_nobody_could_read_is_told_as_such(platform: Platform, tmp_path: Path) -> None:
    """Native code holds the loop, and no signal ends it: the answer lies in the socket when the worker goes."""
    async with observed_worker(platform, tmp_path, worker_code(HOLDS_LOOP.format(hooks=IN_NATIVE_CODE))) as worker:
        job_id = await answered_while_the_loop_is_held(platform, worker)
        (worker.directory / "go").touch()
        another = await worker.submit(number=2)  # the supervisor polls in the loop's place
        assert await worker.exit_code() == 1
        assert failure(platform, another)["error_message"] == "no kernels"
        assert platform.jobs[job_id].status == "IN_PROGRESS"
        assert spans(worker, "job_take")[-1]["a"]["stallscope.claim.unread"] is True
        assert [r["j"] for r in worker.records() if r["k"] == "hand"] == [another]


async def test_a_bound_of_zero_is_a_bound_and_a_users_own_timeout_is_not_ours(
    platform: Platform, tmp_path: Path
) -> None:  # A28, A29
    zero = worker_code("def load():\n    pass", '"initializer": load, "init_timeout": 0')
    own = worker_code("def load():\n    raise TimeoutError('hub is slow')", '"initializer": load')
    async with observed_worker(platform, tmp_path, zero) as at_once, observed_worker(platform, tmp_path, own) as users:
        first, second = await at_once.submit(number=1), await users.submit(number=2)
        await failed_worker(at_once, first)
        await failed_worker(users, second)
        told = failure(platform, first)
        assert (told["event"], told["error_type"], told["hook"]) == ("init_failed", "InitializerTimeout", "load")
        assert told["error_message"] == "initializer 'load' exceeded init_timeout of 0 s"
        told = failure(platform, second)
        assert (told["event"], told["error_type"], told["error_message"]) == (
            "init_failed",
            "TimeoutError",
            "hub is slow",
        )
        (phase,) = spans(users, "prestart")
        assert parsed(phase)[1] == {
            "prestart.kind": "initializer",
            "error.type": "TimeoutError",
            "prestart.hook": "load",
        }


async def test_exits_and_cancellations_of_a_hook_are_failures(platform: Platform, tmp_path: Path) -> None:  # A30
    async def error_type(hook: str) -> str:
        code = worker_code(f"import sys, sdk_exporter\n@sdk_exporter.prestart\n{hook}")
        async with observed_worker(platform, tmp_path, code) as worker:
            job_id = await worker.submit(number=1)
            await failed_worker(worker, job_id)
            return str(failure(platform, job_id)["error_type"])

    assert await asyncio.gather(
        error_type("def load():\n    sys.exit(0)"), error_type("async def load():\n    raise asyncio.CancelledError()")
    ) == ["SystemExit", "asyncio.exceptions.CancelledError"]


def test_every_part_of_a_failure_is_bounded_in_bytes_after_it_was_put_together() -> None:  # A31
    error = RuntimeError("ä" * 100_000)
    failed = Failure("prestart_failed", error, supervisor.hook_name(error), stack="é\n" * 100_000)
    payload = failed.payload()
    assert len(payload["error_message"].encode()) <= 4096
    assert len(payload["error_traceback"].encode()) <= 16_384
    assert len(json.dumps(payload, ensure_ascii=False).encode()) <= 2 * 4096 + 16_384 + 1024


def test_the_decorator_returns_the_function(monkeypatch: pytest.MonkeyPatch) -> None:  # A1
    def load() -> None: ...

    monkeypatch.setattr(supervisor, "register", lambda _function, _timeout: None)
    assert sdk_exporter.prestart(load) is load
    assert sdk_exporter.prestart(timeout=5)(load) is load


async def test_an_initializer_that_fails_at_once_with_nothing_in_hand_fails_one_request(
    platform: Platform, tmp_path: Path
) -> None:  # A5, A26
    code = worker_code("async def load():\n    raise ImportError('no module')", '"initializer": load')
    async with observed_worker(platform, tmp_path, code) as worker:
        await worker.wait_span("prestart")
        assert not any(record["k"] == "hand" for record in worker.records())
        job_id = await worker.submit(number=1)
        await failed_worker(worker, job_id)
        assert failure(platform, job_id)["error_message"] == "no module"


UNDER_A_CLOCK = """
import asyncio, json, sys, threading
from sdk_exporter import spool, supervisor
from sdk_exporter.contract import PrestartKind

now = 100.0
in_hand = json.loads(sys.argv[1])
told = []

def clock():
    return now

def sleep(seconds):
    global now
    now += seconds

def load():
    raise ImportError("no module")

async def fail(job_id, payload):
    told.append([job_id, now - 100.0, payload["error_message"]])
    await asyncio.wait_for(all_are_told(), 60)  # none is told after another
    in_hand.remove(job_id)

async def all_are_told():
    while len(told) < len(json.loads(sys.argv[1])):
        await asyncio.sleep(0)

async def claim():
    raise AssertionError("the loop is free to claim")

def at_exit():
    print(json.dumps([told, now - 100.0]), flush=True)

async def main():
    supervising = supervisor.Supervisor(
        [supervisor.Phase(PrestartKind.HOOK, [supervisor.Hook(load)], None)],
        loop=asyncio.get_running_loop(), in_hand=lambda: list(in_hand), fail=fail, claim=claim, leave=lambda: None,
        at_exit=at_exit, is_claiming=lambda: True, clock=clock, sleep=sleep,
    )
    supervising.start()
    await supervising.gate.wait()

asyncio.run(main())
"""


def under_a_clock(*in_hand: str) -> tuple[list[tuple[str, float, str]], float]:
    """Who was told what and when, and when the worker left, in seconds from the start of a clock that only the
    supervisor's own pauses move."""
    command = [sys.executable, "-c", UNDER_A_CLOCK, json.dumps(in_hand)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1, done.stderr
    told, left = json.loads(done.stdout)
    return [tuple(one) for one in told], left


def test_all_in_hand_are_failed_at_once_and_the_worker_leaves_at_once() -> None:  # A17, A25
    told, left = under_a_clock("a", "b", "c")
    assert sorted(told) == [("a", 0.0, "no module"), ("b", 0.0, "no module"), ("c", 0.0, "no module")]
    assert left == 0.0


def test_without_any_request_a_failed_worker_leaves_after_ten_seconds() -> None:  # A5, A19
    told, left = under_a_clock()
    assert told == []
    assert left == pytest.approx(supervisor.CLAIM_TO_FAIL_SECONDS, abs=supervisor.IN_HAND_LOOK_SECONDS)


async def test_all_requests_in_hand_fail_when_the_initializer_does(
    platform: Platform, tmp_path: Path
) -> None:  # A23, A24, A25, A34
    code = worker_code(
        """
import pathlib
def load():
    threading.Thread(target=threading.Event().wait).start()  # keeps an interpreter that only asks to exit
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    raise RuntimeError("weights are corrupt")
""",
        '"initializer": load, "concurrency_modifier": lambda now: 4',
    )
    async with observed_worker(platform, tmp_path, code) as worker:
        ids = [await worker.submit(number=number) for number in range(4)]
        await worker.wait_span("job.claimed", kind="point", count=4)
        platform.hold(worker.endpoint, 600.0, stop_seconds=600.0)  # the exit does not wait for open polls
        # None is answered before all have arrived: they are told beside each other, not one after the other.
        all_came = asyncio.Event()
        platform.arm("job-done", Fault(status=400, until=all_came))
        platform.arm("job-done", Fault(serve=True, until=all_came, times=3))
        (worker.directory / "go").touch()
        await platform.wait_event("job-done", worker=worker.name, count=4, seconds=PATIENCE_SECONDS)
        all_came.set()
        assert await worker.exit_code() == 1
        outcomes = {r["j"]: r["o"] for r in worker.records() if r["k"] == "release"}
        # The one whose failure the platform did not take was not told, and is not said to be.
        assert sorted(outcomes.values()) == ["prestart_failed"] * 3 + ["refused"]
        told = [job_id for job_id in ids if outcomes[job_id] == "prestart_failed"]
        assert [failure(platform, job_id)["error_message"] for job_id in told] == ["weights are corrupt"] * 3


async def test_a_shutdown_during_prestart_fails_the_request_in_hand(
    platform: Platform, tmp_path: Path
) -> None:  # A15, A16
    code = worker_code(
        "import sdk_exporter\n@sdk_exporter.prestart\ndef load_model():\n    threading.Event().wait()",
    )
    async with observed_worker(platform, tmp_path, code) as worker:
        job_id = await worker.submit(number=1)
        await worker.wait_span("job.gated", kind="start")
        assert await worker.terminate() == 0
        told = failure(platform, job_id)
        assert (told["event"], told["error_type"], told["hook"]) == (
            "prestart_failed",
            "PrestartInterrupted",
            "load_model",
        )
        (shutdown,) = story(worker, names=["worker.shutdown"])[1:]
        assert shutdown["a"] == {"shutdown.signal": "SIGTERM", "shutdown.jobs_in_hand": []}
        # Cancelled is not finished: the handler must not run without its model.
        assert not [record for record in worker.records() if record.get("n") == "job.run"]


async def test_hooks_run_without_instrument_and_with_telemetry_off(platform: Platform, tmp_path: Path) -> None:
    hook = "import sdk_exporter\n@sdk_exporter.prestart\ndef load_model():\n    ready.append('loaded')"
    off = {"OTEL_SDK_DISABLED": "true"}
    async with (
        observed_worker(platform, tmp_path, worker_code(hook), instrumented=False) as alone,
        observed_worker(platform, tmp_path, worker_code(hook), environ=off) as disabled,
    ):
        for worker in (alone, disabled):
            job_id = await worker.finish(number=1)
            assert platform.jobs[job_id].output == {"ready": ["loaded"]}
            assert worker.records() == []


LOCAL = """
import sdk_exporter
import runpod

@sdk_exporter.prestart
async def load_model():
    {body}

def handler(job):
    print("handled")
    return 1

runpod.serverless.start({{"handler": handler}})
"""


async def test_a_local_run_does_prestart_first(platform: Platform, tmp_path: Path) -> None:  # A6
    local = {"RUNPOD_WEBHOOK_GET_JOB": ""}
    for body, code, handled in (("print('loaded')", 0, True), ("raise RuntimeError('no weights')", 1, False)):
        source = "import sys\nsys.argv += ['--test_input', '{\"input\": {}}']\n" + LOCAL.format(body=body)
        async with observed_worker(platform, tmp_path, source, environ=local) as worker:
            assert await worker.exit_code() == code
            assert ("handled" in worker.output()) == handled
            statuses = [record["s"] for record in spans(worker, "prestart") + spans(worker, "job.run")]
            assert statuses == (["ok", "ok"] if handled else ["error"])
            ledger = [record["k"] for record in worker.records() if record["k"] in ("hand", "release")]
            assert ledger == (["hand", "release"] if handled else [])


async def test_the_api_server_does_prestart_first_and_several_of_them_are_refused(
    platform: Platform, tmp_path: Path
) -> None:  # A6
    source = LOCAL.format(body="raise RuntimeError('no weights')")

    async def ends_with(reason: str, *arguments: str, **environ: str) -> None:
        code = f"import sys\nsys.argv += {list(arguments)}\n{source}"
        async with observed_worker(platform, tmp_path, code, environ=environ) as worker:
            assert await worker.exit_code() == 1
            assert reason in worker.output()

    api = ("--rp_serve_api", "--rp_api_port", "0")
    await asyncio.gather(
        ends_with("RuntimeError: no weights", *api),
        ends_with("prestart hooks are not supported", *api, "--rp_api_concurrency", "2"),
        ends_with("prestart hooks are not supported", RUNPOD_REALTIME_PORT="1"),
    )
