"""Stands for an engine that a worker starts as a process of its own: it dies in the middle of its work.

It says why first, and is then killed, as the kernel's memory killer does it: no exit code, no traceback of the worker.
"""

from __future__ import annotations

import os
import signal
import sys

from collector.demo.workers import model

print("engine: serving", flush=True)
model.wait_for("long-prompt")
print(f"engine: torch.OutOfMemoryError: {model.CUDA_OUT_OF_MEMORY}", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
