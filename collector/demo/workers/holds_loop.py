"""Prestart that takes the event loop away, in Python code or in native code that no signal ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

IS_NATIVE = os.environ["DEMO_HOLD"] == "native code"
MODELS = Path(os.environ["MODEL_DIR"])


def compile_kernels() -> None:
    print("compiling kernels", flush=True)
    if not IS_NATIVE:
        threading.Event().wait()
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):  # the second waits for the first, for ever
        ctypes.CDLL(None).pthread_mutex_lock(mutex)


@sdk_exporter.prestart
async def warm_up() -> None:
    while not (MODELS / "polled").exists():  # noqa: ASYNC110 (another process makes it)
        await asyncio.sleep(0.05)
    if IS_NATIVE:
        asyncio.get_running_loop().call_soon(compile_kernels)
    else:
        compile_kernels()


@sdk_exporter.prestart
def load_tokenizer() -> None:
    while not (MODELS / "tokenizer.json").exists():
        time.sleep(0.05)
    raise FileNotFoundError(2, "No such file or directory", "/models/tokenizer.json")


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


runpod.serverless.start({"handler": handler})
