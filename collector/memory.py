"""Give memory back. glibc keeps what was freed, for each thread apart: under load that is more than what is in use."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # names of glibc's mallopt
ARENAS: Final = 2
LARGE_BYTES: Final = 1 << 20
"""Larger blocks, bodies of requests mostly, come from the system and go back there when they are freed."""


def keep_little() -> None:
    """For this process from here on; elsewhere than on glibc nothing happens."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        libc.mallopt(_ARENA_MAX, ARENAS)
        libc.mallopt(_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(_TRIM_THRESHOLD, LARGE_BYTES)
        libc.malloc_trim(0)
