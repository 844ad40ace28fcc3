"""Expects a key that this request does not have."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    size = job["input"]["image_size"]
    return {"image": f"{size} x {size}"}


runpod.serverless.start({"handler": handler})
