"""Prestart that fails in the way that the environment names, under the bound that it names."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

HOW = os.environ["DEMO_START"]
BOUND = os.environ.get("DEMO_BOUND")


def connect() -> None:
    raise TimeoutError("the vector store did not answer within 5 s")


async def warm_up() -> None:
    print("warming up", flush=True)
    if HOW == "raises":
        raise FileNotFoundError(2, "No such file or directory", "/models/tokenizer.json")
    if HOW == "own timeout":
        connect()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if HOW != "deaf":
                raise
            print("interrupted, going on", flush=True)


def handler(job: dict[str, Any]) -> dict[str, Any]:
    return {"text": "never reached"}


config: dict[str, Any] = {"handler": handler}
if HOW == "initializer's own timeout":
    config["initializer"] = connect
else:
    sdk_exporter.prestart(warm_up)
if BOUND is not None:
    config["prestart_timeout"] = float(BOUND)
runpod.serverless.start(config)
