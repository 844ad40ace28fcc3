"""A worker of our own making under the real launcher, and a collector that does as it is told."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from otlp_sink import Sink

PRELUDE = """
import os, sys, time, signal
from sdk_exporter import spool
writer, page = spool.from_environment(os.environ)
TRACE, JOB_TRACE = "ab" * 16, "cd" * 16
def put(kind, **record):
    record.setdefault("t", time.time_ns())
    assert writer.write({"k": kind, "pid": os.getpid(), **record})
def start(name, id, **more):
    put("start", n=name, id=id, tr=more.pop("tr", TRACE), a=more.pop("a", {}), **more)
def end(name, id, **more):
    put("end", n=name, id=id, tr=more.pop("tr", TRACE), a=more.pop("a", {}), t0=more.pop("t0", time.time_ns()), **more)
def boot_ends():
    boot, trace, span, began = os.environ["STALLSCOPE_BOOT"].split(",")
    end("worker.boot", span, tr=trace, t0=int(began), s="ok")
def say(text, to=sys.stdout):
    print(text, file=to, flush=True)
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


Launch = Callable[..., "subprocess.Popen[bytes]"]


def clean_environment(**more: str) -> dict[str, str]:
    """Ours without what would change the outcome."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "STALLSCOPE_", "RUNPOD_"))}
    kept["PYTHONFAULTHANDLER"] = ""
    return {**kept, "STALLSCOPE_DEBUG": "1", **more}


@pytest.fixture
def launch(sink: Sink, tmp_path: Path) -> Iterator[Launch]:
    """Starts a worker script (behind `PRELUDE`) under `python -m sdk_exporter`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        code: str, *options: str, prelude: bool = True, env: dict[str, str] | None = None, **popen: Any
    ) -> subprocess.Popen[bytes]:
        script = tmp_path / f"worker{len(started)}.py"
        script.write_text((PRELUDE if prelude else "") + textwrap.dedent(code))
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(
            # A machine that is busy with other tests may need more than the usual two seconds for the end.
            [sys.executable, "-m", "sdk_exporter", "--flush", "30", *options, "--", sys.executable, str(script)],
            env=clean_environment(**{"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, **(env or {})}),
            cwd=tmp_path,
            **popen,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)
    return value


def recorder_of(keeper: int) -> int | None:
    """Pid of the keeper's recorder."""
    return next((pid for pid, name in _children(keeper) if name == "stallscope-rec"), None)


def worker_of(keeper: int) -> int | None:
    """Pid of the keeper's worker."""
    return next((pid for pid, name in _children(keeper) if not name.startswith("stallscope")), None)


def _children(pid: int) -> Iterator[tuple[int, str]]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            yield int(child), Path(f"/proc/{child}/comm").read_text().strip()
        except OSError:
            continue  # it has just ended
