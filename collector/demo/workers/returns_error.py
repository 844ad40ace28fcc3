"""Does not raise: returns a dict with `error`, which the platform counts as failed."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"error": "[Errno 28] No space left on device: '/outputs/picture.png'"}


runpod.serverless.start({"handler": handler})
