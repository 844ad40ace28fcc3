"""Answers one request and asks for a fresh worker, as a handler does that cannot free its memory."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"image": f"a picture of {job['input']['prompt']}"}


runpod.serverless.start({"handler": handler, "refresh_worker": True})
