"""`stallscope alert`: the ways in which people are told."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from datetime import datetime, timezone

import click

from collector.cli.failures import USAGE, CommandFailed, unreachable


@click.group()
def alert() -> None:
    """Try the ways in which people are told of alerts."""


@alert.command()
@click.argument("channel")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def test(channel: str, *, as_json: bool) -> None:
    """Send a test to CHANNEL: webhook, slack, pagerduty, alertmanager or email as the settings here name it, or a
    channel of the rules file."""
    # Loaded here: help should not wait for these.
    from collector.alerts.channels import KINDS, channels_of
    from collector.alerts.notices import DeliveryFailed
    from collector.alerts.rules import load
    from collector.settings import Settings, SettingsError

    try:
        settings = Settings.from_env(os.environ)
        specs = load(settings.alert_rules).channels
        found = channels_of(settings, specs).get(channel)
    except SettingsError as error:
        raise CommandFailed(str(error), "usage_error", exit_code=USAGE) from None
    names = [*KINDS, *(spec.name for spec in specs)]
    if channel not in names:
        raise CommandFailed(f"{channel!r} is none of {', '.join(names)}", "usage_error", exit_code=USAGE)
    if found is None:
        raise CommandFailed(f"no setting names {channel}; see docs/alerts.md", "usage_error", exit_code=USAGE)
    now = datetime.now(timezone.utc)
    try:
        asyncio.run(_send(found, now))
    except DeliveryFailed as error:
        if error.retryable:
            raise unreachable(f"{channel} did not take it: {error}") from None
        raise CommandFailed(f"{channel} refused it: {error}", "api_error") from None
    click.echo(json.dumps({"channel": channel, "sent": True}) if as_json else f"{channel} took the test")


async def _send(channel: object, now: datetime) -> None:
    import httpx

    from collector.alerts.notices import Channel, Notice, dedup_key

    made: Channel = channel  # type: ignore[assignment]  # typed here, so that help need not import it
    unique = uuid.uuid4().hex
    notice = Notice(
        id=f"ntc_{unique}",
        dedup_key=dedup_key("default", "Test", unique),
        kind="test",
        tenant="default",
        rule="Test",
        group=unique,
        code="test",
        severity="info",
        sentence="Stallscope can reach you here. Nothing is wrong.",
        endpoint_id=None,
        worker_ids=(),
        job_ids=(),
        opened_at=now,
        resolved_at=None,
        url="",
        runbook_url="",
    )
    async with httpx.AsyncClient() as client:
        await made.send(client, notice, now)
