"""The plug board: which routes make which server. Imports everything; only the command line imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, FastAPI

from dashboard.pages.errors import error_page
from dashboard.routes import router as pages

from . import api, health, ingest, metrics
from .app import create_app
from .digest import Digest
from .settings import Settings

EVERYWHERE: Final[Sequence[APIRouter]] = (health.router, metrics.router)


def server(settings: Settings) -> FastAPI:
    """Collector and dashboard in one process."""
    digest = Digest()
    return create_app(
        settings,
        [*EVERYWHERE, ingest.router, api.router, pages],
        on_stored=digest.touched,
        tasks=[digest.keep_digesting],
        error_page=error_page,
    )


def collector_only(settings: Settings) -> FastAPI:
    """Takes spans in and works out verdicts; no pages."""
    digest = Digest()
    return create_app(
        settings,
        [*EVERYWHERE, ingest.router, api.router],
        on_stored=digest.touched,
        tasks=[digest.keep_digesting],
    )


def dashboard_only(settings: Settings) -> FastAPI:
    """Pages and API over a store that others fill."""
    return create_app(settings, [*EVERYWHERE, api.router, pages], error_page=error_page)
