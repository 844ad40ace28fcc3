"""Loads its model in a prestart hook, and the model does not fit the GPU."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


@sdk_exporter.prestart
def load_model() -> None:
    print("loading weights: shard 1 of 2")
    model.wait_for("model-00002-of-00002.safetensors")
    print("loading weights: shard 2 of 2")
    print("moving the model to cuda:0 in float16", flush=True)
    raise model.OutOfMemoryError(model.CUDA_OUT_OF_MEMORY)


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
