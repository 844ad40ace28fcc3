"""Returns what JSON does not know."""

from __future__ import annotations

from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()


class Picture:
    """A picture as the library gives it, not yet bytes."""


def handler(job: dict[str, Any]) -> dict[str, Any]:
    form = job["input"].get("form")
    if form == "circular":
        tree: dict[str, Any] = {"prompt": job["input"]["prompt"]}
        tree["parent"] = tree
        return tree
    if form == "half a character":
        return {"text": "\ud83d"}
    if form == "text":
        return {"text": "a picture"}
    return {"image": Picture()}


runpod.serverless.start({"handler": handler})
