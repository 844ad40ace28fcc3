"""`instrument()`: light, harmless, idempotent, and there however the worker is started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from observed_worker import observed_worker, spans, story
from sink import Sink

from collector.demo.platform import Platform
from sdk_exporter import spool

HANDLER = """
import runpod

def handler(job):
    return job["input"]

runpod.serverless.start({"handler": handler})
"""


def run(code: str, directory: Path, *, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A bare interpreter in `directory`, records handed to the file `events` there."""
    events = os.open(directory / "events", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    page = os.open(directory / "page", os.O_CREAT | os.O_RDWR)
    os.ftruncate(page, spool.PAGE_BYTES)
    status = os.fstat(events)
    handover = f"{events},-1,{page},{status.st_dev},{status.st_ino},{os.getpid()}"
    foreign = ("RUNPOD", "OTEL", "STALLSCOPE")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    try:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**clean, spool.ENVIRONMENT_KEY: handover, **(environ or {})},
            cwd=directory,
            pass_fds=(events, page),
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        os.close(events)
        os.close(page)


def told(directory: Path) -> list[tuple[str, str | None]]:
    records, _, _ = spool.decode((directory / "events").read_bytes(), at_end=True)
    return [(record["k"], record.get("n")) for record in records]


def test_importing_and_instrumenting_loads_little_and_nothing_of_opentelemetry(tmp_path: Path) -> None:
    done = run(
        """
        import sys
        before = set(sys.modules)
        import sdk_exporter
        sdk_exporter.instrument()
        loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(*sorted(loaded & {"opentelemetry", "wrapt", "asyncio", "dataclasses", "inspect", "logging", "runpod",
                                "aiohttp", "google", "requests", "traceback"}))
        """,
        tmp_path,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("\n", "", 0)
    assert ("start", "worker.boot") in told(tmp_path)


def test_a_second_call_does_nothing_and_disabled_means_nothing(tmp_path: Path) -> None:
    twice = "import sdk_exporter\nsdk_exporter.instrument()\nsdk_exporter.instrument()"
    assert run(twice, tmp_path).returncode == 0
    assert told(tmp_path) == [("resource", None), ("start", "worker.boot")]
    off = tmp_path / "off"
    off.mkdir()
    assert run(twice, off, environ={"OTEL_SDK_DISABLED": "TRUE"}).returncode == 0
    assert told(off) == []


def test_a_bad_setting_warns_once_and_the_worker_goes_on(tmp_path: Path) -> None:  # A12
    code = "import sdk_exporter\nsdk_exporter.instrument()\nsdk_exporter.instrument()\nprint('on')"
    done = run(code, tmp_path, environ={"STALLSCOPE_LOG_CAPTURE": "everything", "STALLSCOPE_LOG_TAIL_BYTES": "-3"})
    assert done.stdout == "on\n"
    assert done.stderr == (
        "stallscope: STALLSCOPE_LOG_CAPTURE='everything' is not one of auto, all, off; using auto\n"
        "stallscope: STALLSCOPE_LOG_TAIL_BYTES='-3' is not a whole number of at least 0; using 16384\n"
    )


def test_an_exception_before_start_is_the_boots_and_looks_as_ever(tmp_path: Path) -> None:
    code = "import sdk_exporter\nsdk_exporter.instrument()\nraise ImportError('libcudnn.so.9')"
    done = run(code, tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ImportError: libcudnn.so.9\n")
    assert "sdk_exporter" not in done.stderr
    records, _, _ = spool.decode((tmp_path / "events").read_bytes(), at_end=True)
    boot = records[-1]
    assert (boot["k"], boot["n"], boot["s"], boot["x"]["type"], boot["x"]["message"]) == (
        "end",
        "worker.boot",
        "error",
        "ImportError",
        "libcudnn.so.9",
    )


def test_forked_and_spawned_children_tell_nothing(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import sdk_exporter\nsdk_exporter.instrument()\nimport multiprocessing\n"
        "from sdk_exporter import events\n"
        "def child(): print(events.enabled(), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn'):\n"
        "        process = multiprocessing.get_context(method).Process(target=child)\n"
        "        process.start(); process.join()\n"
        "    child()\n"
    )
    done = run("import runpy; runpy.run_path('main.py', run_name='__main__')", tmp_path)
    assert done.stdout == "False\nFalse\nTrue\n", done.stderr
    assert told(tmp_path) == [("resource", None), ("start", "worker.boot")]


def test_a_block_of_the_users_own_is_told_as_one(tmp_path: Path) -> None:
    """By which a reader knows that its end is the outcome, and that no delivery follows."""
    code = """
        import sdk_exporter
        sdk_exporter.instrument()
        with sdk_exporter.job("a"):
            pass
        """
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    records, _, _ = spool.decode((tmp_path / "events").read_bytes(), at_end=True)
    kinds = [record["a"].get("stallscope.handler.kind") for record in records if record.get("n") == "job.run"]
    assert kinds == ["block", "block"]


def test_the_users_random_numbers_stay_theirs(tmp_path: Path) -> None:
    code = """
        import random
        random.seed(7)
        expected = random.Random(7).random()
        import sdk_exporter
        sdk_exporter.instrument()
        with sdk_exporter.job("a"), sdk_exporter.phase("load"):
            pass
        assert random.random() == expected
        """
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert told(tmp_path)[2:] == [
        ("end", "worker.boot"),  # a plain loop has come up with its first job
        ("hand", None),
        ("start", "job.run"),
        ("start", "phase.load"),
        ("end", "phase.load"),
        ("end", "job.run"),
        ("release", None),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "import runpod\nfrom runpod.serverless import start\nimport sdk_exporter\nsdk_exporter.instrument()\n",
        "import sdk_exporter\nsdk_exporter.instrument()\nfrom runpod.serverless.modules import rp_scale\n",
    ],
    ids=["SDK imported before", "SDK imported after, by an inner module"],
)
async def test_the_order_of_imports_does_not_matter(platform: Platform, tmp_path: Path, code: str) -> None:
    async with observed_worker(platform, tmp_path, code + HANDLER, instrumented=False) as worker:
        await worker.finish(number=1)
        await worker.wait_span("job.deliver")
        assert [r["s"] for r in spans(worker, "job.run")] == ["ok"]
        assert await worker.terminate() == 0


async def test_opentelemetrys_own_launcher_instruments_an_unchanged_worker(platform: Platform, tmp_path: Path) -> None:
    command = (str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable)
    quiet = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    async with observed_worker(
        platform, tmp_path, HANDLER, instrumented=False, command=command, environ=quiet
    ) as worker:
        job_id = await worker.finish(number=1)
        await worker.wait_for(lambda records: any(r["k"] == "release" for r in records), "release")
        assert [r["k"] for r in story(worker, job_id=job_id)] == [
            "point",
            "hand",
            "start",
            "end",
            "start",
            "end",
            "release",
        ]
        assert await worker.terminate() == 0


def run_alone(code: str, directory: Path, sink: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The one-line form: no launcher, so `instrument()` starts a recorder of its own."""
    foreign = ("RUNPOD", "OTEL", "STALLSCOPE")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": sink, **environ},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
    )


async def test_one_line_is_enough_for_the_reason_and_the_last_lines_of_a_crash(sink: Sink, tmp_path: Path) -> None:
    code = """
        import sdk_exporter
        sdk_exporter.instrument()
        print("loading")
        raise RuntimeError("CUDA out of memory")
        """
    done = await asyncio.to_thread(run_alone, code, tmp_path, sink.base)
    assert done.returncode == 1
    assert done.stdout == "loading\n"
    boot = await sink.wait_for("worker.boot")
    assert boot["error.type"] == "RuntimeError"
    tail = boot["stallscope.log.tail"]
    assert tail.startswith("loading\nTraceback (most recent call last):\n")
    assert tail.endswith("RuntimeError: CUDA out of memory\n")


async def test_what_a_handler_prints_stays_in_the_worker_unless_asked_for(sink: Sink, tmp_path: Path) -> None:  # A13
    code = """
        import sdk_exporter
        sdk_exporter.instrument()
        print("before")
        with sdk_exporter.job("a"):
            print("the user's data")
            raise ValueError("no")
        """
    await asyncio.to_thread(run_alone, code, tmp_path, sink.base)
    run_span = await sink.wait_for("job.run")
    assert "the user's data" not in str(sink.spans)
    assert run_span["error.type"] == "ValueError"
    assert run_span["stallscope.log.bytes_withheld"] == len("the user's data\n")
    sink.spans.clear()
    await asyncio.to_thread(run_alone, code, tmp_path, sink.base, STALLSCOPE_HANDLER_LOGS="on")
    assert "the user's data" in (await sink.wait_for("job.run"))["stallscope.log.tail"]


def test_the_users_streams_stay_as_they_are(tmp_path: Path) -> None:
    code = """
        import io, sys
        stream, name, encoding = sys.stdout, sys.stdout.name, sys.stdout.encoding
        import sdk_exporter
        sdk_exporter.instrument()
        assert sys.stdout is stream and isinstance(sys.stdout, io.TextIOWrapper)
        assert (sys.stdout.name, sys.stdout.encoding) == (name, encoding)
        assert sys.stdout.write("äöü\\n") == 4
        try:
            sys.stdout.write(5)
        except TypeError as error:
            print(error)
        sys.stdout.writelines(["a\\n", "b\\n"])
        print("a", "b", sep="-", end="!")
        """
    done = run_alone(code, tmp_path, "http://127.0.0.1:9")
    assert (done.stdout, done.stderr, done.returncode) == (
        "äöü\nwrite() argument must be str, not int\na\nb\na-b!",
        "",
        0,
    )


def test_uninstrumenting_ends_the_telling_and_gives_the_streams_back(tmp_path: Path) -> None:
    code = """
        import sys
        write = sys.stdout.write
        import runpod.serverless
        from sdk_exporter.instrumentor import StallscopeInstrumentor
        from sdk_exporter import events
        StallscopeInstrumentor().instrument()
        during = events.enabled()
        StallscopeInstrumentor().uninstrument()
        print(during, events.enabled(), sys.stdout.write == write)
        """
    done = run_alone(code, tmp_path, "http://127.0.0.1:9")
    assert (done.stdout, done.returncode) == ("True False True\n", 0), done.stderr


async def test_an_unfinished_line_is_not_kept_back_for_long(sink: Sink, tmp_path: Path) -> None:
    """`Loading shard 3/8…` without a line end may be the last that a worker says."""
    code = """
        import time, sdk_exporter
        sdk_exporter.instrument()
        print("loading shard 3/8 ...", end="", flush=True)
        from sdk_exporter import tee
        deadline = time.monotonic() + 60
        while tee._tees[0][1]._pending and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not tee._tees[0][1]._pending
        """
    done = await asyncio.to_thread(run_alone, code, tmp_path, sink.base)
    assert (done.stdout, done.stderr, done.returncode) == ("loading shard 3/8 ...", "", 0)
