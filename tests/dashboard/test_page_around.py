"""What stands around a request: the usual of its endpoint, the last good request, the stall clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from otlp_worker import completed, earlier, handler_out_of_memory, running, span
from page_reader import Seen, site
from page_samples import NOW, OOM, RUNNING, at
from visitors import Visitor

from collector.diagnosis.answer import Phase
from collector.errors import StoreUnavailable
from collector.queries.usual import Usual, usual_phases
from dashboard import comparison, surroundings
from dashboard.comparison import compared
from dashboard.contexts import Comparison, Difference
from dashboard.pages.failure import failure_view, held_seconds
from dashboard.phase_bar import stall_clock
from dashboard.render import html_text
from dashboard.surroundings import Surroundings
from sdk_exporter.contract import Key, SpanName

RUN = Usual("run", 3.0, 5.0, 40)
QUEUED = Usual("queued", 0.4, 1.0, 40)


def page_of(answer: Any, around: Surroundings) -> Seen:
    return Seen(html_text("failure.html", failure_view(answer, site(NOW), around)))


async def test_a_failure_stands_beside_the_last_request_that_went_well(visitor: Visitor) -> None:
    good = [f"good-{number}" for number in range(6)]
    for job_id in good:
        await visitor.send(completed(job_id), release="v1", boot="a" * 32, worker="w-old")
    await visitor.listed(*good)
    # The good ones began after the bad one: what comes later is no measure. One came before.
    bad = earlier(handler_out_of_memory("bad-1"), 1800)
    await visitor.send(bad, release="v2", boot="b" * 32, worker="w-new")
    await visitor.send(earlier(completed("early"), 3600), release="v1", boot="a" * 32, worker="w-old")
    await visitor.listed("bad-1", "early")

    page = await visitor.see("/jobs/bad-1")
    lines = {
        row.query("th")[0].to_text(): [cell.to_text() for cell in row.query("td")]
        for row in page.all(".difference tbody tr")
    }
    assert lines["release"] == ["v2", "v1"]
    assert lines["worker"] == ["w-new", "w-old"]
    assert lines["handler"] == ["async", "sync"]
    assert lines["time in run"] == ["8.0 s", "2.9 s"]
    assert "GPU" in page.text(".same")
    assert page.one("[aria-labelledby=difference] a[href='/jobs/early']")
    twin = (await visitor.client.get("/jobs/bad-1.json")).json()
    assert twin["comparison"]["job_id"] == "early"
    assert twin["not_asked"] == []


async def test_the_usual_of_an_endpoint_is_drawn_and_told(visitor: Visitor) -> None:
    for number in range(6):
        await visitor.send(completed(f"good-{number}"))
    await visitor.send(running("open-1"))
    await visitor.listed("open-1", *(f"good-{number}" for number in range(6)))
    page = await visitor.see("/jobs/open-1")
    assert "usually 2.9 s" in page.text("[aria-labelledby=clock]")
    assert "from 6 that went well on this endpoint" in page.text("[aria-labelledby=clock]")
    assert page.all(".phases .ghost")
    twin = (await visitor.client.get("/jobs/open-1.json")).json()
    assert twin["usual"]["run"]["count"] == 6
    assert twin["clock"]["phase"] == "run"


async def test_an_endpoint_without_a_good_request_has_nothing_to_compare_with(visitor: Visitor) -> None:
    await visitor.fail("only-1")
    page = await visitor.see("/jobs/only-1")
    assert "nothing to compare with" in page.text("[aria-labelledby=difference]")
    assert not page.all(".ghost")


@pytest.fixture
def slow_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The questions around a request are not answered: one never, one with an error."""

    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    async def fails(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the store did not answer in 10 s")

    monkeypatch.setattr(surroundings, "SECONDS", 0.2)
    monkeypatch.setattr(surroundings, "usual_phases", never)
    monkeypatch.setattr(surroundings, "last_good", fails)
    return iter(())


@pytest.mark.usefixtures("slow_store")
async def test_the_verdict_does_not_wait_for_what_stands_around_it(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    page = await visitor.see("/jobs/bad-1")
    assert "load_model" in page.text("h1")
    assert "did not answer in time about: what is usual here, the last good request" in page.text("[role=status]")
    assert not page.all("[aria-labelledby=difference]")


def test_a_phase_far_out_of_the_ordinary_says_so() -> None:
    phases = (
        Phase("queued", 1, None, at(0), at(2), 2.0, True, "caller"),
        Phase("run", 1, "w", at(2), at(6), 4.0, True, "worker"),
    )
    page = page_of(replace(OOM, phases=phases), Surroundings(usual={"run": RUN, "queued": QUEUED}))
    assert page.text(".phases .usual.far") == "5.0 × the usual 400 ms"
    assert "usually 3.0 s" in page.text(".phases")
    ghosts = {ghost.attrs["width"] for ghost in page.all(".phases .ghost")}
    assert ghosts == {"6.67%", "50.0%"}


def test_the_clock_of_an_open_request_runs_against_the_usual() -> None:
    now = at(0.1) + timedelta(seconds=4)
    assert stall_clock(RUNNING, now, {}) is not None
    early, late = (stall_clock(RUNNING, at(0.1) + timedelta(seconds=s), {"run": RUN}) for s in (4, 9))
    assert early is not None
    assert late is not None
    assert (early.phase, early.seconds, early.late) == ("run", 4.0, False)
    assert late.late
    assert stall_clock(OOM, now, {"run": RUN}) is None
    page = page_of(RUNNING, Surroundings())
    assert "too few requests" in page.text("[aria-labelledby=clock]")
    assert page.one(".ticking").attrs["data-since"] == "2026-05-04T03:12:05.220000Z"


def test_a_comparison_has_a_bounded_number_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "LINES", 5)
    here = {f"key{n}": n for n in range(3)} | {
        "container.image.name": "a", "service.version": "1", "stallscope.sdk.version": "1.12", "hw.model": "L4",
        "hw.driver_version": "570", "host.name": "h1", "cloud.region": "EU", "hw.id": "G-1", "service.instance.id": "w",
    }  # fmt: skip
    there = {name: f"other {value}" for name, value in here.items()}
    found = compared(OOM, here, RUNNING, there, at(0))
    assert len(found.differences) == 5
    assert found.left_out > 0
    assert found.differences[0] == Difference("image", "a", "other a")
    assert not compared(OOM, here, OOM, here, at(0)).differences


def test_hostile_values_of_another_worker_are_shown_and_never_run() -> None:
    text = "<script>window.pwned = 1</script>"
    other = Comparison(text, at(0), (Difference("image", text, text),), 0, ())
    page = page_of(OOM, Surroundings(comparison=other))
    assert page.dangers() == []
    assert page.texts(".difference td") == [text, text]


def test_held_time_counts_each_attempt_from_its_claim() -> None:
    assert held_seconds(OOM, NOW) == pytest.approx(3.1)
    assert held_seconds(replace(OOM, phases=()), NOW) is None
    assert held_seconds(RUNNING, at(10)) == pytest.approx(10)


async def test_the_tail_can_be_kept_as_a_file(visitor: Visitor) -> None:
    await visitor.fail("bad-1")
    link = (await visitor.see("/jobs/bad-1")).one("[aria-labelledby=tail] a[download]").attrs["href"]
    response = await visitor.client.get(link)
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert "\x1b[32mweights" in response.text
    await visitor.send(completed("good-1"))
    await visitor.get("/jobs/good-1?download=tail", 404)


async def test_cancelled_requests_are_no_measure(visitor: Visitor) -> None:
    for number in range(6):
        await visitor.send(completed(f"good-{number}"))
        job = {Key.INVOCATION_ID: f"cancelled-{number}"}
        await visitor.send([
            span(SpanName.JOB_CLAIMED, -100, -100, attributes=job),
            span(SpanName.JOB_STOP, -90, -5, attributes={**job, Key.STOP_OUTCOME: "ignored"}),
            span(SpanName.JOB_RUN, -99, -5, attributes=job),
        ])  # fmt: skip
    found = await usual_phases(visitor.database, "default", "llama-chat", datetime.now(timezone.utc))
    assert found["run"].count == 6
    assert found["run"].seconds_p95 == pytest.approx(2.9, abs=0.01)
