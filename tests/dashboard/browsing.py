"""The pages over a real socket, for a real browser: a server, what it is sent, and what is read off the screen."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from browser import find_browser, opened
from otlp_worker import body_of, prestart_out_of_memory
from parts import PATIENCE_SECONDS, skip_or_fail
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from collector import asgi
from collector.settings import Settings
from dashboard import urls


@contextlib.contextmanager
def browsing(**options: Any) -> Iterator[Chrome]:
    """The machine's Chromium; the test is skipped where there is none."""
    try:
        find_browser()
    except FileNotFoundError as missing:
        skip_or_fail(f"no browser: {missing}")
    with opened(**options) as chrome:
        yield chrome


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """Where a real server answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(asgi.server(settings), log_level="warning", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not server.started:
            assert thread.is_alive(), "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def send(address: str, spans: list[dict[str, Any]], **resource: str) -> None:
    """Spans of one worker."""
    sent = httpx.post(f"{address}/v1/traces", json=body_of(spans, **resource), timeout=PATIENCE_SECONDS)
    assert sent.status_code == 200, sent.text


def fail(address: str, job_id: str, **options: Any) -> None:
    """A request that failed, sent by its worker and explained."""
    send(address, prestart_out_of_memory(job_id, **options))


def listed(address: str, *job_ids: str) -> None:
    """Wait until the lists know these requests."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        items = httpx.get(f"{address}/api/v1/jobs?limit=200", timeout=PATIENCE_SECONDS).json()["items"]
        if set(job_ids) <= {item["job_id"] for item in items}:
            return
        assert time.monotonic() < deadline, "the lists never knew them"
        time.sleep(0.1)


def page(address: str, job_id: str) -> str:
    """The address of a request's page."""
    return address + urls.page("jobs", job_id)


def texts(browser: Chrome, selector: str) -> list[str]:
    """What a reader reads in each element."""
    return [" ".join(element.text.split()) for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def complaints(browser: Chrome) -> list[str]:
    """What the browser's console says: blocked by the policy, not found, script errors."""
    return [entry["message"] for entry in browser.get_log("browser")]


def overflows(browser: Chrome) -> bool:
    """Whether a reader must scroll sideways."""
    return bool(browser.execute_script("return document.documentElement.scrollWidth > innerWidth + 1"))


def waiting(browser: Chrome, **options: Any) -> WebDriverWait[Chrome]:
    """Patience for a condition."""
    return WebDriverWait(browser, PATIENCE_SECONDS, **options)


@contextlib.contextmanager
def phone(browser: Chrome, width: int) -> Iterator[None]:
    """The browser as wide as a phone."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def axe_source() -> str:
    """The text of axe-core, which `tests/fetch_parts.sh` fetches. `AXE_CORE` names another copy."""
    here = Path(__file__).resolve()
    places = [Path(os.environ["AXE_CORE"])] if "AXE_CORE" in os.environ else []
    places += [folder / "node_modules" / "axe-core" / "axe.min.js" for folder in here.parents]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        skip_or_fail("no axe-core: sh tests/fetch_parts.sh fetches it")
        raise AssertionError
    return found.read_text(encoding="utf-8")


def axe_violations(browser: Chrome) -> list[str]:
    """What axe-core finds wrong with the page on the screen, by WCAG 2.2 A and AA and its own best practices."""
    browser.set_script_timeout(PATIENCE_SECONDS)
    browser.execute_script(axe_source())
    found = browser.execute_async_script(
        "const done = arguments[0];"
        "axe.run(document, {resultTypes: ['violations']}).then((result) => done(result.violations.map((one) =>"
        " `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`)))"
        ".catch((error) => done([String(error)]));"
    )
    return [str(one) for one in found]
