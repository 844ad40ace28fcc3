"""An async handler that waits for a picture to be there, for as many requests at a time as it is told."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()

AT_A_TIME = int(os.environ.get("DEMO_CONCURRENCY", "1"))


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    print(f"step 1 of 1 for {job['input']['prompt']}", flush=True)
    while not (model.MODELS / "picture.png").exists():  # noqa: ASYNC110 (a file rings no bell)
        await asyncio.sleep(model.LOOK_SECONDS)
    return {"image": "a picture"}


def concurrency(current: int) -> int:
    return AT_A_TIME


runpod.serverless.start({"handler": handler, "concurrency_modifier": concurrency})
