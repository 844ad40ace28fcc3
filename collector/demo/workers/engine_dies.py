"""Hands its requests to an engine, and waits for the answer of one that has died."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

engine = subprocess.Popen([sys.executable, "-m", "collector.demo.workers.engine"])


async def handler(job: dict[str, Any]) -> dict[str, Any]:
    print("asking the engine", flush=True)
    await asyncio.Event().wait()  # its answer
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
