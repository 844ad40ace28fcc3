"""The front page and its one search box."""

from __future__ import annotations

import pytest
from hostile import HOSTILE
from otlp_worker import LOG, completed, prestart_out_of_memory
from visitors import Visitor

from dashboard import urls
from dashboard.pages.search import ids_in, words_of

UUID = "3f6c2d1e-7c0e-4f6e-9a43-c1a0fb3d2b11-u1"


async def test_an_empty_store_explains_the_first_step(visitor: Visitor) -> None:
    page = await visitor.see("/")
    assert "Nothing was received yet" in page.texts("h2")
    assert "sdk_exporter" in page.text("pre.block")


async def test_the_overview_tells_failures_numbers_and_endpoints(visitor: Visitor) -> None:
    await visitor.send(completed("good-1"), worker="w-2")
    await visitor.fail("bad-1")
    await visitor.listed("good-1", "bad-1")
    page = await visitor.see("/")
    assert page.texts("[aria-labelledby=newest] .job-id") == ["bad-1"]
    assert "Requests 2" in " ".join(page.texts(".facts > div")).replace("Requests2", "Requests 2")
    assert page.all(".tally a[href='/jobs?since=24h&verdict=prestart_failed']")
    assert page.one("[aria-labelledby=endpoints] a").attrs["href"] == "/endpoints/llama-chat"
    twin = (await visitor.client.get("/overview.json")).json()
    assert twin["counts"]["jobs"] == 2
    assert twin["newest"][0]["job_id"] == "bad-1"


@pytest.mark.parametrize(
    "pasted",
    [
        UUID,
        f"  {UUID}\n",
        f"http://127.0.0.1:4318/jobs/{UUID}",
        f"https://api.example.com/v2/endpoint/status/{UUID}?wait=1",
        f"http://127.0.0.1:4318/jobs/{UUID}.md",
        f'{{"requestId": "{UUID}", "message": "Failed to return job results", "level": "ERROR"}}',
    ],
)
async def test_the_search_box_takes_ids_addresses_and_log_lines(visitor: Visitor, pasted: str) -> None:
    await visitor.fail(UUID)
    response = await visitor.get("/search", 303, params={"q": pasted})
    assert response.headers["location"] == f"/jobs/{UUID}"


async def test_words_lead_to_the_list(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    response = await visitor.get("/search", 303, params={"q": "Tried to allocate 896.00 MiB"})
    page = await visitor.see(response.headers["location"])
    assert page.texts(".job-id") == ["bad-1"]
    assert (await visitor.get("/search?q=", 303)).headers["location"] == "/jobs"


async def test_the_search_box_finds_more_than_requests(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    group = (await visitor.client.get("/api/v1/groups")).json()["items"][0]["fingerprint"]
    for pasted, path in (
        ("w-1", "/workers/w-1"),
        ("llama-chat", "/endpoints/llama-chat"),
        ("https://api.example.com/v2/llama-chat/run", "/endpoints/llama-chat"),
        (group, urls.page("groups", group)),
        ("https://stallscope.example/workers/w%201", "/workers/w%201"),
        ("job_id=bad-1-x and jobId: bad-1", "/jobs?q=job_id%3Dbad-1-x+and+jobId%3A+bad-1"),
    ):
        assert (await visitor.get("/search", 303, params={"q": pasted})).headers["location"] == path, pasted


async def test_a_whole_log_line_is_found_whatever_stands_before_it(visitor: Visitor) -> None:
    secret = "hf_" + "A1b2C3d4" * 4
    line = f"loading shard 7 of the weights with token={secret}"
    await visitor.send(prestart_out_of_memory("bad-1", log=f"{line}\n{LOG}"))
    await visitor.listed("bad-1")
    for pasted in (
        line,
        f"2026-05-04T03:12:05.120Z ERROR {line}",
        f"[rank0]: 03:12:05,120 - WARNING: \x1b[31m{line}\x1b[0m",
    ):
        response = await visitor.get("/search", 303, params={"q": pasted})
        assert secret not in response.headers["location"]
        assert (await visitor.see(response.headers["location"])).texts(".job-id") == ["bad-1"], pasted


async def test_hostile_searches_stay_on_this_server(visitor: Visitor) -> None:
    for text in (text for text in HOSTILE if "\ud800" not in text and len(text) < 5000):
        response = await visitor.get("/search", 303, params={"q": text})
        assert response.headers["location"].startswith("/jobs")
        await visitor.see(response.headers["location"])


def test_what_is_pasted_names_few_ids_likeliest_first() -> None:
    assert ids_in(f"http://x/jobs/a%2Fb and {UUID}") == ["a/b", UUID]
    assert len(ids_in(" ".join(f"{n:08x}-0000-0000-0000-000000000000" for n in range(50)))) == 3
    assert ids_in("x" * 2000) == []


def test_a_pasted_log_is_searched_by_its_longest_line() -> None:
    assert words_of("short\n\x1b[31mthe longest line of all\x1b[0m\nmid line") == "the longest line of all"
