"""A worker whose own lines know nothing of us, under the launcher: watched inside too, and nothing else changed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import httpx
from launched import sink as sink
from otlp_sink import Sink

from collector.demo.platform import Platform, running_platform, worker_env

HANDLER = """
import os, sys
import runpod

print("PYTHONPATH", os.environ.get("PYTHONPATH"), "SITE", any("startup" in entry for entry in sys.path), flush=True)
print("OURS", getattr(sys.modules.get("sitecustomize"), "MINE", None), flush=True)

def handler(job):
    return {"echo": job["input"]}

runpod.serverless.start({"handler": handler})
"""


async def _played(sink_url: str, folder: Path, *options: str, path: str | None = None) -> tuple[str, str]:
    """The output of an unmodified worker that answered one request, and the request's id."""
    (folder / "handler.py").write_text(HANDLER)
    async with running_platform(hold_seconds=1, stop_hold_seconds=1) as platform:
        job = await _submit(platform)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "STALLSCOPE_"))}
        kept.pop("PYTHONPATH", None)
        environment = (
            kept
            | worker_env(platform.base, home=str(folder))
            | {
                "OTEL_EXPORTER_OTLP_ENDPOINT": sink_url,
                "STALLSCOPE_FLUSH_SECONDS": "60",  # a busy machine may need more than the usual two seconds for the end
            }
        )
        if path is not None:
            environment["PYTHONPATH"] = path
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sdk_exporter", *options, "--", sys.executable, "-u", "handler.py"),
            cwd=folder,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        talking = asyncio.create_task(process.communicate())
        await platform.wait_status(job, seconds=120)
        process.terminate()
        output = (await talking)[0].decode()
        return output, job


async def _submit(platform: Platform) -> str:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(f"{platform.base}/v2/endpoint-a/run", json={"input": {"prompt": "x"}})
    return str(answer.json()["id"])


async def test_its_request_is_told_and_path_and_environment_are_its_own(sink: Sink, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("MINE = 'still runs'\n")
    output, job = await _played(sink.url, tmp_path, path=str(mine))
    assert f"PYTHONPATH {mine} SITE False" in output
    assert "OURS still runs" in output
    names = [span.name for span in sink.spans if span.attributes.get("faas.invocation_id") == job]
    assert {"job.claimed", "job.run.started", "job.run", "job.deliver"} <= set(names)


async def test_a_worker_without_a_path_of_its_own_has_none_afterwards(sink: Sink, tmp_path: Path) -> None:
    output, _ = await _played(sink.url, tmp_path)
    assert "PYTHONPATH None SITE False" in output
    assert "OURS None" in output


async def test_from_outside_only_where_that_is_wished(sink: Sink, tmp_path: Path) -> None:
    output, job = await _played(sink.url, tmp_path, "--no-instrument")
    assert "PYTHONPATH None" in output
    assert [span for span in sink.spans if span.attributes.get("faas.invocation_id") == job] == []
    assert "worker.death" in {span.name for span in sink.spans}


def test_a_python_that_imports_no_sdk_loads_next_to_nothing_of_us(tmp_path: Path) -> None:
    look = "import sys; print(sorted(name for name in sys.modules if name.startswith('sdk_exporter')))"
    answer = subprocess.run(
        [sys.executable, "-m", "sdk_exporter", "--flush", "0", "--", sys.executable, "-c", look],
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sdk_exporter.attach" not in answer.stdout
    assert "sdk_exporter.importing" in answer.stdout
