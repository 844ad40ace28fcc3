"""`instrument(relaunch=True)`: all that the launcher sees, without touching the start command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from launched import clean_environment
from launched import sink as sink
from otlp_sink import Sink

from collector.demo.platform import running_platform, worker_env

SECONDS = 120
A_THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
FIRST_LINES = "import sdk_exporter\nsdk_exporter.instrument(relaunch=True)\n"


def run(
    code: str, folder: Path, *arguments: str, options: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[bytes]:
    (folder / "worker.py").write_text(code)
    return subprocess.run(
        [sys.executable, *options, "worker.py", *arguments],
        env=clean_environment(**env),
        cwd=folder,
        input=b"from stdin",
        capture_output=True,
        timeout=SECONDS,
    )


def told_to(sink: Sink) -> dict[str, str]:
    """A busy machine may need more than the usual two seconds for the end."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "STALLSCOPE_FLUSH_SECONDS": "60"}


def test_the_death_and_native_output_are_told_and_the_program_is_the_same(sink: Sink, tmp_path: Path) -> None:
    code = f"""
print("before")
{FIRST_LINES}
import os, signal, sys
print(sys.argv[1:], sys.flags.optimize, sys.stdin.read(), os.environ.get("STALLSCOPE_RELAUNCHED"), flush=True)
os.write(1, b"native last words\\n")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = run(code, tmp_path, "a b", "--x=1", options=("-O",), **told_to(sink))
    assert done.returncode == 128 + 9
    assert done.stdout.decode().splitlines() == [
        *("before", "before"),
        "['a b', '--x=1'] 1 from stdin None",
        "native last words",
    ]
    death = sink.only("worker.death").attributes
    assert death["stallscope.death.signal"] == "SIGKILL"
    assert death["stallscope.log.tail"].endswith("native last words\n")


async def test_a_worker_of_the_sdk_is_watched_as_under_the_launcher(sink: Sink, tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text(
        f"{FIRST_LINES}\nimport os, runpod\n\ndef handler(job):\n    os._exit(9)\n\n"
        'runpod.serverless.start({"handler": handler})\n'
    )
    async with running_platform(hold_seconds=1, stop_hold_seconds=1) as platform:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{platform.base}/v2/endpoint-a/run", json={"input": {"prompt": "x"}})
        environment = clean_environment(**told_to(sink))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "handler.py"),
            cwd=tmp_path,
            env=environment | worker_env(platform.base, home=str(tmp_path)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await asyncio.wait_for(process.wait(), SECONDS) == 9
    death = sink.only("worker.death").attributes
    assert death["process.exit.code"] == 9
    assert death["stallscope.death.jobs_in_hand"] == [str(answer.json()["id"])]
    assert {"job.claimed", "job.run.started"} <= {span.name for span in sink.spans}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import other", "other is not the program itself"),
        (f"import sys; sys.modules['torch'] = sys\n{FIRST_LINES}", "torch is loaded already"),
        (f"{A_THREAD}\n{FIRST_LINES}", "other threads run already"),
        (f"import pdb\n{FIRST_LINES}", "a debugger or a test runner is there"),
        (f"import sys; sys.settrace(lambda *_: None)\n{FIRST_LINES}", "a debugger or a test runner is there"),
    ],
)
def test_where_the_program_would_not_be_the_same_it_is_watched_as_it_runs(
    tmp_path: Path, code: str, reason: str
) -> None:
    (tmp_path / "other.py").write_text(FIRST_LINES)
    told = "\nprint('goes on', sdk_exporter.attach.begin())"
    done = run(f"{code}\nimport sdk_exporter.attach{told}", tmp_path)
    assert (done.returncode, b"goes on True" in done.stdout) == (0, True), done.stderr
    assert f"stallscope: not relaunched under the launcher: {reason}" in done.stderr.decode()


def test_code_without_a_file_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{FIRST_LINES}print('goes on')"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "the program is no file" in done.stderr


def test_where_the_launcher_can_do_nothing_the_program_does_not_go_round(tmp_path: Path) -> None:
    """No descriptor is left for the launcher: it runs the program unobserved, which asks for it again."""
    code = f"{FIRST_LINES}\nimport os\nprint('goes on', os.getpid(), flush=True)"
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))\n{code}"
    done = run(limited, tmp_path)
    assert (done.returncode, done.stdout.count(b"goes on")) == (0, 1), done.stderr
    assert os.environ.get("STALLSCOPE_RELAUNCHED") is None
