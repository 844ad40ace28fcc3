"""Raises CancelledError though nobody asked for a stop; the worker SDK takes that for one and sends nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    step = asyncio.ensure_future(asyncio.sleep(600))
    step.cancel("the step's own deadline is over")
    await step
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
