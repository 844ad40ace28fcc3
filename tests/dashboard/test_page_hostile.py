"""Two hundred hostile texts in every string that a worker can send: nothing runs, nothing breaks layout or fence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from browsing import complaints, listed, overflows, page, phone, send, texts
from hostile import PAYLOADS
from markdown_it import MarkdownIt
from otlp_worker import prestart_out_of_memory
from page_reader import Seen, site
from page_samples import NOW, OOM
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from test_page_failure import stuffed
from test_page_markdown import KNOWN_HEADINGS, kinds

from collector.json_forms import item_json, json_bytes
from dashboard.markdown import job_markdown
from dashboard.pages.failure import failure_view
from dashboard.render import html_text

BROWSED = 24  # requests that a browser looks at; each has its own texts


def dealt(value: Any, texts: Iterator[str]) -> Any:
    """`value` with the next text in every string of it that a worker, a caller or a rule could have written."""
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, tuple):
        return tuple(dealt(item, texts) for item in value)
    if isinstance(value, dict):
        return {f"{next(texts)}{number}": dealt(item, texts) for number, item in enumerate(value.values())}
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"state", "fault", "retry", "confidence", "source", "what", "scope", "status"}
        kept |= {"name"} if not type(value).__name__.startswith("AnswerSpan") else set()
        changed = {f.name: dealt(getattr(value, f.name), texts) for f in fields(value) if f.name not in kept}
        return replace(value, **changed)
    return value


def test_there_are_two_hundred() -> None:
    assert len(set(PAYLOADS)) == 200


def test_every_text_in_every_place_of_the_failure_page() -> None:
    """Each rendering deals all texts over all places; each turn shifts them."""
    for turn in range(0, len(PAYLOADS), 25):
        answer = dealt(OOM, itertools.cycle([*PAYLOADS[turn:], *PAYLOADS[:turn]]))
        written = html_text("failure.html", failure_view(answer, site(NOW)))
        seen = Seen(written)
        assert seen.dangers() == []
        assert [element.name for element in seen.all("body > *")] == ["a", "header", "main", "footer", "dialog"]
        assert not set(written) & set("\x00\x07\x1b\x9b\u202e\u2066\ud800")
        json_bytes(item_json(answer))  # and the JSON form can be written


def test_no_text_leaves_its_place_in_the_markdown_form() -> None:
    reader = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    for text in PAYLOADS:
        tokens = reader.parse(job_markdown(failure_view(stuffed(OOM, text), site(NOW))))
        found = set(kinds(tokens))
        assert not found & {"html_block", "html_inline", "link_open", "image", "hr", "table_open"}, text
        headings = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
        assert all(heading.split(",")[0] in KNOWN_HEADINGS for heading in headings[1:]), text
        assert sum(token.type == "fence" for token in tokens) <= 1, text


def test_a_browser_runs_none_of_it(browser: Chrome, address: str) -> None:
    """Texts as ids, hook, exception, log and names of worker and endpoint, in real requests."""
    sendable = [text.replace("\ud800", "") for text in PAYLOADS]
    ids = []
    for number in range(BROWSED):
        a, b, c = (sendable[(number * 8 + place) % len(sendable)] for place in range(3))
        job_id = f"{number:03} {a}"
        failed = prestart_out_of_memory(job_id, log=f"{b}\n{c}\n", line=f"ValueError: {b}")
        send(address, failed, worker=f"{b} {number}", endpoint=c, boot=f"{number:032x}")
        ids.append(job_id)
    listed(address, *ids)
    with phone(browser, 320):
        for path in ("/jobs?limit=200", "/groups", "/", "/stop-channels", *(page("", job_id) for job_id in ids[::4])):
            browser.get(f"{address}{path}")
            assert browser.execute_script("return window.pwned") is None, path
            assert not browser.find_elements(By.CSS_SELECTOR, "main script, main img, iframe, [onerror], [onload]"), (
                path
            )
            assert browser.current_url.startswith(address)
            assert texts(browser, "h1")
            assert not overflows(browser), path
            assert complaints(browser) == [], path
