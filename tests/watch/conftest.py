"""A fleet over a fresh store."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from fleet import Fleet

from collector.alerts.rules import load
from collector.clickhouse import Database
from collector.settings import Settings
from collector.watch.loop import Watch


@pytest.fixture
def database_url(embedded_path: Path) -> str:
    """A fresh database on the embedded engine."""
    return f"chdb://{embedded_path}?database=test_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fleet(db: Database, settings: Settings) -> Fleet:
    """A fleet without workers yet."""
    return Fleet(db, settings, Watch(load(None), settle_seconds=0.05))
