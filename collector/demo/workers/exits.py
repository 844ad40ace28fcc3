"""Ends the whole process where it should raise."""

from __future__ import annotations

import sys
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    if "negative_prompt" not in job["input"]:
        print("negative_prompt is needed, giving up", file=sys.stderr, flush=True)
        sys.exit(3)
    return {"text": job["input"]["negative_prompt"]}


runpod.serverless.start({"handler": handler})
