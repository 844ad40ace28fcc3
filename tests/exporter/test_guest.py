"""What a worker may do to its own process: close every descriptor, wait for every child, end every child."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sdk_exporter import spool

PATIENCE_SECONDS = 120


def run_alone(code: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """A bare interpreter with the one line; its records go nowhere."""
    foreign = ("RUNPOD", "OTEL", "STALLSCOPE")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return subprocess.run(
        [sys.executable, "-c", "import sdk_exporter\nsdk_exporter.instrument()\n" + textwrap.dedent(code)],
        env={**clean, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **environ},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


DAEMON = """
import os
os.closerange(3, 4096)
files = [open(f"user{number}", "w+b", buffering=0) for number in range(300)]
for file in files:
    file.write(b"user data")
for number in range(3):
    with sdk_exporter.job(f"job-{number}"):
        pass
for file in files:
    assert file.tell() == 9, file.fileno()
    file.seek(0)
    assert file.read() == b"user data", file.fileno()
print("untouched")
"""


def test_a_worker_that_closes_all_descriptors_keeps_its_files(tmp_path: Path) -> None:
    done = run_alone(DAEMON, tmp_path)
    assert (done.returncode, done.stdout) == (0, "untouched\n"), done.stderr


def test_a_file_left_open_is_written_at_the_end_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "late.py").touch()
    code = """
        import os, sys
        sys.dont_write_bytecode = True
        os.closerange(3, 4096)
        import late
        late.files = [open(f"late{number}", "w") for number in range(9)]
        files = [open(f"main{number}", "w") for number in range(9)]
        for file in late.files + files:
            file.write("not flushed")
        sys.keeps = late.files
        """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.read_text() for path in tmp_path.glob("*[0-9]")} == {"not flushed"}


def test_records_are_not_written_to_whatever_got_our_number(tmp_path: Path) -> None:
    page_file = os.memfd_create("page")
    os.ftruncate(page_file, spool.PAGE_BYTES)
    page = spool.Page(page_file)
    descriptor = os.open(tmp_path / "events", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    writer = spool.Writer(descriptor, page)
    assert writer.write({"n": 1})
    other = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    os.dup2(other, descriptor)
    os.close(other)
    assert not writer.write({"n": 2})
    assert page.get(spool.Page.DROPPED) == 1
    assert (tmp_path / "theirs").read_bytes() == b""
    os.close(descriptor)
    assert not writer.write({"n": 3})
    os.close(page_file)


def test_the_bound_of_the_event_file_is_the_settings(tmp_path: Path) -> None:
    events = os.open(tmp_path / "events", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    page = os.open(tmp_path / "page", os.O_RDWR | os.O_CREAT)
    os.ftruncate(page, spool.PAGE_BYTES)
    status = os.fstat(events)
    handover = {spool.ENVIRONMENT_KEY: f"{events},-1,{page},{status.st_dev},{status.st_ino},{os.getpid()}"}
    found = spool.from_environment(handover, cap_bytes=100)
    assert found is not None
    writer, _ = found
    assert writer.write({"filling": "x" * 200})
    assert not writer.write({"n": 2})
    code = "import sdk_exporter\nsdk_exporter.instrument()\nfor _ in range(9): sdk_exporter.job('j').__enter__()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **handover, "STALLSCOPE_SPOOL_BYTES": "1000"},
        pass_fds=(events, page),
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0
    assert os.fstat(events).st_size < 2000
    os.close(events)
    os.close(page)


@pytest.mark.parametrize("ended_first", [False, True])
def test_a_worker_that_waits_for_every_child_is_not_kept_waiting(tmp_path: Path, ended_first: bool) -> None:
    code = f"""
        import os, signal, time
        if {ended_first}:
            time.sleep(1)
        child = os.fork()
        if not child:
            os._exit(3)
        signal.alarm(60)  # in place of a hang
        found = []
        try:
            while True:
                found.append(os.wait())
        except ChildProcessError:
            pass
        assert (child, 3 << 8) in found
        print("done")
        """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_an_interpreter_that_is_the_users_program_is_not_started_again(tmp_path: Path) -> None:
    program = tmp_path / "worker-app"
    program.write_text(f"#!/bin/sh\necho again >> {tmp_path}/started\n")
    program.chmod(0o755)
    for change in (f"sys.executable = {str(program)!r}", "sys.executable = ''", "sys.frozen = True"):
        code = f"import sys\n{change}\nimport sdk_exporter\nsdk_exporter.instrument()\nprint('works')"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={key: value for key, value in os.environ.items() if not key.startswith("STALLSCOPE")},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert (done.returncode, done.stdout) == (0, "works\n"), done.stderr
        assert "not observed" in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_recorder_that_is_gone_gets_a_successor(tmp_path: Path) -> None:
    code = """
        import os, signal, time
        from sdk_exporter import attach, companion, spool
        companion.SILENT_LOOKS = 5
        page = attach._state["companion"].page
        def recorder(other_than):
            deadline = time.monotonic() + 60
            while page.get(spool.Page.KEEPER_PID) in (0, other_than):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return page.get(spool.Page.KEEPER_PID)
        first = recorder(0)
        os.kill(first, signal.SIGSTOP)  # hung: the successor takes over, and this one leaves when it wakes
        second = recorder(first)
        os.kill(first, signal.SIGCONT)
        os.kill(second, signal.SIGKILL)
        third = recorder(second)
        deadline = time.monotonic() + 60
        while os.path.exists(f"/proc/{first}/exe"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert page.get(spool.Page.KEEPER_PID) == third
        print("told on")
        """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "told on\n"), done.stderr


def test_a_worker_that_executes_itself_anew_leaves_no_recorder_behind(tmp_path: Path) -> None:
    code = """
        import os, sys, time
        from sdk_exporter import attach, spool
        page = attach._state["companion"].page
        deadline = time.monotonic() + 60
        while not page.get(spool.Page.KEEPER_PID):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        later = (
            "import os, sys, time\\ndeadline = time.monotonic() + 60\\n"
            "while os.path.exists(f'/proc/{sys.argv[1]}/exe'):\\n"
            "    assert time.monotonic() < deadline\\n    time.sleep(0.05)\\nprint('alone')"
        )
        os.execv(sys.executable, [sys.executable, "-c", later, str(page.get(spool.Page.KEEPER_PID))])
        """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "alone\n"), done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stream_that_somebody_else_has_wrapped_too_stays_wrapped(tmp_path: Path, when: str) -> None:
    wrap = "sys.stdout.write = wrap(sys.stdout.write)"
    code = {
        "before": f"import sdk_exporter.attach as a; a.stop(); {wrap}\na.instrument()\na.stop()",
        "after": f"{wrap}\nimport sdk_exporter.attach as a; a.stop()",
    }[when]
    done = run_alone(
        "import sys\nseen = []\n"
        "def wrap(write):\n"
        "    def wrapped(text):\n"
        "        seen.append(text)\n"
        "        return write(text)\n"
        "    return wrapped\n"
        f"{code}\n"
        "sys.stdout.write('still\\n')\n"
        "assert seen == ['still\\n']\n",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "still\n"), done.stderr


def test_what_names_a_job_or_a_phase_may_be_anything(tmp_path: Path) -> None:
    code = """
        class Text(str):
            def __len__(self):
                raise RuntimeError("no length")
            encode = __len__
        class Thing:
            def __str__(self):
                raise RuntimeError("no text")
            __repr__ = __str__
        for named in (Text("a"), Thing(), 5, None, b"x", "x" * 10**6, "\\ud800"):
            with sdk_exporter.job(named), sdk_exporter.phase(named):
                pass
        print("works")
        """
    done = run_alone(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "works\n"), done.stderr
