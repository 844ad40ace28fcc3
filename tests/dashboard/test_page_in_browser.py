"""The pages in a real browser, served by a real server over a real socket."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from browser import find_browser, opened
from otlp_worker import OOM_LINE, body_of, ended, prestart_out_of_memory, running
from parts import PATIENCE_SECONDS, skip_or_fail
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from collector import asgi
from collector.settings import Settings
from dashboard import urls

HOSTILE_ID = "\"><script>window.pwned=1</script><img src=x onerror=window.pwned=1>/%2F'"
HOSTILE_LINE = "ValueError: </code></li></ol><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


def _browser(**options: Any) -> Iterator[Chrome]:
    try:
        find_browser()
    except FileNotFoundError as missing:
        skip_or_fail(f"no browser: {missing}")
    with opened(**options) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """The machine's Chromium."""
    yield from _browser()


@pytest.fixture(scope="module")
def plain_browser() -> Iterator[Chrome]:
    """The same with JavaScript switched off."""
    yield from _browser(javascript=False)


@pytest.fixture
def address(settings: Settings) -> Iterator[str]:
    """Where a real server answers."""
    with listening() as sock:
        port = sock.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(asgi.server(settings), log_level="warning", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not server.started:
            assert thread.is_alive(), "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket on a free port of the loopback."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def fail(address: str, job_id: str, **options: Any) -> None:
    """A request that failed, sent by its worker and explained."""
    sent = httpx.post(f"{address}/v1/traces", json=body_of(prestart_out_of_memory(job_id, **options)), timeout=60)
    assert sent.status_code == 200, sent.text


def page(address: str, job_id: str) -> str:
    return address + urls.page("jobs", job_id)


def texts(browser: Chrome, selector: str) -> list[str]:
    return [" ".join(element.text.split()) for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def complaints(browser: Chrome) -> list[str]:
    """What the browser's console says: blocked by the policy, not found, script errors."""
    return [entry["message"] for entry in browser.get_log("browser")]


@pytest.mark.parametrize("kind", ["browser", "plain_browser"])
def test_a_reader_sees_verdict_root_cause_and_timeline(request: pytest.FixtureRequest, address: str, kind: str) -> None:
    """With JavaScript and without."""
    browser: Chrome = request.getfixturevalue(kind)
    fail(address, "job-1")
    browser.get(page(address, "job-1"))
    heading = browser.find_element(By.CSS_SELECTOR, "h1")
    assert "load_model" in heading.text
    assert float(heading.value_of_css_property("font-size").removesuffix("px")) >= 28
    assert browser.find_element(By.CSS_SELECTOR, "#root-cause code").text == OOM_LINE
    phases = texts(browser, ".phases tbody th")
    assert [phase.split()[0] for phase in phases] == [
        "queued", "claimed", "boot", "prestart", "gated", "run", "deliver", "stop",
    ]  # fmt: skip
    bars = browser.find_elements(By.CSS_SELECTOR, ".phases rect.seg")
    assert bars
    assert all(bar.size["width"] >= 1 and bar.size["height"] > 10 for bar in bars)
    assert complaints(browser) == []


def test_evidence_leads_to_its_unfolded_record(browser: Chrome, address: str) -> None:
    fail(address, "job-1")
    browser.get(page(address, "job-1"))
    record = browser.find_element(By.CSS_SELECTOR, ".record-body")
    assert not record.is_displayed()
    browser.find_element(By.CSS_SELECTOR, ".evidence a[href^='#record']").click()
    target = browser.current_url.partition("#")[2]
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda it: it.find_element(By.ID, target).is_displayed())


def test_nothing_that_a_worker_wrote_runs(browser: Chrome, address: str) -> None:
    fail(address, HOSTILE_ID, log=f"Traceback\n{HOSTILE_LINE}\n", line=HOSTILE_LINE)
    for path in (page(address, HOSTILE_ID), f"{address}/jobs"):
        browser.get(path)
        assert browser.execute_script("return window.pwned") is None
        assert not browser.find_elements(By.CSS_SELECTOR, "main script, main img, [onerror], iframe")
        assert complaints(browser) == []
    browser.get(page(address, HOSTILE_ID))
    assert texts(browser, "#root-cause code") == [HOSTILE_LINE]
    assert texts(browser, ".eyebrow > .id") == [HOSTILE_ID]
    assert not overflows(browser)


def overflows(browser: Chrome) -> bool:
    """Whether a reader must scroll sideways."""
    return bool(browser.execute_script("return document.documentElement.scrollWidth > innerWidth + 1"))


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_never_scrolls_sideways(browser: Chrome, address: str, width: int) -> None:
    fail(address, "j" * 200, log="x" * 3000 + f"\n{OOM_LINE}\n")
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for path in (page(address, "j" * 200), f"{address}/", f"{address}/jobs", f"{address}/groups",
                     f"{address}/diagnose", f"{address}/status", f"{address}/docs/verdicts",
                     f"{address}/endpoints/llama-chat", f"{address}/workers/w-1"):  # fmt: skip
            browser.get(path)
            assert not overflows(browser), path
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_an_open_request_updates_by_itself(browser: Chrome, address: str) -> None:
    sent = httpx.post(f"{address}/v1/traces", json=body_of(running("open-1")), timeout=60)
    assert sent.status_code == 200
    browser.get(page(address, "open-1"))
    assert texts(browser, ".badges .chip") == ["◐ running"]
    httpx.post(f"{address}/v1/traces", json=body_of(ended("open-1")), timeout=60)
    # The page replaces its elements while they are being read.
    waiting = WebDriverWait(browser, PATIENCE_SECONDS, ignored_exceptions=[StaleElementReferenceException])
    waiting.until(lambda it: texts(it, ".badges .chip") == ["✓ completed"])


def test_the_search_box_is_one_key_away(browser: Chrome, address: str) -> None:
    fail(address, "job-1")
    browser.get(f"{address}/jobs")
    browser.find_element(By.CSS_SELECTOR, "body").send_keys("/")
    browser.switch_to.active_element.send_keys("job-1", Keys.ENTER)
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda it: it.current_url == page(address, "job-1"))


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_text_stands_out_from_its_ground(address: str, scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for text, in both colour schemes."""
    fail(address, "job-1")
    for chrome in _browser(scheme=scheme):
        chrome.get(page(address, "job-1"))
        chrome.execute_script("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
        weak = chrome.execute_script(CONTRAST)
        assert weak == []


CONTRAST = r"""
const channels = (text) => text.match(/[\d.]+/g).map(Number);
const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
  .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const weak = [];
for (const element of document.querySelectorAll("body *")) {
  const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
  if (!text || element.closest("svg") || !element.checkVisibility()) continue;
  const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) weak.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${text.slice(0, 40)}`);
}
return weak;
"""
