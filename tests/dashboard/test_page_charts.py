"""Charts: what they count, and that they are read without seeing them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from otlp_worker import completed, handler_out_of_memory, span, stop_channel
from page_reader import Seen
from visitors import Visitor

from collector.queries.charts import (
    BUCKETS,
    HeatMap,
    HeatRow,
    Quantiles,
    Series,
    bucket_starts,
    failures_over_time,
    phase_times,
    stop_channel_strips,
)
from dashboard.charts import HEIGHT, WIDTH, heat, lines, stack
from sdk_exporter.contract import SpanName

NOW = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
STARTS = bucket_starts(NOW - timedelta(days=1), NOW)


def cells(page: Seen, table: str) -> list[list[str]]:
    """The numbers of a table's body."""
    return [[cell.to_text() for cell in row.query("th, td")] for row in page.all(f"{table} tbody tr")]


async def test_the_overview_draws_failures_by_verdict_and_causes_by_host(visitor: Visitor) -> None:
    await visitor.send([*handler_out_of_memory("bad-1"), *completed("good-1")])
    await visitor.fail("bad-2")
    await visitor.listed("bad-1", "good-1")
    page = await visitor.see("/")
    assert page.texts(".chart .legend code") == ["handler_failed", "prestart_failed"]
    assert cells(page, ".chart")[-1][1] == "2"
    assert page.one(".plot").attrs["aria-label"].endswith("the numbers are below")
    assert cells(page, ".heat") == [["host-a", "2"]]
    assert page.one(".heat thead a").attrs["href"] == "/jobs?cause=cuda_oom&since=24h"
    twin = (await visitor.client.get("/overview.json")).json()
    assert [one["count"] for one in twin["failures"]["series"]] == [1, 1]


async def test_an_endpoint_draws_how_long_it_takes(visitor: Visitor) -> None:
    await visitor.send([*completed("good-1"), *completed("good-2"), span(SpanName.BOOT, -9, -5)])
    await visitor.listed("good-1", "good-2")
    page = await visitor.see("/endpoints/llama-chat")
    assert page.texts("[aria-labelledby=times] figcaption b") == ["cold start", "run"]
    assert "lately 2.9 s" in page.text("[aria-labelledby=times]")
    assert "nothing failed" in page.text("[aria-labelledby=over-time]")


async def test_stop_channels_are_drawn_by_worker(visitor: Visitor) -> None:
    await visitor.send(stop_channel("ok"), worker="w-1")
    await visitor.send(stop_channel("failing"), worker="w-1")
    await visitor.send(stop_channel("disabled"), worker="w-2")
    page = await visitor.see("/stop-channels")
    drawn = {
        row.query("th")[0].to_text(strip=True): row.query("svg")[0].attrs["aria-label"]
        for row in page.all(".strips tbody tr")
    }
    assert drawn == {"w-1": "failing in 1 hour", "w-2": "disabled in 1 hour"}
    assert (await visitor.see("/workers/w-1")).all(".strips .is-bad")


async def test_an_empty_store_has_empty_charts(visitor: Visitor) -> None:
    day = (NOW - timedelta(days=1), NOW)
    assert await failures_over_time(visitor.database, "default", *day) == ()
    assert await phase_times(visitor.database, "default", "none", *day) == {}
    assert await stop_channel_strips(visitor.database, "default", [], *day) == ()


def test_a_stack_fills_its_box_and_no_more() -> None:
    counts = [0] * BUCKETS
    few, many = [*counts], [*counts]
    few[0], many[0], many[-1] = 1, 3, 2
    drawn = stack([Series("a", tuple(many)), Series("b", tuple(few))], STARTS)
    assert drawn is not None
    bars = [bar for one in drawn.series for bar in one.bars]
    assert (drawn.most, drawn.table[0][1], drawn.table[-1][1]) == (4, 4, 2)
    assert min(bar.y for bar in bars) == 0
    assert all(bar.y + bar.height <= HEIGHT and bar.x + bar.width <= WIDTH for bar in bars)
    assert bars[0].y == pytest.approx(bars[2].y + bars[2].height), "one stands on the other"
    assert stack([], STARTS) is None


def test_what_was_not_measured_is_not_drawn() -> None:
    unknown = Quantiles(None, None)
    (drawn,) = lines({"run": (unknown,) * (BUCKETS - 1) + (Quantiles(1.0, 4.0),)}, STARTS)
    assert len(drawn.p50) == len(drawn.p95) == 1
    assert drawn.most_seconds == 4.0
    assert drawn.newest == Quantiles(1.0, 4.0)


def test_shades_go_from_one_to_five() -> None:
    (line,) = heat(HeatMap(("a", "b", "c"), (HeatRow("h", (100, 1, 0)),), 0))
    assert [cell.shade for cell in line.cells] == [5, 1, 0]
