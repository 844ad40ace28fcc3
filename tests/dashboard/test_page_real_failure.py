"""The page of a request that a worker told over OTLP and the store kept."""

from __future__ import annotations

import json

from otlp_worker import OOM_LINE, completed, prestart_out_of_memory, running
from visitors import Visitor

from dashboard import urls
from dashboard.pages.failure import ADDED

IDS = (
    "a/b",
    "a%2Fb",
    "100%",
    'it\'s "quoted"',
    "<script>alert(1)</script>",
    "x.json",
    "x.md",
    "new\nline",
    "été 中文 🔥",
    "?q=1#frag;p",
    "a//b/../c",
    "j" * 1024,
)


async def test_the_page_of_a_real_failure_tells_what_happened(visitor: Visitor) -> None:
    await visitor.fail("job-1")
    page = await visitor.see("/jobs/job-1")
    assert "load_model" in page.text("h1")
    assert "prestart_failed" in page.text(".badges")
    assert "cuda_oom" in page.text(".badges")
    assert page.one("#root-cause").query("code")[0].to_text(separator="") == OOM_LINE
    assert "✕ here" in next(row for row in page.texts(".phases tbody tr") if row.startswith("prestart"))
    for link in page.all("a[href^='#']"):
        assert page.one(link.attrs["href"])


async def test_the_json_twin_is_the_body_of_the_api(visitor: Visitor) -> None:
    await visitor.fail("job-2")
    twin = (await visitor.client.get("/jobs/job-2.json")).json()
    api = (await visitor.client.get("/api/v1/jobs/job-2")).json()
    assert {name: twin[name] for name in api} == api
    assert twin.keys() - api.keys() == {*ADDED, "usual"}


async def test_the_markdown_twin_says_the_same(visitor: Visitor) -> None:
    await visitor.fail("job-3")
    response = await visitor.client.get("/jobs/job-3.md")
    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert OOM_LINE in response.text
    assert "load\\_model" in response.text.splitlines()[0]


async def test_any_id_has_a_page_and_its_links_lead_there(visitor: Visitor) -> None:
    for number, job_id in enumerate(IDS):
        await visitor.send(prestart_out_of_memory(job_id), worker=f"w-{number}", boot=f"{number:032x}")
    await visitor.listed(*IDS)
    links = {link.attrs["href"] for link in (await visitor.see("/jobs")).all("a.job-id")}
    assert links == {urls.page("jobs", job_id) for job_id in IDS}
    for job_id in IDS:
        await _page_and_twins(visitor, job_id)


async def test_an_id_too_long_to_store_leads_to_its_page_as_it_does_in_the_api(visitor: Visitor) -> None:
    long = "é" * 600
    await visitor.send(completed(long))
    for path in (f"/jobs/{long}", f"/jobs/{long}.json", f"/jobs/{long}.md", f"/api/v1/jobs/{long}"):
        assert (await visitor.client.get(path)).status_code == 200, path[:20]


async def _page_and_twins(visitor: Visitor, job_id: str) -> None:
    page = await visitor.see(urls.page("jobs", job_id))
    assert page.one(".eyebrow > .id").to_text(separator="", strip=False) == job_id
    raw = page.one("[aria-labelledby=records] a[href$='.json']").attrs["href"]
    assert json.loads((await visitor.client.get(raw)).text)["job_id"] == job_id
    markdown = page.one("[aria-labelledby=records] a[href$='.md']").attrs["href"]
    assert (await visitor.client.get(markdown)).status_code == 200


async def test_an_open_and_a_good_request_have_pages_too(visitor: Visitor) -> None:
    await visitor.send(running("open-1"), worker="w-2")
    await visitor.send(completed("good-1"), worker="w-3")
    assert (await visitor.see("/jobs/open-1")).texts(".badges .chip") == ["◐ running"]
    assert (await visitor.see("/jobs/good-1")).texts(".badges .chip") == ["✓ completed"]


async def test_an_unknown_request_is_told_from_one_past_retention(visitor: Visitor) -> None:
    page = await visitor.see("/jobs/nobody", 404)
    assert page.text("h1") == "Nothing was ever received about this request"
    assert "never_seen" in page.text(".number")
    await visitor.fail("old-1")
    await visitor.forget_spans()
    page = await visitor.see("/jobs/old-1", 404)
    assert page.text("h1") == "This request is past retention"
    assert "prestart_failed" in page.text(".lead")
    assert (await visitor.client.get("/jobs/old-1.json")).json()["code"] == "past_retention"


async def test_a_store_that_is_away_is_never_no_results(lost_visitor: Visitor) -> None:
    for path in ("/", "/jobs", "/jobs/job-1", "/groups", "/endpoints/e", "/workers/w", "/stop-channels"):
        page = await lost_visitor.see(path, 503)
        assert page.text("h1") == "The store did not answer"
        assert "The query failed" in page.text(".lead")
        assert "It is not an empty result." in page.text(".lead")
        assert page.texts("a.button") == ["Try again"]
        assert "no request" not in page.text("main").lower()
    response = await lost_visitor.get("/jobs", 503)
    assert int(response.headers["retry-after"]) > 0


async def test_pages_carry_strict_headers(visitor: Visitor) -> None:
    for path, status in (("/", 200), ("/jobs/nobody", 404), ("/static/stallscope.css", 200), ("/login", 200)):
        headers = (await visitor.get(path, status)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


async def test_a_page_can_be_asked_for_its_head(visitor: Visitor) -> None:
    assert (await visitor.client.head("/jobs")).status_code == 200
    assert (await visitor.client.head("/jobs/nobody")).status_code == 404


async def test_a_path_that_is_no_page_says_so(visitor: Visitor) -> None:
    assert (await visitor.see("/nothing/here", 404)).text("h1") == "There is no such page"
    assert (await visitor.see("/status", 405, method="POST")).text("h1")


async def test_a_page_without_its_tail_weighs_little(visitor: Visitor) -> None:
    await visitor.fail("light-1")
    assert len((await visitor.get("/jobs/light-1")).content) < 60_000
