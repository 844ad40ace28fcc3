"""The pages in a real browser, served by a real server over a real socket."""

from __future__ import annotations

import pytest
from browsing import browsing, complaints, fail, listed, overflows, page, send, texts, waiting
from otlp_worker import OOM_LINE, ended, running
from parts import PATIENCE_SECONDS
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

HOSTILE_ID = "\"><script>window.pwned=1</script><img src=x onerror=window.pwned=1>/%2F'"
HOSTILE_LINE = "ValueError: </code></li></ol><script>window.pwned=1</script><img src=x onerror=window.pwned=1>"


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


def test_an_open_request_updates_by_itself(browser: Chrome, address: str) -> None:
    """However long the server takes to store, to diagnose and to tell: only the outcome is waited for."""
    send(address, running("open-1"))
    listed(address, "open-1")
    browser.get(page(address, "open-1"))
    patient = waiting(browser, ignored_exceptions=[StaleElementReferenceException])  # it replaces what is being read
    patient.until(lambda it: texts(it, ".badges .chip") == ["◐ running"])
    assert texts(browser, ".ticking")
    send(address, ended("open-1"))
    patient.until(lambda it: texts(it, ".badges .chip") == ["✓ completed"])
    assert not texts(browser, ".ticking")


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
    with browsing(scheme=scheme) as chrome:
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
