"""`stallscope migrate`: bring the store's tables up to date, or show what that would do."""

from __future__ import annotations

import asyncio
import json
import os

import click

from collector.cli.failures import failures_of_the_store


@click.command()
@click.option("--plan", "only_plan", is_flag=True, help="Show what waits to be applied; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the names as JSON.")
def migrate(*, only_plan: bool, as_json: bool) -> None:
    """Apply pending migrations of the store. Safe to run twice, at once, or after a kill."""
    with failures_of_the_store():
        names = asyncio.run(_migrations(only_plan=only_plan))
    if as_json:
        click.echo(json.dumps({"pending" if only_plan else "applied": [name for name, _ in names]}))
        return
    for name, why in names:
        click.echo(f"{'pending' if only_plan else 'applied'}  {name}  {why}")
    if not names:
        click.echo("nothing to do: the store is up to date", err=True)


async def _migrations(*, only_plan: bool) -> list[tuple[str, str]]:
    from collector import migrate as migrations
    from collector.clickhouse import Database
    from collector.settings import Settings

    settings = Settings.from_env(os.environ)
    db = await Database.open(settings)
    try:
        if only_plan:
            found = await migrations.plan(db)
        else:
            found = await migrations.apply(db, retention_days=settings.retention_days)
        return [(migration.name, migration.why) for migration in found]
    finally:
        await db.close()
