"""Downloads its model while it is imported, and the download never ends: the worker never asks for work."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()

print("downloading model.safetensors at import time", flush=True)
weights = model.wait_for("model.safetensors")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": weights.name}


runpod.serverless.start({"handler": handler})
