"""The list of requests: filters in the address, newest first, and pages that follow one another."""

from __future__ import annotations

import csv
import io

from hostile import HOSTILE
from otlp_worker import OOM_LINE, completed, prestart_out_of_memory, running
from visitors import Visitor

from dashboard.pages.jobs import COLUMNS


async def _three(visitor: Visitor) -> None:
    await visitor.send(completed("good-1"), worker="w-2", endpoint="images")
    await visitor.send(running("open-1"), worker="w-3", endpoint="images")
    await visitor.fail("bad-1")
    await visitor.listed("good-1", "open-1", "bad-1")


async def test_rows_tell_state_sentence_line_and_where(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    page = await visitor.see("/jobs")
    row = page.text("li.job")
    assert "✕ failed" in row
    assert "bad-1" in row
    assert OOM_LINE in row
    assert "llama-chat" in row
    assert "prestart_failed / cuda_oom" in row


async def test_the_newest_request_comes_first(visitor: Visitor) -> None:
    await _three(visitor)
    assert (await visitor.see("/jobs")).texts(".job-id") == ["open-1", "good-1", "bad-1"]


async def test_filters_narrow_the_list(visitor: Visitor) -> None:
    await _three(visitor)
    for filters, expected in FILTERED.items():
        page = await visitor.see(f"/jobs?{filters}")
        assert page.texts(".job-id") == expected, filters


FILTERED = {
    "state=failed": ["bad-1"],
    "verdict=completed": ["good-1"],
    "endpoint=images": ["open-1", "good-1"],
    "worker=w-2": ["good-1"],
    "cause=cuda_oom": ["bad-1"],
    "since=1h": ["open-1", "good-1", "bad-1"],
    "until=1h": [],
    "since=2001-01-01T00:00:00Z&until=2001-01-02T00:00:00Z": [],
    "q=896.00": ["bad-1"],
    "state=&verdict=&endpoint=&since=&until=&q=": ["open-1", "good-1", "bad-1"],
}


async def test_the_form_shows_the_filters_that_hold(visitor: Visitor) -> None:
    page = await visitor.see("/jobs?state=failed&endpoint=a%26b&since=2h&fingerprint=f1")
    assert page.one("select[name=state] option[selected]").attrs["value"] == "failed"
    assert page.one("input[name=endpoint]").attrs["value"] == "a&b"
    assert page.one("input[name=since]").attrs["value"] == "2h"
    assert page.one("input[name=fingerprint]").attrs["value"] == "f1"


async def test_an_empty_list_says_whether_filters_made_it_so(visitor: Visitor) -> None:
    assert "The store answered: no request was received yet." in (await visitor.see("/jobs")).text("p.note")
    assert "no request fits these filters" in (await visitor.see("/jobs?state=lost")).text("p.note")


async def test_pages_follow_one_another_and_miss_nothing(visitor: Visitor) -> None:
    for number in range(5):
        await visitor.send(completed(f"good-{number}"), worker=f"w-{number}")
    await visitor.listed(*(f"good-{number}" for number in range(5)))
    seen: list[str] = []
    address: str | None = "/jobs?limit=2&state=completed"
    pages = 0
    while address:
        page = await visitor.see(address)
        seen += page.texts(".job-id")
        pages += 1
        following = page.all("a[rel=next]")
        address = following[0].attrs["href"] if following else None
    assert pages == 3
    assert seen == [f"good-{number}" for number in (4, 3, 2, 1, 0)]


async def test_the_json_twin_is_the_list_of_the_api(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    twin = (await visitor.client.get("/jobs.json?state=failed")).json()
    api = (await visitor.client.get("/api/v1/jobs?state=failed")).json()
    assert twin == api


async def test_an_address_that_cannot_be_read_names_what_is_wrong(visitor: Visitor) -> None:
    for query in ("since=yesterday", "limit=0", "limit=x", "limit=99999999999", "cursor=%00", "until=-"):
        page = await visitor.see(f"/jobs?{query}", 400)
        assert page.text("h1") == "This address cannot be read"
        assert page.text(".lead").startswith(query.partition("=")[0])


async def test_hostile_filters_are_shown_and_never_run(visitor: Visitor) -> None:
    for text in (text for text in HOSTILE if "\ud800" not in text and len(text) < 250):
        for name in ("q", "endpoint", "verdict", "state", "fault"):
            await visitor.see("/jobs", params={name: text})


async def test_hostile_rows_are_shown_and_never_run(visitor: Visitor) -> None:
    payload = "ValueError: <script>window.pwned = 1</script>"
    spans = prestart_out_of_memory("<img onerror=x>", log=f"Traceback\n{payload}\n", line=payload)
    await visitor.send(spans, worker='"><script>1</script>', endpoint="javascript:alert(1)")
    await visitor.listed("<img onerror=x>")
    page = await visitor.see("/jobs")
    assert "<script>window.pwned = 1</script>" in page.text("li.job")


async def test_the_list_is_a_table_for_a_spreadsheet(visitor: Visitor) -> None:
    await visitor.send(completed("=HYPERLINK(1)"))
    await visitor.fail("bad-1")
    await visitor.listed("=HYPERLINK(1)", "bad-1")
    response = await visitor.get("/jobs.csv?limit=1")
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["link"].startswith("</jobs.csv?")
    whole = list(csv.DictReader(io.StringIO((await visitor.get("/jobs.csv")).text)))
    assert {row["job_id"]: row["verdict"] for row in whole} == {
        "'=HYPERLINK(1)": "completed",
        "bad-1": "prestart_failed",
    }
    assert whole[0].keys() == set(COLUMNS)
    assert any(row["root_cause_line"] == OOM_LINE for row in whole)
