"""A sync handler: while it runs, the worker's loop cannot take a stop signal in."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    print("step 1 of 1", flush=True)
    model.wait_for("picture.png")
    return {"image": "a picture that nobody wants any more"}


runpod.serverless.start({"handler": handler})
