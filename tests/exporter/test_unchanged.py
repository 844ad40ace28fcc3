"""With nothing registered, nobody outside can tell whether we are there: not the platform, not a caller of the API."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
from observed_worker import ObservedWorker, observed_worker, spans

from collector.demo.platform import Platform

HANDLER = """
import dataclasses
import functools
import runpod

class Refused(Exception):
    pass

@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    reason: str

    def with_traceback(self, _):
        raise RuntimeError("not that either")

class Odd(dict):
    def get(self, *_):
        raise RuntimeError("no")

class Called:
    def __call__(self, job):
        return odd(job, None)

def odd(job, _):
    if job["input"]["do"] == "raise what cannot be changed":
        raise Frozen("cannot be changed")
    return Odd(kept=1)

{define} handler(job):
    do = job["input"]["do"]
    if do == "raise":
        raise Refused("no such model")
    if do == "return an error":
        {answer} {{"error": "not today", "kept": 1}}
    {answer} {{"done": do, "text": "ä"}}

runpod.serverless.start({{"handler": handler, {config}}})
"""
WORK = ("claimed", "job-done", "job-stream", "stop-sent", "late-result", "stop-pod")
POLLS = ("job-take", "job-take-batch", "job-stop")
DO = ("something", "raise", "return an error")
ODD = ("raise what cannot be changed", "return what cannot be asked")
KINDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "sync": ({}, DO),
    "async": ({"define": "async def"}, DO),
    "generator": ({"answer": "yield", "config": '"return_aggregate_stream": True'}, DO),
    "async generator": ({"define": "async def", "answer": "yield"}, DO),
    "several at once": ({"config": '"concurrency_modifier": lambda now: 3'}, DO),
    "partial": ({"config": '"handler": functools.partial(odd, _=None)'}, ODD),
    "object": ({"config": '"handler": Called()'}, ODD),
    "refresh": ({"config": '"refresh_worker": True'}, DO[:1]),
}


def code_of(define: str = "def", answer: str = "return", config: str = "") -> str:
    return HANDLER.format(define=define, answer=answer, config=config)


async def wire(
    platform: Platform, directory: Path, kind: str, *, instrumented: bool
) -> dict[str, list[tuple[Any, ...]]]:
    """All that the platform sees of a worker: its work request by request with whole bodies, and of each kind of poll
    the questions asked (how often, with nothing to do, is a matter of time)."""
    told, asked = KINDS[kind]
    async with observed_worker(platform, directory, code_of(**told), instrumented=instrumented) as worker:
        ids = [await worker.finish(do=do) for do in asked]
        await platform.wait_event("ping", worker=worker.name)
        assert await (worker.exit_code() if kind == "refresh" else worker.terminate()) == 0
        assert bool(spans(worker, "job.run")) == instrumented
        return seen_of(platform, worker, ids)


def seen_of(platform: Platform, worker: ObservedWorker, ids: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    seen: dict[str, list[tuple[Any, ...]]] = {"work": []}
    for event in platform.events:
        if event.endpoint != worker.endpoint:
            continue
        detail = json.dumps(dict(event.detail), sort_keys=True).replace(str(worker.directory), "DIR")
        for number, job_id in enumerate(ids):
            detail = detail.replace(job_id, f"job {number}")
        told = (event.kind, detail.replace(worker.name, "WORKER"), event.job in ids)
        if event.kind in WORK:
            seen["work"].append(told)
        elif event.kind in POLLS and told not in seen.setdefault(event.kind, []):
            seen[event.kind].append(told)
        elif event.kind == "ping":
            seen["ping"] = [tuple(sorted(set(event.detail["query"]) - {"job_id"}))]
    return {kind: sorted(told) if kind in POLLS else told for kind, told in seen.items()}


async def test_the_platform_sees_the_same_with_and_without_us(platform: Platform, tmp_path: Path) -> None:  # A7
    def played(*, instrumented: bool) -> list[Any]:
        return [wire(platform, tmp_path, kind, instrumented=instrumented) for kind in KINDS]

    found = await asyncio.gather(*played(instrumented=False), *played(instrumented=True))
    without, with_us = found[: len(KINDS)], found[len(KINDS) :]
    for kind, before, after in zip(KINDS, without, with_us, strict=True):
        assert after == before, kind
        assert {"job-stop", "ping"} <= set(before)
        assert before["work"][0][0] == "claimed"
    assert [event for event, _, _ in without[0]["work"]] == ["claimed", "job-done"] * 3
    assert "Frozen" in str(without[list(KINDS).index("object")])


async def api(platform: Platform, directory: Path, *, instrumented: bool) -> list[Any]:
    """What a caller of the worker's own API server is answered, on its realtime route too."""
    code = 'import sys\nsys.argv += ["--rp_serve_api", "--rp_api_port", "0"]\n' + code_of()
    async with observed_worker(platform, directory, code, instrumented=instrumented) as worker:
        await worker.wait_output("Uvicorn running on ")
        found = re.search(r"Uvicorn running on (http://\S+)", worker.output())
        assert found is not None
        answers = []
        async with aiohttp.ClientSession() as session:
            for route in ("runsync", f"{worker.endpoint}/realtime"):
                for do in DO:
                    given = {"id": f"job-{do}", "input": {"do": do}}
                    async with session.post(f"{found[1]}/{route}", json=given) as answer:
                        text = re.sub(r"test-[0-9a-f-]{36}", "ID", await answer.text())
                        answers.append((answer.status, text.replace(str(worker.directory), "DIR")))
        assert len(spans(worker, "job.run")) == (len(answers) if instrumented else 0)
        return [text.replace(worker.name, "WORKER") for _, text in answers] + [status for status, _ in answers]


async def test_a_caller_of_the_api_server_is_answered_the_same(platform: Platform, tmp_path: Path) -> None:  # A7
    without, with_us = await asyncio.gather(
        api(platform, tmp_path, instrumented=False), api(platform, tmp_path, instrumented=True)
    )
    assert with_us == without
    assert [status for status in without if isinstance(status, int)] == [200] * 6
    assert "Refused" in str(without)
