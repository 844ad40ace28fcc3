"""Imports a package that the image does not have: the process ends before it ever asks for work."""

from __future__ import annotations

import importlib
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

print("importing attention kernels", flush=True)
kernels = importlib.import_module("flash_attention_kernels")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": kernels.run(job["input"])}


runpod.serverless.start({"handler": handler})
