"""Streams tokens as an async or a plain generator, and breaks after the third where the request asks for a fourth."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import runpod

import sdk_exporter

sdk_exporter.instrument()

TOKENS = ("The", "answer", "is")


def tokens(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for token in TOKENS:
        yield {"token": token}
    if job["input"]["tokens"] > len(TOKENS):
        raise IndexError("the sequence has no fourth token")


async def async_tokens(job: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for token in tokens(job):
        yield token


is_async = os.environ["DEMO_GENERATOR"] == "async"
runpod.serverless.start({"handler": async_tokens if is_async else tokens})
