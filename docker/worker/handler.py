"""A worker as anybody writes it. Only the model's load is given a name and a bound, which is optional."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

MODEL: dict[str, str] = {}


@sdk_exporter.prestart(timeout=120)
def load_model() -> None:
    """Requests that are claimed meanwhile wait for this."""
    print("loading weights")
    MODEL["answer"] = "a lighthouse in the fog"


def handler(job: dict[str, Any]) -> dict[str, Any]:
    """One request."""
    return {"prompt": job["input"].get("prompt"), "image": MODEL["answer"]}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
