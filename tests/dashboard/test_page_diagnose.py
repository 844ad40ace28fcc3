"""Paste a log, read the verdict."""

from __future__ import annotations

import secrets

import pytest
from hostile import HOSTILE
from otlp_worker import LOG, OOM_LINE
from page_reader import Seen
from visitors import Visitor

from dashboard.site import FORM_BYTES


async def posted(visitor: Visitor, status: int = 200, **fields: str) -> Seen:
    response = await visitor.client.post("/diagnose", data=fields, headers={"accept": "text/html"})
    assert response.status_code == status, response.text[:500]
    page = Seen(response.text)
    assert page.dangers() == []
    return page


async def test_a_pasted_log_is_explained(visitor: Visitor) -> None:
    page = await posted(visitor, log_tail=LOG, phase="prestart", exit_code="")
    assert "prestart_failed" in page.text(".badges")
    assert "cuda_oom" in page.text(".badges")
    assert page.one("#root-cause").query("code")[0].to_text(separator="") == OOM_LINE
    assert "As pasted." in " ".join(page.texts("section .meta"))


async def test_browsers_line_ends_do_not_hide_the_line(visitor: Visitor) -> None:
    page = await posted(visitor, log_tail=LOG.replace("\n", "\r\n"))
    assert page.one("#root-cause").query("code")[0].to_text(separator="") == OOM_LINE


async def test_a_log_that_tells_nothing_is_unknown(visitor: Visitor) -> None:
    page = await posted(visitor, log_tail="hello\nworld\n")
    assert "unknown" in page.text(".badges")


async def test_secrets_are_not_shown_back(visitor: Visitor) -> None:
    secret = "hf_" + secrets.token_hex(17)
    page = await posted(visitor, log_tail=f"token {secret}\n{OOM_LINE}\n")
    assert secret not in page.document.to_html()
    assert "1 secret redacted" in " ".join(page.texts("section .meta"))


async def test_a_long_log_is_read_from_its_end(visitor: Visitor) -> None:
    page = await posted(visitor, log_tail="filler line\n" * 5000 + LOG)
    assert page.one("#root-cause")
    assert "before it lost" in " ".join(page.texts("section .meta"))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"log_tail": "  \n"}, "Paste some lines of a log first."),
        ({"log_tail": "x", "phase": "lunch"}, "There is no such phase."),
        ({"log_tail": "x", "exit_code": "many"}, "An exit code is a number between -64 and 255."),
        ({"log_tail": "x", "exit_code": "²"}, "An exit code is a number between -64 and 255."),
    ],
)
async def test_a_form_that_cannot_be_used_says_why(visitor: Visitor, fields: dict[str, str], problem: str) -> None:
    page = await posted(visitor, 400, **fields)
    assert page.text(".problem") == problem
    assert page.one("textarea").to_text(strip=False).strip() == fields["log_tail"].strip()


async def test_too_much_is_refused_by_its_limit(visitor: Visitor) -> None:
    page = await posted(visitor, 413, log_tail="x" * FORM_BYTES)
    assert "1048576" in page.text(".lead")


async def test_another_kind_of_body_is_refused(visitor: Visitor) -> None:
    response = await visitor.client.post("/diagnose", json={"log_tail": LOG})
    assert response.status_code == 400
    assert response.json()["code"] == "bad_input"


async def test_hostile_logs_are_shown_and_never_run(visitor: Visitor) -> None:
    for text in (text for text in HOSTILE if text.strip() and "\ud800" not in text):
        await posted(visitor, log_tail=f"{text}\n{OOM_LINE}\n{text}")
        await posted(visitor, 400, log_tail=text[:9000], phase=text[:100])
