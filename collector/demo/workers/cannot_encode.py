"""Returns an object that JSON does not know."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


class Picture:
    """A picture as the library gives it, not yet bytes."""


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"image": Picture()}


runpod.serverless.start({"handler": handler})
