"""Takes up to three requests at a time, in one batch."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


def three(current: int) -> int:
    return 3


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"image": f"a picture of {job['input']['prompt']}"}


runpod.serverless.start({"handler": handler, "concurrency_modifier": three})
