"""Everyone can read the pages: axe-core finds nothing, a keyboard is enough, a phone never scrolls sideways, paper
shows what the screen did.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from browsing import axe_violations, browsing, complaints, listed, overflows, page, phone, send, serving, texts, waiting
from otlp_worker import completed, handler_out_of_memory, prestart_out_of_memory, running, stop_channel
from page_samples import OOM_LINE
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from collector.settings import Settings

LONG = "j" * 200


@pytest.fixture
def city(settings: Settings) -> Iterator[str]:
    """A server that has something on each of its pages."""
    with serving(settings) as address:
        good = [f"good-{number}" for number in range(6)]
        for job_id in good:
            send(address, completed(job_id), release="v1")
        send(address, prestart_out_of_memory(LONG, log=f"\x1b[31mred\x1b[0m {'x' * 3000}\n{OOM_LINE}\n", line=OOM_LINE))
        send(address, handler_out_of_memory("bad-1"), release="v2", worker="w-2", boot="2" * 32)
        send(address, running("open-1"), worker="w-3", boot="3" * 32)
        send(address, stop_channel("failing", **{"stallscope.stop_channel.failures": 3}))
        listed(address, "bad-1", "open-1", LONG, *good)
        yield address


def pages(address: str) -> list[str]:
    """Every kind of page, errors too."""
    group = "/groups"
    return [
        *(page(address, job_id) for job_id in (LONG, "bad-1", "open-1", "good-1", "unknown")),
        *(
            f"{address}{path}"
            for path in ("/", "/jobs", "/jobs?q=none", group, "/endpoints/llama-chat", "/workers/w-1", "/stop-channels",
                         "/alerts", "/diagnose", "/status", "/docs/verdicts", "/login")
        ),
    ]  # fmt: skip


def first_group(browser: Chrome, address: str) -> str:
    browser.get(f"{address}/groups")
    return browser.find_element(By.CSS_SELECTOR, "main .job-id").get_attribute("href") or ""


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_on_any_page(city: str, scheme: str) -> None:
    with browsing(scheme=scheme) as browser:
        found = {}
        for address in [*pages(city), first_group(browser, city)]:
            browser.get(address)
            browser.execute_script("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
            found[address.removeprefix(city)] = axe_violations(browser)
        assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_a_phone_never_scrolls_sideways(browser: Chrome, city: str) -> None:
    wide = []
    for width in (390, 320):
        with phone(browser, width):
            for address in [*pages(city), first_group(browser, city)]:
                browser.get(address)
                wide += [(width, address.removeprefix(city))] if overflows(browser) else []
    assert wide == []


def test_the_pages_work_without_javascript(plain_browser: Chrome, city: str) -> None:
    for address in [*pages(city), first_group(plain_browser, city)]:
        plain_browser.get(address)
        assert texts(plain_browser, "h1"), address
    plain_browser.get(page(city, "bad-1"))
    assert texts(plain_browser, "#root-cause code")
    plain_browser.find_element(By.CSS_SELECTOR, ".tail-tools .wrap").send_keys(Keys.SPACE)
    assert plain_browser.find_element(By.CSS_SELECTOR, ".tail code").value_of_css_property("white-space") == "pre"
    box = plain_browser.find_element(By.ID, "search")
    box.send_keys("good-1", Keys.ENTER)
    waiting(plain_browser).until(lambda it: it.current_url == page(city, "good-1"))


def test_a_keyboard_alone_reaches_everything(browser: Chrome, city: str) -> None:
    """The tab key visits every link and field in order, always visibly; `/`, `j`, `k` and `?` are shorter."""
    browser.get(page(city, "bad-1"))
    complaints(browser)  # of the pages that other tests have opened
    browser.execute_script("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    wanted = browser.execute_script(
        "return [...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')]"
        ".filter((one) => one.checkVisibility()).length"
    )
    visited = set()
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to content"
    for _ in range(wanted + 5):
        active = browser.switch_to.active_element
        if active.tag_name == "body":
            break
        visited.add(active.id)
        assert active.value_of_css_property("outline-style") != "none", active.get_attribute("outerHTML")
        active.send_keys(Keys.TAB)
    assert len(visited) == wanted

    browser.get(f"{city}/jobs")
    browser.find_element(By.TAG_NAME, "body").send_keys("j")
    browser.switch_to.active_element.send_keys("j")
    first, second = (link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "main .job-id")[:2])
    assert browser.switch_to.active_element.get_attribute("href") == second
    browser.switch_to.active_element.send_keys("k")
    assert browser.switch_to.active_element.get_attribute("href") == first
    browser.switch_to.active_element.send_keys("?")
    assert browser.find_element(By.ID, "keys").is_displayed()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    waiting(browser).until(lambda it: not it.find_element(By.ID, "keys").is_displayed())
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    assert complaints(browser) == []


def test_the_tail_is_searched_and_kept(browser: Chrome, city: str) -> None:
    browser.get(page(city, "bad-1"))
    search = browser.find_element(By.CSS_SELECTOR, ".tail-tools input[type=search]")
    search.send_keys("CUDA OUT")
    assert texts(browser, ".tail li:not(.off) code") == texts(browser, "#root-cause code")
    assert texts(browser, ".tail-tools [role=status]")[0].startswith("1 of ")


def test_paper_shows_what_the_screen_did(browser: Chrome, city: str) -> None:
    browser.get(page(city, "bad-1"))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not browser.find_element(By.CSS_SELECTOR, ".top nav").is_displayed()
        assert not browser.find_element(By.CSS_SELECTOR, ".tail-tools").is_displayed()
        tail = browser.find_element(By.CSS_SELECTOR, ".tail")
        assert tail.value_of_css_property("max-height") == "none"
        colours = {browser.find_element(By.CSS_SELECTOR, at).value_of_css_property("color") for at in ("h1", ".quote")}
        assert colours == {"rgba(0, 0, 0, 1)"}
        paper = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])
        assert paper.startswith(b"%PDF-")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
