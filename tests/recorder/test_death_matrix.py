"""Every way to die, in every phase of a worker's life: what must have arrived at the collector afterwards.

Real processes: a launcher, its worker with `instrument()`, a collector. Each test starts one worker per phase at once.
The number of random kills is `SOAK_KILLS` (50 unless set; `make soak` asks for 1,000, and for every phase with the
defaults, too).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from launched import clean_environment, recorder_of, until, worker_of
from launched import sink as sink
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_sink import SeenSpan, Sink
from parts import skip_or_fail

from sdk_exporter import spool
from sdk_exporter.recorder import leftovers
from sdk_exporter.recorder.delivery import Body

SECONDS = 120
AT_ONCE = 4
PHASES = ("boot", "prestart", "claimed", "running", "delivering")
OF_HANDLERS = ("running", "delivering")
"""Phases after a handler began: with the defaults none of its output may leave."""

WORKER = """
import ctypes, os, resource, signal, subprocess, sys, threading, time
import sdk_exporter
sdk_exporter.instrument()
from sdk_exporter import events, ledger
from sdk_exporter.contract import SpanName

CASE, PHASE, CAUSE = sys.argv[1:]
LAST = f"last line of {CASE}"

def claim(job):
    attempt = ledger.claim(job)
    events.hand(attempt)
    events.point(SpanName.JOB_CLAIMED, attempt=attempt, status="ok")
    return attempt

def reach():
    print(f"phase {PHASE}", flush=True)
    if PHASE == "boot":
        return
    events.end_boot({})
    if PHASE == "prestart":
        hook = events.begin(SpanName.PRESTART)
        events.begin(SpanName.PRESTART_HOOK, parent=hook)
    attempt = claim(CASE)
    if PHASE == "prestart":
        events.begin(SpanName.JOB_GATED, attempt=attempt)
    if PHASE in ("running", "delivering"):
        run = events.begin(SpanName.JOB_RUN, {"stallscope.handler.kind": "sync"}, attempt=attempt)
        if PHASE == "delivering":
            run.end()
            events.begin(SpanName.JOB_DELIVER, {"stallscope.deliver.attempt": 1}, attempt=attempt)

def raise_last():
    raise RuntimeError(LAST)

def end():
    if CAUSE == "exception in a thread":
        thread = threading.Thread(target=raise_last)
        thread.start()
        thread.join()
        os._exit(5)
    if CAUSE == "exception in a child":
        subprocess.run([sys.executable, "-c", f"raise RuntimeError({LAST!r})"])
        os._exit(6)
    print(LAST, flush=True)
    if CAUSE == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    elif CAUSE == "os._exit":
        os._exit(3)
    elif CAUSE == "sys.exit":
        sys.exit(4)
    elif CAUSE == "abort":
        os.abort()
    elif CAUSE == "segfault":
        ctypes.string_at(0)
    elif CAUSE == "ulimit OOM":
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        bytearray(1 << 31)
    elif CAUSE == "hang and kill":
        while True:
            time.sleep(3600)
    else:
        os.kill(os.getpid(), signal.SIGKILL)

reach()
end()
"""


@dataclass(frozen=True, slots=True)
class Cause:
    """A way to die; None: no exit code or no signal."""

    name: str
    exit: int | None = None
    signal: str | None = None


CAUSES = (
    Cause("SIGKILL", signal="SIGKILL"),
    Cause("SIGTERM", signal="SIGTERM"),
    Cause("os._exit", exit=3),
    Cause("sys.exit", exit=4),
    Cause("abort", signal="SIGABRT"),
    Cause("segfault", signal="SIGSEGV"),
    Cause("ulimit OOM", exit=1),
    Cause("exception in a thread", exit=5),
    Cause("exception in a child", exit=6),
    Cause("hang and kill", signal="SIGKILL"),
    Cause("collector down then up", signal="SIGKILL"),
    Cause("spool disk full", signal="SIGKILL"),
    Cause("torn spool", signal="SIGKILL"),
)

SOAK_KILLS = os.environ.get("SOAK_KILLS")


def phases_as_shipped(number: int) -> tuple[str, ...]:
    """One before a handler began and one after, in turns: all five for each cause take half a minute more."""
    if SOAK_KILLS:
        return PHASES
    before = [phase for phase in PHASES if phase not in OF_HANDLERS]
    return before[number % len(before)], OF_HANDLERS[number % len(OF_HANDLERS)]


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a worker script under the launcher."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        script: str, *arguments: str, collector: str, env: dict[str, str], before: tuple[str, ...] = ()
    ) -> subprocess.Popen[bytes]:
        path = tmp_path / "worker.py"
        if not path.exists():  # others that read it may be starting just now
            path.write_text(script)
        process = subprocess.Popen(
            # A machine that is busy with other tests may need more than the usual two seconds for the end.
            [*before, sys.executable, "-m", "sdk_exporter", "--flush", "60", "--", sys.executable, path, *arguments],
            env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector, RUNPOD_POD_ID=arguments[0], **env),
            cwd=tmp_path,
            bufsize=0,  # `communicate` does not see what a buffered reader has taken already
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    """A port of ours that refuses connections until the block ends."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def read_until(stream: IO[bytes] | None, text: str) -> bytes:
    """What came up to and with the line that holds `text`."""
    assert stream is not None
    seen = b""
    while text.encode() not in seen:
        line = stream.readline()
        assert line, f"{text!r} never came, only {seen!r}"
        seen += line
    return seen


def play(
    cause: Cause, start: Start, sink: Sink, tmp_path: Path, env: dict[str, str], phases: tuple[str, ...] = PHASES
) -> Sink:
    """One worker per phase, all at once; returns the collector that has it all."""
    if cause.name in ("collector down then up", "spool disk full"):
        before: tuple[str, ...] = ()
        if cause.name == "spool disk full":
            env, before = {**env, "STALLSCOPE_SPOOL_DIR": str(tmp_path / "spool")}, full_disk(tmp_path / "spool")
        with taken_port() as port:
            workers = launch_all(cause, phases, start, f"http://127.0.0.1:{port}", env, before)
            for phase, worker in workers.items():
                read_until(worker.stdout, f"last line of {cause.name}/{phase}")
        with Sink(port) as late:
            finish(workers)
            return late
    if cause.name == "torn spool":
        env = {**env, "STALLSCOPE_SPOOL_DIR": str(torn_spool(tmp_path))}
    workers = launch_all(cause, phases, start, sink.url, env)
    if cause.name == "hang and kill":
        for phase, worker in workers.items():
            read_until(worker.stdout, f"last line of {cause.name}/{phase}")
            os.kill(until(lambda keeper=worker.pid: worker_of(keeper)), signal.SIGKILL)
    finish(workers)
    return sink


def launch_all(
    cause: Cause,
    phases: tuple[str, ...],
    start: Start,
    collector: str,
    env: dict[str, str],
    before: tuple[str, ...] = (),
) -> dict[str, subprocess.Popen[bytes]]:
    return {
        phase: start(WORKER, f"{cause.name}/{phase}", phase, cause.name, collector=collector, env=env, before=before)
        for phase in phases
    }


def finish(workers: dict[str, subprocess.Popen[bytes]]) -> None:
    for worker in workers.values():
        worker.communicate(timeout=SECONDS)


def full_disk(folder: Path) -> tuple[str, ...]:
    """A command that runs what follows with a disk at `folder` that has no byte left."""
    folder.mkdir()
    script = 'mount -t tmpfs -o size=4k none "$0" && head -c 4096 /dev/zero > "$0/full" && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", script, str(folder))
    if shutil.which("unshare") is None or subprocess.run([*before, "true"], capture_output=True).returncode:
        skip_or_fail("no small disk can be mounted here (needs root and unshare)")
    return before


def torn_spool(tmp_path: Path) -> Path:
    """What an earlier start left: one whole request, and half a one."""
    folder = tmp_path / "spool"
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.name, span.trace_id, span.span_id = "left.behind", b"\x01" * 16, b"\x02" * 8
    span.start_time_unix_nano = span.end_time_unix_nano = time.time_ns()
    data = request.SerializeToString()
    leftovers.save(str(folder), "earlier", [Body(data, 1)], 1 << 20)
    (file,) = folder.glob("*")
    torn = spool.FRAME.pack(spool.MAGIC, 1, len(data), zlib.crc32(data)) + data
    file.write_bytes(file.read_bytes() + torn[: len(torn) // 2])
    return folder


def told_of(sink: Sink, case: str) -> list[SeenSpan]:
    """Spans of one worker."""
    return [span for span in sink.spans if span.resource.get("service.instance.id") == case]


def once(spans: list[SeenSpan], name: str) -> SeenSpan:
    """The one span of this name: not missing, not repeated, not told under two ids."""
    (span,) = [span for span in spans if span.name == name]
    return span


def check(sink: Sink, cause: Cause, phase: str, *, output: bool) -> None:
    case = f"{cause.name}/{phase}"
    spans = told_of(sink, case)
    death = once(spans, "worker.death")
    facts = death.attributes
    ended = facts.get("process.exit.code"), facts.get("stallscope.death.signal")
    assert ended == (cause.exit, cause.signal)
    assert facts["stallscope.death.last_phase"] == phase
    once(spans, "worker.boot.started")
    if phase == "boot":
        assert facts["stallscope.death.jobs_in_hand"] == []
    else:
        assert facts["stallscope.death.jobs_in_hand"] == [case]
        assert once(spans, "job.claimed").attributes["faas.invocation_id"] == case
        once(spans, "worker.boot")
    for name, of in (("prestart", "prestart"), ("job.run", "running"), ("job.deliver", "delivering")):
        if phase == of:
            once(spans, f"{name}.started")
            assert not [span for span in spans if span.name == name], f"{name} has no end to tell"
    tail = facts.get("stallscope.log.tail", "")
    last = f"last line of {case}"
    assert tail.count(last) == (1 if output else 0)
    if not output:
        assert facts["stallscope.log.bytes_withheld"] > 0
        assert not any(last in str(span.attributes) + str(span.events) for span in spans)
        # The keeper may see a line that came just before the handler only after it: then it is kept back as well.
        assert tail.strip() in ("", f"phase {phase}")
    lost = {key: value for span in spans for key, value in span.attributes.items() if key.startswith("stallscope.loss")}
    assert set(lost) <= ({"stallscope.loss.spool_torn"} if cause.name == "torn spool" else set())


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_claim_death_and_last_line_arrive_once(cause: Cause, start: Start, sink: Sink, tmp_path: Path) -> None:
    arrived = play(cause, start, sink, tmp_path, {"STALLSCOPE_HANDLER_LOGS": "on"})
    for phase in PHASES:
        check(arrived, cause, phase, output=True)
    if cause.name == "torn spool":
        assert {span.span_id for span in arrived.named("left.behind")} == {"02" * 8}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_as_shipped_no_output_of_a_handler_arrives(cause: Cause, start: Start, sink: Sink, tmp_path: Path) -> None:
    phases = phases_as_shipped(CAUSES.index(cause))
    arrived = play(cause, start, sink, tmp_path, {}, phases)
    for phase in phases:
        check(arrived, cause, phase, output=phase not in OF_HANDLERS)


BUSY = (
    WORKER.partition("def reach")[0]
    + """
def say(text):
    print(text, flush=True)

events.end_boot({})
for number in range(1, 1_000_000):
    attempt = claim(f"{CASE}/{number}")
    say(f"claimed {number}")
    run = events.begin(SpanName.JOB_RUN, attempt=attempt)
    say(f"ran {number}")
    run.end()
    deliver = events.begin(SpanName.JOB_DELIVER, attempt=attempt)
    deliver.end()
    ledger.release(attempt, "delivered")
    say(f"released {number}")
    time.sleep(0.005)
"""
)

VICTIMS = ("worker", "worker", "recorder, worker", "keeper, worker")


def kill_at_random(start: Start, sink: Sink, case: str, victim: str) -> list[str]:
    """Lines that the worker got out before it was killed."""
    process = start(BUSY, case, "-", "-", collector=sink.url, env={"STALLSCOPE_HANDLER_LOGS": "on"})
    first = read_until(process.stdout, "claimed 1").decode()
    worker = until(lambda: worker_of(process.pid))
    chance = random.SystemRandom()
    time.sleep(chance.uniform(0, 0.4))  # the moment is what is random here
    if victim.startswith("recorder"):
        recorder = recorder_of(process.pid)
        if recorder is not None:
            os.kill(recorder, signal.SIGKILL)
    elif victim.startswith("keeper"):
        process.kill()
    time.sleep(chance.uniform(0, 0.1))
    os.kill(worker, signal.SIGKILL)
    rest, _ = process.communicate(timeout=SECONDS)
    return (first + rest.decode()).splitlines()


def check_random(sink: Sink, case: str, lines: list[str]) -> None:
    spans = told_of(sink, case)
    deaths = {span.span_id: span for span in spans if span.name == "worker.death"}
    assert len(deaths) == 1
    (death,) = deaths.values()
    claimed = {line.split()[1] for line in lines if line.startswith("claimed")}
    seen: dict[str, set[str]] = {}
    for span in spans:
        if span.name == "job.claimed":
            seen.setdefault(span.attributes["faas.invocation_id"].rpartition("/")[2], set()).add(span.span_id)
    assert claimed <= set(seen)
    assert all(len(ids) == 1 for ids in seen.values())
    word, number = lines[-1].split()
    next_one = [f"{case}/{int(number) + 1}"]
    possible: list[Any] = [[], next_one] if word == "released" else [[f"{case}/{number}"], []]
    assert death.attributes["stallscope.death.jobs_in_hand"] in possible
    assert death.attributes["stallscope.log.tail"].splitlines()[-1] == lines[-1]


@pytest.mark.timeout(7200)  # a soak takes its time
def test_random_kills_lose_and_repeat_nothing(start: Start, sink: Sink) -> None:
    kills, wrong = int(SOAK_KILLS or "50"), list[str]()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = {f"kill-{number}": VICTIMS[number % len(VICTIMS)] for number in range(kills)}
        outputs = pool.map(lambda item: kill_at_random(start, sink, *item), cases.items())
        for (case, victim), lines in zip(cases.items(), outputs, strict=True):
            try:
                until(lambda case=case: any(s.name == "worker.death" for s in told_of(sink, case)), SECONDS)
                check_random(sink, case, lines)
            except AssertionError as error:
                wrong.append(f"{case} ({victim}), output ends {lines[-4:]}: {error}")
    assert not wrong, f"{len(wrong)} of {kills}:\n" + "\n".join(wrong)
