"""Catches the cancellation and returns what it has, as if nobody had asked it to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

STEPS = 600


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    step = 0
    try:
        for step in range(STEPS):
            print(f"step {step + 1} of {STEPS}", flush=True)
            await asyncio.sleep(1)
    except asyncio.CancelledError:
        print("keeping what is there", flush=True)
    return {"image": f"a picture after {step + 1} steps"}


runpod.serverless.start({"handler": handler})
