"""`stallscope doctor`: what is wrong with this installation."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from collector.cli.failures import FAILED

if TYPE_CHECKING:
    from collector.clickhouse import Database
    from collector.settings import Settings

FREE_BYTES: Final = 1 << 30
"""Less free disk than this under the embedded store is worth a word."""
CLOCK_SECONDS: Final = 2.0
"""More difference than this between the store's clock and ours makes times on pages wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    detail: str


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(*, as_json: bool) -> int:
    """Look at settings, store, migrations, disk, parts and tokens, and say what is wrong."""
    findings = examine()
    if as_json:
        found = [{"what": one.what, "ok": one.ok, "detail": one.detail} for one in findings]
        click.echo(json.dumps({"findings": found}, ensure_ascii=False, indent=2))
    for one in () if as_json else findings:
        mark = click.style("ok   ", fg="green") if one.ok else click.style("WRONG", fg="red")
        click.echo(f"{mark}  {one.what}: {one.detail}")
    return 0 if all(one.ok for one in findings) else FAILED


def examine() -> list[Finding]:
    """Everything that was looked at, in the order in which it should be put right."""
    # Loaded here: help should not wait for the store's client.
    from collector.auth import Tokens
    from collector.clickhouse import target_of
    from collector.settings import Settings, SettingsError
    from collector.tls import TlsFiles

    demo = _part("the demo's workers", "runpod", "demo", needed=False)
    try:
        settings = Settings.from_env(os.environ)
        target = target_of(settings.database_url.get_secret_value())
        tokens, tls = Tokens.of(settings), TlsFiles.of(settings)
    except SettingsError as error:
        return [Finding("settings", False, str(error)), demo]
    said = "none set: this machine only" if tokens.none_set else "set"
    if not tokens.may_see_metrics(""):
        said += "; /metrics asks for one of STALLSCOPE_METRICS_TOKENS" + ("" if tokens.metrics else ", and none is set")
    secured = Finding("TLS", True, f"both ports, by {tls.certificate}" if tls else "none: both ports are plain")
    embedded = _part("the embedded store", "chdb", "embedded", needed=target.path is not None)
    findings = [Finding("settings", True, f"store {target}"), embedded, demo, Finding("tokens", True, said), secured]
    if not embedded.ok:
        return findings
    if target.path is not None:
        findings.append(_disk(target.path))
        if not target.path.exists():
            return [*findings, Finding("store", True, f"{target.path} will be made by `stallscope serve`")]
    return [*findings, *asyncio.run(_store(settings))]


def _part(what: str, module: str, extra: str, *, needed: bool) -> Finding:
    present = importlib.util.find_spec(module) is not None
    missing = f"not installed: pip install 'stallscope[{extra}]'" + ("" if needed else " (not needed as things are)")
    return Finding(what, present or not needed, "installed" if present else missing)


def _disk(path: Path) -> Finding:
    existing = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    return Finding("disk", free >= FREE_BYTES, f"{free / (1 << 30):.1f} GiB free under {existing}")


async def _store(settings: Settings) -> list[Finding]:
    from collector import migrate
    from collector.clickhouse import Database
    from collector.errors import StallscopeError

    try:
        db = await Database.open(settings)
    except StallscopeError as error:
        return [Finding("store", False, f"{error}")]
    try:
        began = time.time()
        told = (await db.query("SELECT toUnixTimestamp64Milli(now64(3)) AS now_ms"))[0]["now_ms"] / 1000
        findings = [Finding("store", True, "answers"), _clock(told, began, time.time())]
        waiting = [migration.name for migration in await migrate.plan(db)]
        if not waiting:
            findings.append(await _quarantine(db))
    except StallscopeError as error:
        return [Finding("migrations", False, str(error))]
    finally:
        await db.close()
    detail = f"{len(waiting)} wait: run `stallscope migrate`" if waiting else "all applied"
    return [*findings, Finding("migrations", not waiting, detail)]


async def _quarantine(db: Database) -> Finding:
    [aside] = await db.query("SELECT sum(spans) AS spans, anyLast(reason) AS reason FROM quarantine")
    if not aside["spans"]:
        return Finding("quarantine", True, "empty")
    return Finding("quarantine", False, f"{aside['spans']} spans that the store refused; {aside['reason']}")


def _clock(told: float, began: float, ended: float) -> Finding:
    """The store's time against ours, which it should lie between."""
    apart = max(began - told, told - ended, 0.0)
    return Finding("clocks", apart <= CLOCK_SECONDS, f"the store's clock is {apart:.1f} s from this machine's")
