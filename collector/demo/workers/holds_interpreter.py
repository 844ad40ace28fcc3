"""Native code in the handler never gives Python back: no thread and no event loop of this process moves any more."""

from __future__ import annotations

import ctypes
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

LONG_SECONDS = 3_600


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    print("calling the kernel", flush=True)
    ctypes.PyDLL(None).sleep(LONG_SECONDS)  # unlike CDLL, it keeps the interpreter's lock
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
