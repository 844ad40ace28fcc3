"""Whether this server works: its store, its tables, and the settings in use. Shown with the store away too."""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response
from pydantic import SecretStr

from collector.app import parts_of
from collector.auth import ReadTenant
from collector.errors import StallscopeError
from collector.settings import PREFIX, Settings
from dashboard import render
from dashboard.contexts import Check, StatusPage
from dashboard.filters import plural
from dashboard.site import site_of
from sdk_exporter.contract import VERSION

CHECK_SECONDS: Final = 2.0


async def status_page(request: Request, tenant: ReadTenant) -> Response:
    """`/status`."""
    return render.html("status.html", await _status(request, tenant))


async def status_json(request: Request, tenant: ReadTenant) -> Response:
    """`/status.json`."""
    return render.json(await _status(request, tenant))


async def _status(request: Request, tenant: str) -> StatusPage:
    checks = (await _store(request), _tables(request), _background(request), *_sources(request))
    return StatusPage(
        site=site_of(request, "Status", "Status", twins=(("JSON", "/status.json"),)),
        ready=all(check.ok for check in checks),
        checks=checks,
        version=VERSION,
        tenant=tenant,
        settings=settings_shown(parts_of(request).settings),
    )


async def _store(request: Request) -> Check:
    try:
        await parts_of(request).db.query("SELECT 1", seconds=CHECK_SECONDS)
    except StallscopeError as error:
        return Check("The store answers", ok=False, detail=str(error))
    return Check("The store answers", ok=True, detail="asked just now")


def _tables(request: Request) -> Check:
    store = parts_of(request).store
    if store.ready.is_set():
        return Check("Its tables are up to date", ok=True, detail="every migration is applied")
    return Check("Its tables are up to date", ok=False, detail=store.reason)


def _background(request: Request) -> Check:
    failures = sum(
        sample.value
        for metric in parts_of(request).metrics.task_failures.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )
    detail = f"{plural(int(failures), 'restart')} since the start"
    return Check("Background work runs without restarts", ok=not failures, detail=detail)


def _sources(request: Request) -> tuple[Check, ...]:
    told = {name: state() for name, state in parts_of(request).sources.items()}
    return tuple(Check(f"The {name} answers", ok=state.ok, detail=state.detail) for name, state in told.items())


def settings_shown(settings: Settings) -> tuple[tuple[str, str, str], ...]:
    """Name, value and description of each setting. Of a secret only whether it is set."""
    return tuple(
        (f"{PREFIX}{name.upper()}", _shown(getattr(settings, name)), field.description or "")
        for name, field in Settings.model_fields.items()
    )


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "set, not shown" if value.get_secret_value() else "not set"
    return str(value)
