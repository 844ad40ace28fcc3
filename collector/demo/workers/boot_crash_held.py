"""The script breaks, and a thread that it had started keeps the process."""

from __future__ import annotations

import threading

import sdk_exporter
from collector.demo.workers import model

sdk_exporter.instrument()

threading.Thread(target=model.wait_for, args=("metrics.socket",), name="metrics").start()
print("metrics thread is up", flush=True)

import flash_attention_kernels  # type: ignore[import-not-found] # noqa: E402, F401 - that it is not there is the point
