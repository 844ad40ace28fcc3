"""Numbers → shapes of charts that templates draw as SVG. Pure geometry, in a box of `WIDTH` by `HEIGHT`.

Nothing is told by colour alone: a series has a place in the stack and in the legend, and every chart has its numbers
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from collector.queries.charts import HeatMap, Measure, Quantiles, Series
from dashboard.contexts import Bar, HeatCell, HeatLine, LineChart, StackChart, StackSeries

WIDTH: Final = 720
HEIGHT: Final = 120
GAP: Final = 3
SHADES: Final = 5


def stack(series: Sequence[Series], starts: Sequence[datetime]) -> StackChart | None:
    """Stacked bars, one a stretch of time; None where nothing failed."""
    if not series:
        return None
    step = WIDTH / len(starts)
    totals = [sum(one.counts[place] for one in series) for place in range(len(starts))]
    most = max(max(totals), 1)
    below = [0] * len(starts)
    drawn = []
    for number, one in enumerate(series, start=1):
        bars = []
        for place, count in enumerate(one.counts):
            if count:
                height = count / most * HEIGHT
                top = HEIGHT - (below[place] + count) / most * HEIGHT
                bars.append(Bar(round(place * step, 1), round(top, 1), round(step - GAP, 1), round(height, 1)))
                below[place] += count
        drawn.append(StackSeries(one.name, f"s{number}", sum(one.counts), tuple(bars)))
    return StackChart(tuple(drawn), most, tuple(zip(starts, totals, strict=True)))


def lines(times: Mapping[Measure, Sequence[Quantiles]], starts: Sequence[datetime]) -> tuple[LineChart, ...]:
    """One chart for each measure: half of the requests, and 95 in 100."""
    return tuple(_line(measure, quantiles, starts) for measure, quantiles in times.items())


def _line(measure: Measure, quantiles: Sequence[Quantiles], starts: Sequence[datetime]) -> LineChart:
    most = max((one.p95 for one in quantiles if one.p95 is not None), default=0.0) or 1.0
    newest = next((one for one in reversed(quantiles) if one.p50 is not None), Quantiles(None, None))
    return LineChart(
        name=measure,
        p50=_points([one.p50 for one in quantiles], most),
        p95=_points([one.p95 for one in quantiles], most),
        most_seconds=most,
        newest=newest,
        table=tuple((at, one.p50, one.p95) for at, one in zip(starts, quantiles, strict=True)),
    )


def _points(values: Sequence[float | None], most: float) -> tuple[tuple[float, float], ...]:
    """Where each value that is known stands: dots, because a line would invent what lies between."""
    step = WIDTH / len(values)
    return tuple(
        (round((place + 0.5) * step, 1), round(HEIGHT - value / most * (HEIGHT - 6) - 3, 1))
        for place, value in enumerate(values)
        if value is not None
    )


def heat(found: HeatMap) -> tuple[HeatLine, ...]:
    """Rows of a table, each number with its shade: from 1 to `SHADES`, 0 for none."""
    most = max((count for row in found.rows for count in row.counts), default=0)
    return tuple(
        HeatLine(row.host, tuple(HeatCell(count, _shade(count, most)) for count in row.counts)) for row in found.rows
    )


def _shade(count: int, most: int) -> int:
    return 0 if not count else max(1, round(count / most * SHADES))
