"""A fleet over a fresh store."""

from __future__ import annotations

import uuid

import pytest
from fleet import Fleet
from parts import server_url

from collector.alerts.rules import load
from collector.clickhouse import Database
from collector.settings import Settings
from collector.watch.loop import Watch


@pytest.fixture(params=["embedded"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh database on the embedded engine, or where a test asks for it on a server."""
    if request.param == "server":
        return server_url(request.getfixturevalue("clickhouse"))
    return f"chdb://{request.getfixturevalue('embedded_path')}?database=test_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fleet(db: Database, settings: Settings) -> Fleet:
    """A fleet without workers yet."""
    return Fleet(db, settings, Watch(load(None), settle_seconds=0.05))
