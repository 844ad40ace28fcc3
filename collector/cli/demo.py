"""`stallscope demo`: server, platform and real workers on this machine, failing in every way."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import signal
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click

from collector.cli.failures import FAILED, INTERRUPTED, USAGE, CommandFailed

if TYPE_CHECKING:
    from collector.demo.scenarios import Scenario
    from collector.demo.show import Outcome

DEFAULT_PORT: Final = 4318
NEEDED: Final = ("aiohttp", "chdb", "runpod")
SEED_SECONDS: Final = 45.0
"""Pause between two requests once every scenario was shown, so that the pages stay alive."""


@click.command()
@click.option("--once", is_flag=True, help="Play every scenario once, print the table, exit 0 when all are right.")
@click.option("--all", "with_slow", is_flag=True, help="Add the slow and rare scenarios.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the pages [default: 4318; any free one if --once]."
)
@click.option("--json", "as_json", is_flag=True, help="With --once: print the table as JSON.")
def demo(port: int | None, *, once: bool, with_slow: bool, as_json: bool) -> int:
    """Show what Stallscope tells, with nothing prepared.

    Starts a server on an embedded store, a local stand-in for the platform, and real workers that succeed, fail and
    stall; prints the address of the first failed request's page and goes on until Ctrl-C. Everything is removed at the
    end.
    """
    if as_json and not once:
        raise click.UsageError("--json goes with --once")
    missing = [part for part in NEEDED if importlib.util.find_spec(part) is None]
    if missing:
        raise CommandFailed(
            f"the demo needs {', '.join(missing)}: pip install 'stallscope[embedded,demo]'",
            "usage_error",
            exit_code=USAGE,
        )
    shown_port = port if port is not None else (0 if once else DEFAULT_PORT)
    try:
        return asyncio.run(_until_told(_demo(shown_port, once=once, with_slow=with_slow, as_json=as_json)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo("ended", err=True)
        return INTERRUPTED


async def _until_told(work: Coroutine[None, None, int]) -> int:
    """Run `work`; SIGTERM ends it as Ctrl-C does, so that no process is left behind."""
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _demo(port: int, *, once: bool, with_slow: bool, as_json: bool) -> int:
    # Loaded here: help should not wait for OpenTelemetry and aiohttp.
    from collector.demo import show
    from collector.demo.platform import running_platform
    from collector.demo.scenarios import SCENARIOS

    chosen = [scenario for scenario in SCENARIOS if with_slow or not scenario.slow]
    click.echo("starting the server on an embedded store …", err=True)
    with tempfile.TemporaryDirectory(prefix="stallscope-demo-", ignore_cleanup_errors=True) as directory:
        try:
            async with (
                show.running_server(f"chdb://{quote(str(Path(directory) / 'store'))}", port=port) as server,
                running_platform() as platform,
            ):
                teller = Teller(server, page_on_stdout=not once)
                outcomes = await show.play_all(chosen, platform, server, tell=teller)
                if once:
                    _print_table(outcomes, as_json=as_json)
                    return FAILED if any(outcome.problem for outcome in outcomes) else 0
                click.echo(f"all shown; one more every {SEED_SECONDS:g} s. Ctrl-C ends the demo.", err=True)
                await _seed_on(chosen, lambda scenario: show.play(scenario, platform, server))
        except show.ServerFailed as error:
            raise CommandFailed(str(error), "api_error") from None
    return 0


async def _seed_on(scenarios: list[Scenario], play: Callable[[Scenario], Awaitable[Outcome]]) -> None:
    """One more scenario now and then, until cancelled."""
    for scenario in itertools.cycle(scenarios):
        await asyncio.sleep(SEED_SECONDS)
        await play(scenario)


class Teller:
    """Says on stderr how it goes, and where to look: the page of the first request that failed."""

    def __init__(self, server: str, *, page_on_stdout: bool) -> None:
        self._server = server
        self._page_on_stdout = page_on_stdout
        self._shown = False
        click.echo(f"the pages are at {server}/; findings turn up at /stop-channels, alerts at /alerts", err=True)

    def __call__(self, outcome: Outcome) -> None:
        mark = click.style("wrong", fg="red") if outcome.problem else click.style("ok   ", fg="green")
        click.echo(f"  {mark}  {outcome.scenario.name}: {outcome.verdict}", err=True)
        if outcome.problem:
            click.echo(f"         {outcome.problem}", err=True)
        if outcome.bad_news is not None and not self._shown:
            self._shown = True
            page = f"{self._server}/jobs/{quote(outcome.bad_news, safe='')}"
            click.echo("\nthe first failed request, explained:", err=True)
            click.echo(page, err=not self._page_on_stdout)
            click.echo("", err=True)


def _print_table(outcomes: list[Outcome], *, as_json: bool) -> None:
    from collector.demo.show import table

    rows = table(outcomes)
    heads = ("scenario", "expected", "verdict", "evidence")
    if as_json:
        objects = [dict(zip((*heads, "right"), row, strict=True)) for row in rows]
        click.echo(json.dumps({"scenarios": objects}, ensure_ascii=False, indent=2))
        return
    widths = [max(len(str(row[column])) for row in [heads, *rows]) for column in range(3)]
    for row in [(*heads, True), *rows]:
        cells = [str(cell).ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
        line = f"{'  ' if row[4] else '! '}{'  '.join(cells)}  {row[3]}"
        click.echo(line if row[4] else click.style(line, fg="red"))
    wrong = sum(not row[4] for row in rows)
    click.echo(f"{len(rows) - wrong} of {len(rows)} right", err=True)
