"""Streams tokens, and breaks after the third."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


def handler(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for token in ("The", "answer", "is"):
        print(f"token {token!r}", flush=True)
        yield {"token": token}
    raise RuntimeError(model.DEVICE_ASSERT)


runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
