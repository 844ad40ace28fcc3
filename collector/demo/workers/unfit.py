"""Checks the GPU before it takes work, and finds none."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


@runpod.serverless.register_fitness_check  # type: ignore[untyped-decorator, unused-ignore]
def gpu_is_there() -> None:
    raise RuntimeError("No CUDA GPUs are available")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
