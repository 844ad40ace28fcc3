"""The plug board: which routes make which server. Imports everything; only the command line imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, FastAPI

from dashboard import routes as pages
from dashboard.pages.errors import error_page

from . import api, health, ingest, metrics
from .app import Edge, create_app
from .digest import Digest
from .settings import Settings
from .watch.loop import Watch

EVERYWHERE: Final[Sequence[APIRouter]] = (health.router, metrics.router)


def server(settings: Settings, edges: Sequence[Edge] = ()) -> FastAPI:
    """Collector and dashboard in one process."""
    digest, watch = Digest(), Watch.of(settings)
    app = create_app(
        settings,
        [*EVERYWHERE, ingest.router, api.router, pages.router],
        on_stored=digest.touched,
        tasks=[digest.keep_digesting, watch.keep_watching],
        edges=edges,
        error_page=error_page,
    )
    watch.metrics.register(app.state.parts.metrics.registry)
    return app


def collector_only(settings: Settings, edges: Sequence[Edge] = ()) -> FastAPI:
    """Takes spans in and works out verdicts. Writes to the store; no pages and no API."""
    digest, watch = Digest(), Watch.of(settings)
    app = create_app(
        settings,
        [*EVERYWHERE, ingest.router],
        on_stored=digest.touched,
        tasks=[digest.keep_digesting, watch.keep_watching],
        edges=edges,
    )
    watch.metrics.register(app.state.parts.metrics.registry)
    return app


def dashboard_only(settings: Settings) -> FastAPI:
    """Pages and API over a store that collectors fill. Only reads from it."""
    return create_app(settings, [*EVERYWHERE, api.router, pages.router], error_page=error_page)
