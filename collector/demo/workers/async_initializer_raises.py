"""An async initializer that fails at once, before any request has come."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


async def connect() -> None:
    print("connecting to the vector store", flush=True)
    raise RuntimeError("VECTOR_STORE_URL environment variable is not set")


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler, "initializer": connect})
