"""Renders what it is asked for."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    print("rendering", flush=True)
    return {"image": f"a picture of {job['input']['prompt']}"}


runpod.serverless.start({"handler": handler})
