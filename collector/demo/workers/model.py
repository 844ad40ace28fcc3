"""The model directory of the workers: a file appears there when its download has ended (the demo decides when)."""

from __future__ import annotations

import os
import time
from pathlib import Path

MODELS = Path(os.environ.get("MODEL_DIR", "/models"))
LOOK_SECONDS = 0.05


def wait_for(name: str) -> Path:
    """The path of a file of the model, once it is there."""
    path = MODELS / name
    while not path.exists():
        time.sleep(LOOK_SECONDS)
    return path


class OutOfMemoryError(RuntimeError):
    """What PyTorch raises when the GPU is full, without PyTorch: same name, same words."""

    __module__ = "torch"


CUDA_OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 1.27 GiB. GPU 0 has a total capacity of 23.52 GiB of which 893.44 MiB is "
    "free. Process 1 has 22.63 GiB memory in use. Of the allocated memory 22.11 GiB is allocated by PyTorch, and "
    "69.53 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
GATED_REPOSITORY = (
    "403 Client Error. (Request ID: Root=1-68e1f0aa-4c1d9b1b0f6f7f0e2b1c2d3e)\n\n"
    "Cannot access gated repo for url "
    "https://huggingface.co/example-org/large-model/resolve/main/config.json.\n"
    "Access to model example-org/large-model is restricted and you are not in the authorized list. "
    "Visit https://huggingface.co/example-org/large-model to ask for access."
)


class GatedRepoError(OSError):
    """What the model hub's client raises when a licence was not accepted."""

    __module__ = "huggingface_hub.errors"


DEVICE_ASSERT = (
    "CUDA error: device-side assert triggered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
