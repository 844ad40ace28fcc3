"""Loads a gated model in the initializer, without having accepted its licence."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


def load_model() -> None:
    print("resolving example-org/large-model", flush=True)
    model.wait_for("config.json")
    raise model.GatedRepoError(model.GATED_REPOSITORY)


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler, "initializer": load_model})
