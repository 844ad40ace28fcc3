"""The platform stand-in, with polls held so briefly that workers end quickly; and records of this process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sink import Sink, running_sink

from collector.demo.platform import Platform, running_platform
from sdk_exporter import events, ledger, spool
from sdk_exporter.events import Boot

HOLD_SECONDS = 1.0


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with running_platform(hold_seconds=HOLD_SECONDS, stop_hold_seconds=HOLD_SECONDS) as running:
        yield running


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with running_sink() as running:
        yield running


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Start telling into a file; the answer reads it."""
    descriptor = os.open(tmp_path / "events", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    page = os.open(tmp_path / "page", os.O_CREAT | os.O_RDWR)
    os.ftruncate(page, spool.PAGE_BYTES)
    shared = spool.Page(page)
    events.start(spool.Writer(descriptor, shared), shared, Boot("b" * 32, "a" * 32, "c" * 16, 1))

    def read() -> list[dict[str, Any]]:
        return spool.decode((tmp_path / "events").read_bytes(), at_end=True)[0]

    try:
        yield read
    finally:
        events.stop()
        ledger.in_hand.clear()
        os.close(descriptor)
        os.close(page)
