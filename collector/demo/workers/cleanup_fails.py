"""Lets itself be stopped, and breaks while it tidies up."""

from __future__ import annotations

import asyncio
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

STEPS = 600


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    try:
        for step in range(STEPS):
            print(f"step {step + 1} of {STEPS}", flush=True)
            await asyncio.sleep(1)
    finally:
        raise FileNotFoundError("/outputs/half-done.png")


runpod.serverless.start({"handler": handler})
