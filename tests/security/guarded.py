"""A server of several tenants, as an attacker finds it: its tokens, its routes, and which token each asks for."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import Route

from collector import auth
from sdk_exporter.contract import Key

TENANTS: Final = ("victim", "attacker", "twin")
KINDS: Final = ("ingest", "read", "operate", "admin")

TOKEN: Final = {(tenant, kind): f"{tenant}-{kind}-{secrets.token_hex(8)}" for tenant in TENANTS for kind in KINDS}
OPENED_BY: Final = {
    auth.ingest_sender: {"ingest"},
    auth.read_tenant: {"read", "operate", "admin"},
    auth.operate_tenant: {"operate", "admin"},
    auth.admin_tenant: {"admin"},
    auth.metrics_reader: set(),
}
"""Which kinds of token each guard lets in."""


def token_settings() -> dict[str, str]:
    """`ingest_tokens` and the like, with a token of each kind for each tenant."""
    return {f"{kind}_tokens": ",".join(f"{tenant}:{TOKEN[tenant, kind]}" for tenant in TENANTS) for kind in KINDS}


def bearer(tenant: str, kind: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {TOKEN[tenant, kind]}"}


def export_of(
    *spans: tuple[str, dict[str, str], bool], worker: str, endpoint: str, boot: str = "b" * 32
) -> dict[str, Any]:
    """The OTLP/JSON body of one export; a span is told by its name, its attributes and whether it failed."""
    told = {Key.SERVICE_INSTANCE_ID: worker, Key.FAAS_NAME: endpoint, Key.BOOT_ID: boot}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _pairs(told)}, "scopeSpans": [{"spans": [_span(*one) for one in spans]}]}
        ]
    }


def _span(name: str, attributes: dict[str, str], failed: bool) -> dict[str, Any]:
    now = str(time.time_ns())
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": name,
        "startTimeUnixNano": now,
        "endTimeUnixNano": now,
        "status": {"code": 2} if failed else {},
        "attributes": _pairs(attributes),
    }


def _pairs(attributes: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


def routes_of(app: FastAPI) -> list[Route]:
    """Every route there is, also those of routers inside routers."""
    return list(_walked(app.routes))


def _walked(routes: Iterable[Any]) -> Iterator[Route]:
    for route in routes:
        if isinstance(route, Route):
            yield route
        elif inner := getattr(route, "original_router", route):
            yield from _walked(getattr(inner, "routes", ()))


def guard_of(route: Route) -> Callable[..., Any] | None:
    """Which guard the route has; None: none. OTLP's routes call theirs themselves."""
    if not isinstance(route, APIRoute):
        return auth.ingest_sender if route.path.startswith("/v1/") else None
    guards = [call for call in _calls(route.dependant) if call in OPENED_BY]
    assert len(guards) <= 1, f"{route.path} asks for two tokens"
    return guards[0] if guards else None


def _calls(dependant: Dependant) -> Iterator[Callable[..., Any]]:
    for one in dependant.dependencies:
        if one.call is not None:
            yield one.call
        yield from _calls(one)
