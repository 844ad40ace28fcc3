"""The worker's output, signals and exit code are as if we were not there."""

from __future__ import annotations

import errno
import hashlib
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import Launch, clean_environment, recorder_of, until
from launched import launch as launch
from launched import sink as sink
from otlp_sink import Sink

from sdk_exporter.recorder import kernel
from sdk_exporter.recorder.shared import Shared
from sdk_exporter.recorder.streams import Stream

SECONDS = 60

MUCH = """
import hashlib, os, random
random.seed(7)
total = hashlib.sha256()
left = 20 << 20
while left:
    piece = random.randbytes(min(left, random.choice((1, 100, 4096, 65536, 300000))))
    left -= len(piece)
    total.update(piece)
    view = memoryview(piece)
    while view:
        view = view[os.write(1, view):]
os.write(2, total.hexdigest().encode())
"""


def test_binary_output_arrives_byte_for_byte(launch: Launch) -> None:
    out, err = launch(MUCH, prelude=False).communicate(timeout=SECONDS)
    assert len(out) == 20 << 20
    assert hashlib.sha256(out).hexdigest().encode() == err


def test_output_into_files_arrives_byte_for_byte_too(launch: Launch, tmp_path: Path) -> None:
    """A file takes no splice, and one opened for appending neither."""
    for mode in ("wb", "ab"):
        with (tmp_path / f"out-{mode}").open(mode) as out, (tmp_path / f"err-{mode}").open(mode) as err:
            assert launch(MUCH, prelude=False, stdout=out, stderr=err).wait(SECONDS) == 0
        data = (tmp_path / f"out-{mode}").read_bytes()
        assert hashlib.sha256(data).hexdigest().encode() == (tmp_path / f"err-{mode}").read_bytes()


def test_order_of_stdout_and_stderr_is_kept_where_both_are_one(launch: Launch) -> None:
    code = """
    import os
    for number in range(2000):
        os.write(1 + number % 2, b"%d\\n" % number)
    """
    out, _ = launch(code, prelude=False, stderr=subprocess.STDOUT).communicate(timeout=SECONDS)
    assert out.split() == [b"%d" % number for number in range(2000)]


def test_slow_reader_holds_up_the_worker_and_loses_nothing(launch: Launch) -> None:
    process = launch(MUCH, prelude=False)
    assert process.stdout is not None
    digest, size = hashlib.sha256(), 0
    while piece := process.stdout.read1(200_000):
        digest.update(piece)
        size += len(piece)
    assert process.stderr is not None
    assert (size, digest.hexdigest().encode()) == (20 << 20, process.stderr.read())


@pytest.mark.parametrize(
    ("ending", "code", "signal_word"),
    [
        ("sys.exit(0)", 0, None),
        ("sys.exit(7)", 7, None),
        ("os._exit(255)", 255, None),
        ("raise RuntimeError('no')", 1, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, "SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + 15, "SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11, "SIGSEGV"),
        ("os.abort()", 128 + 6, "SIGABRT"),
    ],
)
def test_exit_code_is_the_workers_and_its_death_is_told(
    launch: Launch, sink: Sink, ending: str, code: int, signal_word: str | None
) -> None:
    process = launch(f"boot_ends()\nsay('last words')\n{ending}")
    out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (code, b"last words\n")
    death = sink.only("worker.death").attributes
    assert death.get("stallscope.death.signal") == signal_word
    assert death.get("process.exit.code") == (None if signal_word else code)
    assert death["stallscope.death.last_phase"] == "idle"
    assert ("stallscope.log.tail" in death) == (code != 0)


def test_missing_command_is_127_and_a_folder_126(tmp_path: Path) -> None:
    for command, code in (("/no/such/command", 127), (str(tmp_path), 126)):
        done = subprocess.run(
            [sys.executable, "-m", "sdk_exporter", "--flush", "0.1", "--", command],
            env=clean_environment(),
            capture_output=True,
            timeout=SECONDS,
        )
        assert done.returncode == code
        assert command.encode() in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--"], ["--flush", "nonsense", "--", "true"], ["--unknown", "--", "true"]])
def test_wrong_use_is_exit_code_2(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sdk_exporter", *arguments],
        env=clean_environment(),
        capture_output=True,
        timeout=SECONDS,
    )
    assert done.returncode == 2
    assert b"usage:" in done.stderr


def test_help_names_the_form_of_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sdk_exporter", "--help"], env=clean_environment(), capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0
    assert b"-- COMMAND" in done.stdout


def test_disabled_sdk_leaves_the_worker_alone(sink: Sink) -> None:
    environment = clean_environment(OTEL_SDK_DISABLED="true", OTEL_EXPORTER_OTLP_ENDPOINT=sink.url)
    done = subprocess.run(
        [sys.executable, "-m", "sdk_exporter", "--", "sh", "-c", "echo $PPID; exit 3"],
        env=environment,
        capture_output=True,
        timeout=SECONDS,
    )
    assert done.returncode == 3
    assert int(done.stdout) == os.getpid()
    assert sink.spans == []


def ignore_hangups() -> None:
    """As under `nohup`, and for a command that a shell runs in the background."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def default_signals() -> None:
    """Whoever runs the tests may ignore some, which is inherited."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("inherited", [default_signals, ignore_hangups])
def test_each_signal_reaches_the_worker_once(launch: Launch, inherited: Callable[[], None], *, to_group: bool) -> None:
    code = """
    import signal, time
    seen = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: print(signal.Signals(number).name, flush=True))
    print("ready", flush=True)
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        signal.pause()
    """
    process = launch(code, prelude=False, start_new_session=True, preexec_fn=inherited)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2):
        (os.killpg if to_group else os.kill)(process.pid, number)
        assert process.stdout.readline() == number.name.encode() + b"\n"
    last = signal.SIGQUIT if inherited is default_signals else signal.SIGALRM
    process.send_signal(last)
    assert process.stdout.read() == b""
    assert process.wait(SECONDS) == 128 + last


def test_worker_finds_the_signals_of_a_direct_run_and_its_own_process_group(launch: Launch, tmp_path: Path) -> None:
    code = """
    import os, signal
    print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    line = [line for line in open("/proc/self/status") if line.startswith("SigIgn")][0]
    print(int(line.split()[1], 16) & ~(1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1))
    print(os.getpgrp() == os.getpid())
    """
    # Whoever runs the tests may ignore or block signals (the embedded store does): what a worker inherits without us
    # is what it must find.
    direct = tmp_path / "direct.py"
    direct.write_text(textwrap.dedent(code))
    expected = subprocess.run([sys.executable, str(direct)], capture_output=True, timeout=SECONDS, check=True).stdout
    out, _ = launch(code, prelude=False).communicate(timeout=SECONDS)
    assert out.splitlines() == [*expected.splitlines()[:2], b"True"]


def test_what_the_worker_leaves_behind_is_ended(launch: Launch) -> None:
    """A forked pinger that goes on would tell the platform that a dead worker lives."""
    code = """
    import os, signal, subprocess, sys
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    for own_session in (False, True):
        child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, start_new_session=own_session)
        child.stdout.readline()
        print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    out, _ = launch(code, prelude=False).communicate(timeout=SECONDS)
    children = [int(line) for line in out.split()]
    assert len(children) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_children_can_be_kept(launch: Launch) -> None:
    code = """
    import subprocess, sys
    child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
    """
    out, _ = launch(code, "--keep-children", prelude=False).communicate(timeout=SECONDS)
    os.kill(int(out), signal.SIGKILL)


def test_worker_feels_a_reader_that_left(launch: Launch) -> None:
    code = """
    import os, sys
    try:
        while True:
            os.write(1, b"x" * 4096)
    except BrokenPipeError:
        os.write(2, b"felt it")
        os._exit(5)
    """
    process = launch(code, prelude=False)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b"felt it"
    assert process.wait(SECONDS) == 5


def test_terminal_stays_a_terminal(tmp_path: Path) -> None:
    code = "import os, sys; print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size(1)); print('two')"
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 99, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "sdk_exporter", "--flush", "0.1", "--", sys.executable, "-c", code],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", STALLSCOPE_DEBUG=""),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:
        pass  # the terminal's other end is closed
    os.close(ours)
    assert process.wait(SECONDS) == 0
    assert seen == b"True True True os.terminal_size(columns=99, lines=30)\r\ntwo\r\n"


def test_collector_that_is_away_delays_the_exit_by_the_flush_at_most(tmp_path: Path) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "sdk_exporter", "--flush", "1", "--", sys.executable, "-c", "print('done')"],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"),
        capture_output=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert b"could not reach the collector" in done.stderr  # only with STALLSCOPE_DEBUG
    assert time.monotonic() - began < 15


def test_worker_runs_unobserved_where_we_cannot_be_set_up(sink: Sink) -> None:
    """Too few descriptors for our pipes: one line on stderr, and the worker in our place."""
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 9; exec "$0" "$@"', sys.executable, "-m", "sdk_exporter", "--", "sh", "-c", "exit 6"],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url),
        capture_output=True,
        timeout=SECONDS,
    )
    assert done.returncode == 6
    assert done.stderr.count(b"\n") == 1
    assert b"unobserved" in done.stderr
    assert sink.spans == []


def run_in_a_shell(before: str, code: str, sink: Sink, *, after: str = "") -> subprocess.CompletedProcess[bytes]:
    line = f'{before} exec "$0" -m sdk_exporter --flush 30 -- "$0" -c "$1" {after}'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, code], env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url),
        capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip


def test_closed_streams_stay_closed_and_the_code_is_the_workers(sink: Sink, tmp_path: Path) -> None:
    code = f"""
import os
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
answer = str([is_open(number) for number in (0, 1, 2)])  # before a file of ours takes a number
open({str(tmp_path / "seen")!r}, "w").write(answer)
"""
    done = run_in_a_shell("", code, sink, after=">&- 2>&-")
    assert done.returncode == 0
    assert (tmp_path / "seen").read_text() == "[True, False, False]"
    assert sink.only("worker.death").attributes["process.exit.code"] == 0


def test_worker_runs_where_no_descriptor_is_left_for_us(sink: Sink) -> None:
    for number in range(6, 26, 3):
        done = run_in_a_shell(f"ulimit -n {number};", "print('worked')", sink)
        assert done.stdout == b"worked\n", (number, done.stderr)
        assert done.returncode == 0


def test_without_tee_and_splice_the_bytes_go_through_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes refuse them with EPERM or ENOSYS, at the first call or in the middle of a chunk."""

    def refused(*_: object) -> int:
        raise OSError(errno.EPERM, "refused")

    for name in ("tee", "splice"):
        monkeypatch.undo()
        shared = Shared()
        (source, writer), (reader, target) = os.pipe(), os.pipe()
        stream = Stream(shared, 0, source, target)
        assert stream.zero_copy
        os.write(writer, b"one ")
        assert stream.read()
        assert stream.write()
        monkeypatch.setattr(kernel, name, refused)
        for piece in (b"two ", b"three"):
            os.write(writer, piece)
            while stream.read() or stream.waiting:
                stream.write()
                if not kernel.pending_bytes(source) and not stream.waiting:
                    break
        assert not stream.zero_copy
        assert os.read(reader, 100) == b"one two three"
        assert shared.bytes_of(0, 0, 13) == b"one two three"
        for descriptor in (source, writer, reader, target):
            os.close(descriptor)


def test_stopped_recorder_neither_holds_up_the_output_nor_loses_the_death(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    put("hand", j="held")
    say("ready")
    sys.stdin.readline()
    for _ in range(40):
        os.write(1, b"x" * 65536)
    os._exit(3)
    """
    process = launch(code, "--flush", "20", stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(until(lambda: recorder_of(process.pid)), signal.SIGSTOP)
    out, _ = process.communicate(b"\n", timeout=SECONDS)
    assert out == b"x" * 65536 * 40
    assert process.returncode == 3
    assert sink.named("worker.death")[-1].attributes["stallscope.death.jobs_in_hand"] == ["held"]


def test_stopped_keeper_is_woken_and_the_output_goes_on(launch: Launch) -> None:
    process = launch(MUCH, prelude=False)
    assert process.stdout is not None
    digest, size = hashlib.sha256(), 0
    while piece := process.stdout.read1(100_000):
        if size < (4 << 20) <= size + len(piece):
            until(lambda: recorder_of(process.pid))
            os.kill(process.pid, signal.SIGSTOP)
        digest.update(piece)
        size += len(piece)
    assert process.stderr is not None
    assert (size, digest.hexdigest().encode()) == (20 << 20, process.stderr.read())
    assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("options", [(), ("--keep-children",)])
def test_without_a_keeper_the_recorder_ends_what_the_worker_left_behind(
    launch: Launch, sink: Sink, options: tuple[str, ...]
) -> None:
    code = """
    import subprocess
    boot_ends()
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    say(f"{os.getpid()} {child.pid}")
    time.sleep(3600)
    """
    process = launch(code, *options, env={"STALLSCOPE_HEARTBEAT_SECONDS": "0.2"})
    assert process.stdout is not None
    worker, child = map(int, process.stdout.readline().split())
    # The child was met: only those can be ended without being their parent.
    sink.wait_for(lambda s: any("stallscope.heartbeat.backend" in span.attributes for span in s.spans), SECONDS)
    process.kill()
    os.kill(worker, signal.SIGKILL)
    sink.wait_for(lambda s: s.named("worker.death"), SECONDS)
    if options:
        assert is_running(child)
        os.kill(child, signal.SIGKILL)
    else:
        until(lambda: not is_running(child), SECONDS)
    assert sink.named("backend.death") == []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("victim", ["recorder", "keeper"])
def test_output_stays_exact_when_one_of_us_is_killed(launch: Launch, victim: str) -> None:
    process = launch(MUCH, prelude=False)
    assert process.stdout is not None
    digest, size, killed = hashlib.sha256(), 0, 0
    while piece := process.stdout.read1(100_000):
        digest.update(piece)
        size += len(piece)
        if size > (killed + 1) * (4 << 20) and killed < (3 if victim == "recorder" else 1):
            pid = until(lambda: recorder_of(process.pid)) if victim == "recorder" else process.pid
            os.kill(pid, signal.SIGKILL)
            killed += 1
    assert process.stderr is not None
    assert killed
    assert (size, digest.hexdigest().encode()) == (20 << 20, process.stderr.read())
