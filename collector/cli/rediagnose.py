"""`stallscope rediagnose`: stored requests once more, by the rules of this program."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from collector.cli.durations import duration_option
from collector.cli.failures import FAILED, failures_of_the_store

if TYPE_CHECKING:
    from collector.rediagnosis import Rediagnosed


@click.command()
@click.option(
    "--since", metavar="DURATION", callback=duration_option, help="Only those that began within this [default: all]."
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def rediagnose(*, since: float | None, as_json: bool) -> int:
    """Diagnose stored requests once more, so that lists and groups say what this version's rules say.

    For after an upgrade. A verdict that differs now becomes the next revision of its request, and the history says why.
    Works on the store itself: an embedded one must not be in use by a server meanwhile.
    """
    with failures_of_the_store():
        done = asyncio.run(_rediagnosed(since, quiet=as_json))
    if as_json:
        click.echo(json.dumps(asdict(done)))
    else:
        failed = f", {done.failed} could not be" if done.failed else ""
        click.echo(f"{done.diagnosed} requests diagnosed{failed}; {done.revised} verdicts differ now")
    return FAILED if done.failed else 0


async def _rediagnosed(since: float | None, *, quiet: bool) -> Rediagnosed:
    from datetime import datetime, timedelta, timezone

    from collector import migrate
    from collector.clickhouse import Database
    from collector.rediagnosis import rediagnose
    from collector.settings import Settings

    settings = Settings.from_env(os.environ)
    db = await Database.open(settings)
    try:
        await migrate.check(db)
        now = datetime.now(timezone.utc)
        reach = timedelta(days=settings.retention_days) if since is None else timedelta(seconds=since)
        return await rediagnose(db, settings, now - reach, now, told=None if quiet else _tell)
    finally:
        await db.close()


def _tell(done: Rediagnosed) -> None:
    click.echo(f"{done.diagnosed} so far, {done.revised} verdicts differ now", err=True)
