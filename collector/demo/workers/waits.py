"""An async handler that waits for a picture to be there."""

from __future__ import annotations

import asyncio
from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    print("step 1 of 1", flush=True)
    while not (model.MODELS / "picture.png").exists():  # noqa: ASYNC110 (a file rings no bell)
        await asyncio.sleep(model.LOOK_SECONDS)
    return {"image": "a picture"}


runpod.serverless.start({"handler": handler})
