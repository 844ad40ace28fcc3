"""The platform stand-in, with polls held so briefly that workers end quickly."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from collector.demo.platform import Platform, running_platform

HOLD_SECONDS = 1.0


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with running_platform(hold_seconds=HOLD_SECONDS, stop_hold_seconds=HOLD_SECONDS) as running:
        yield running
