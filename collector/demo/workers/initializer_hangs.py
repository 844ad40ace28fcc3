"""An initializer that waits for a download that never ends, under a bound of two seconds."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


def load_model() -> None:
    print("fetching model.safetensors: 7% of 13.5 GB", flush=True)
    model.wait_for("model.safetensors")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler, "initializer": load_model, "init_timeout": 2.0})
