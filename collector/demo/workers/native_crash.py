"""Native code in the handler writes where it may not."""

from __future__ import annotations

import ctypes
import faulthandler
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()
faulthandler.enable()


def handler(job: dict[str, Any]) -> dict[str, Any]:
    print("calling the kernel", flush=True)
    ctypes.string_at(0)
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
