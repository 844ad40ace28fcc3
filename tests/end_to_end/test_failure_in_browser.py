"""From a real worker's failure to what an engineer reads in a real browser, over each of the two stores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from browser import find_browser, opened
from parts import server_url, skip_or_fail
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from collector.demo.platform import running_platform
from collector.demo.scenarios import SCENARIOS
from collector.demo.show import play, running_server


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    try:
        find_browser()
    except FileNotFoundError as missing:
        skip_or_fail(f"no browser: {missing}")
    with opened() as chrome:
        yield chrome


@pytest.fixture(params=["embedded", "server"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "server":
        return server_url(request.getfixturevalue("clickhouse"))
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    return f"chdb://{tmp_path_factory.mktemp('browser') / 'store'}"


def test_an_engineer_reads_why_the_request_failed(store: str, browser: Chrome) -> None:
    scenario = next(one for one in SCENARIOS if one.name == "prestart-out-of-memory")

    async def come_about() -> None:
        async with running_server(store) as server, running_platform() as platform:
            outcome = await play(scenario, platform, server)
            assert outcome.problem == ""
            await asyncio.to_thread(browser.get, f"{server}/jobs/{quote(outcome.answers[0]['job_id'], safe='')}")

    asyncio.run(come_about())
    headline = browser.find_element(By.TAG_NAME, "h1").text
    assert headline.startswith("This request failed because the prestart hook load_model ran out of GPU memory")
    root_cause = browser.find_element(By.ID, "root-cause").text
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in root_cause
    shown = browser.find_element(By.TAG_NAME, "main").text
    for phase in ("queued", "claimed", "boot", "prestart", "gated", "deliver"):
        assert phase in shown
    assert "What to do now" in shown
