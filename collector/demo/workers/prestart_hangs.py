"""Fetches weights that never come, under a bound of three seconds for the whole prestart phase."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


@sdk_exporter.prestart
def warm_cache() -> None:
    print("cache directory is ready", flush=True)
    model.wait_for("cache")


@sdk_exporter.prestart
def fetch_weights() -> None:
    print("fetching model.safetensors: 41% of 13.5 GB", flush=True)
    model.wait_for("model.safetensors")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler, "prestart_timeout": 3.0})
