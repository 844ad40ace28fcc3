"""As a container has it: first process of its namespace, and a memory limit that kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launched import clean_environment, until, worker_of
from launched import sink as sink
from otlp_sink import Sink
from parts import skip_or_fail

SECONDS = 60
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """The command that makes what follows the first process of a PID namespace."""
    try:
        subprocess.run([*NAMESPACE, "true"], check=True, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.CalledProcessError):
        skip_or_fail("no PID namespace can be made here (needs root and unshare)")
    return NAMESPACE


FIRST = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(11))
subprocess.run([sys.executable, "-c", "import subprocess, sys; subprocess.Popen(['sleep', '0.1'])"])
while any(open(f"/proc/{p}/stat").read().rsplit(")")[1].split()[0] == "Z" or "sleep" in open(f"/proc/{p}/comm").read()
          for p in os.listdir("/proc") if p.isdigit()):
    time.sleep(0.02)
print(os.getppid(), flush=True)
while True:
    signal.pause()
"""


def test_first_process_reaps_forwards_and_keeps_the_code(namespace: tuple[str, ...], sink: Sink) -> None:
    """No zombie stays (the worker waits for that), SIGTERM arrives though the kernel protects the first process."""
    with subprocess.Popen(
        [*namespace, sys.executable, "-m", "sdk_exporter", "--flush", "30", "--", sys.executable, "-c", FIRST],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        (keeper,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(keeper), signal.SIGTERM)
        assert process.wait(SECONDS) == 11
    assert sink.only("worker.death").attributes["process.exit.code"] == 11


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory cgroup of 256 MiB; write a pid into its `cgroup.procs`."""
    group = _memory_group("/sys/fs/cgroup/memory", "memory.limit_in_bytes") or _memory_group(
        "/sys/fs/cgroup", "memory.max"
    )
    if group is None:
        skip_or_fail("no memory cgroup can be made here (needs root and the memory controller)")
        return
    yield group
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def _memory_group(parent: str, limit: str) -> Path | None:
    group = Path(parent) / f"stallscope-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(str(256 << 20))
    except OSError:
        group.rmdir()
        return None
    return group


EAT = "b = []\nwhile True: b.append(bytearray(b'x' * (8 << 20)))"


def test_worker_killed_for_memory_says_so(sink: Sink, small_memory: Path) -> None:
    process = subprocess.Popen(
        ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(small_memory / "cgroup.procs"),
         *(sys.executable, "-m", "sdk_exporter", "--flush", "30", "--"),
         *(sys.executable, "-c", f"print('loading', flush=True)\n{EAT}")],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (137, b"loading\n")
    death = sink.only("worker.death").attributes
    assert death["stallscope.death.oom_kill"] is True
    assert death["stallscope.death.signal"] == "SIGKILL"
    assert death["stallscope.log.tail"] == "loading\n"


def test_child_killed_for_memory_is_told_while_the_worker_lives(sink: Sink, small_memory: Path) -> None:
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.readline()\\n" + {EAT!r}], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.readline()
child.communicate(b"\\n")
sys.stdin.readline()
"""
    process = subprocess.Popen(
        ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(small_memory / "cgroup.procs"),
         *(sys.executable, "-m", "sdk_exporter", "--flush", "30", "--", sys.executable, "-c", code)],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url, STALLSCOPE_HEARTBEAT_SECONDS="0.3"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    child = int(process.stdout.readline())
    before = len(sink.named("worker.heartbeat"))
    sink.wait_for(lambda s: len(s.named("worker.heartbeat")) > before + 6)  # two seconds: the child has been seen
    process.stdin.write(b"\n")
    process.stdin.flush()
    death = sink.wait_for(lambda s: s.named("backend.death"))[0].attributes
    assert worker_of(process.pid)
    process.communicate(b"\n", timeout=SECONDS)
    assert death["stallscope.death.oom_kill"] is True
    assert death.get("process.pid") in (child, None)
    assert process.returncode == 0
    assert sink.only("worker.death").attributes["stallscope.death.oom_kill"] is False
