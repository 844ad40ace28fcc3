"""Before Python 3.11 a re-raised exception gets back the frame that it was re-raised from, whatever its trace was set
to. The SDK sends its traces to the caller of the job, so there the SDK's formatting leaves our frames out.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

from sdk_exporter.hooks import handler


class Traces:
    """Stands for the module `traceback` in the SDK's module that formats what a handler raised."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def format_exc(self, limit: int | None = None, chain: bool = True) -> str:
        kind, error, trace = sys.exc_info()
        return "".join(traceback.format_exception(kind, error, without_ours(trace), limit, chain))


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The same trace without frames of `hooks.handler`."""
    kept = []
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != handler.__file__:
            kept.append(trace)
        trace = trace.tb_next
    for entry in reversed(kept):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trace
