"""Takes many steps for one picture, as an async handler that lets itself be stopped."""

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
        await asyncio.sleep(1)
    return {"image": f"a picture of {job['input']['prompt']}"}


runpod.serverless.start({"handler": handler})
