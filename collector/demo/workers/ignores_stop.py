"""Goes on whatever happens: a cancellation is caught and forgotten."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

STEPS = 600


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    for step in range(STEPS):
        print(f"step {step + 1} of {STEPS} in process {os.getpid()}", flush=True)
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            print("interrupted, going on", flush=True)
    return {"image": "a picture"}


runpod.serverless.start({"handler": handler})
