"""The manual of verdicts: every code that a verdict can carry has its place there."""

from __future__ import annotations

from otlp_worker import completed
from visitors import Visitor

from collector.diagnosis.verdicts import CAUSES, VERDICTS, doc_of
from dashboard.pages.verdict_docs import verdict_docs_page


async def test_every_code_has_an_anchor_and_a_meaning(visitor: Visitor) -> None:
    page = await visitor.see("/docs/verdicts")
    for code, entry in VERDICTS.items():
        assert doc_of(code) == f"/docs/verdicts#{code}"
        assert " ".join(entry.meaning.replace("`", "").split()) in page.text(f"[id='{code}']")
    for code in CAUSES:
        assert page.one(f"[id='cause-{code}']")
    assert verdict_docs_page.__doc__


async def test_links_of_a_real_page_resolve_there(visitor: Visitor) -> None:
    await visitor.fail("doc-1")
    await visitor.send(completed("doc-2"), worker="w-2")
    manual = await visitor.see("/docs/verdicts")
    for job_id in ("doc-1", "doc-2"):
        page = await visitor.see(f"/jobs/{job_id}")
        for link in page.all("a[href^='/docs/verdicts#']"):
            assert manual.one(f"[id='{link.attrs['href'].partition('#')[2]}']")


async def test_the_manual_needs_no_store(lost_visitor: Visitor) -> None:
    assert (await lost_visitor.see("/docs/verdicts")).text("h1") == "What the verdicts mean"
