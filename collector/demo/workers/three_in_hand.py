"""Takes three requests at a time; the initializer then finds the disk full."""

from __future__ import annotations

import errno
import os
from typing import Any

import runpod

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()


def unpack_model() -> None:
    print("unpacking model.tar", flush=True)
    model.wait_for("model.tar")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/models/model-00003-of-00004.safetensors")


def three(current: int) -> int:
    return 3


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler, "initializer": unpack_model, "concurrency_modifier": three})
