"""Loads its model in a prestart hook without a bound, for as long as the demo wants."""

from __future__ import annotations

import os
from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


@sdk_exporter.prestart
def load_model() -> None:
    print(f"loading weights: shard 1 of 2, in process {os.getpid()}", flush=True)
    model.wait_for("model-00002-of-00002.safetensors")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
