"""`stallscope demo` as a person runs it: the first failure page comes by itself, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from test_commands import COMMAND, environment, read_line

END_SECONDS = 120.0


def processes_under(directory: Path) -> list[str]:
    """Command lines of processes that work in `directory` or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            place = os.readlink(entry / "cwd")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            variables = (entry / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or it is another user's
        if place.startswith(str(directory)) or str(directory).encode() in variables:
            found.append(command)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes left behind in /proc")
def test_the_first_failure_page_comes_by_itself_and_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    with (tmp_path / "stderr").open("w") as errors:
        demo = subprocess.Popen(
            [*COMMAND, "demo", "--port", "0"],
            env=environment(TMPDIR=str(tmp_path)),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        page = read_line(demo)
        assert "/jobs/" in page, (tmp_path / "stderr").read_text()
        with urllib.request.urlopen(page, timeout=60) as answer:
            assert answer.status == 200
            assert "failed because" in answer.read().decode()
        assert processes_under(tmp_path)  # or the look at the end would prove nothing
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=END_SECONDS)
        assert demo.returncode == 130
    finally:
        demo.kill()
        demo.communicate()
    assert processes_under(tmp_path) == []
    assert [left.name for left in tmp_path.iterdir()] == ["stderr"]
