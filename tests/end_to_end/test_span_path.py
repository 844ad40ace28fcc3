"""`docs/architecture.md` shows a failure's way by function name; this plays the failure and compares.

A detour, a renamed function or a step that no longer runs is then a difference in the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from collector.demo.platform import running_platform
from collector.demo.scenarios import SCENARIOS
from collector.demo.show import play, running_server

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
TRACING = Path(__file__).parent / "tracing"
BLOCKS = re.findall(r"```path\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
TITLES = [re.sub(r"\W+", " ", block.split("\n", 1)[0].split()[0].rpartition(".")[2]) for block in BLOCKS]


def steps(block: str) -> tuple[list[str], set[str]]:
    """(functions in the order of their first call, functions that run at some moment) of a block."""
    ordered, somewhen = [], set()
    for line in block.splitlines():
        words = line.split()
        if words[0] == "·":
            somewhen.add(words[1])
        else:
            ordered.append(words[0])
    return ordered, somewhen


@pytest.fixture(scope="module")
def first_calls(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Per process: the project's functions in the order of their first call, while the failure came about."""
    import asyncio

    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    folder = tmp_path_factory.mktemp("first_calls")
    store = tmp_path_factory.mktemp("path") / "store"
    scenario = next(one for one in SCENARIOS if one.name == "prestart-out-of-memory")

    async def come_about() -> None:
        async with running_server(f"chdb://{store}") as server, running_platform() as platform:
            outcome = await play(scenario, platform, server)
            assert outcome.problem == ""
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                page = await client.get(f"{server}/jobs/{outcome.answers[0]['job_id']}")
            assert "ran out of GPU memory" in page.text

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH_TRACE_FOLDER", str(folder))
        patch.setenv("PYTHONPATH", str(TRACING))
        asyncio.run(come_about())
    return [file.read_text().splitlines() for file in folder.iterdir()]


@pytest.mark.parametrize("block", BLOCKS, ids=TITLES)
def test_the_page_shows_what_really_runs(block: str, first_calls: list[list[str]]) -> None:
    ordered, somewhen = steps(block)
    best = max(first_calls, key=lambda calls: len(set(calls) & set(ordered)))
    assert set(ordered) | somewhen <= set(best), "these do not run"
    assert sorted(ordered, key=best.index) == ordered


def test_every_module_that_the_collector_enters_for_a_span_is_on_the_page(first_calls: list[list[str]]) -> None:
    """From the first byte to the answer: a module that is passed through and not shown is a detour."""
    server = next(calls for calls in first_calls if "collector.ingest.post_traces" in calls)
    start, end = server.index("collector.ingest.post_traces"), server.index("collector.otlp.success")
    entered = {call.split(".")[1] for call in server[start:end] if call.startswith("collector.")}
    shown = set(re.findall(r"collector\.(\w+)\.", "".join(BLOCKS)))
    # Loops work meanwhile: the digest, shown in a block of its own, and what looks for findings and tells of them.
    assert entered - shown - {"rows", "app", "json_forms", "watch", "alerts", "health", "metrics"} == set()
