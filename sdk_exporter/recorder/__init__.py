"""The other process: outlives the worker, keeps the tail, and alone speaks OTLP."""

from __future__ import annotations

import os
import sys


def forget_working_folder() -> None:
    """No module is looked for there any more: `python -m` puts it first, and a user's own `requests.py` in there is not
    what OpenTelemetry wants."""
    here = os.getcwd()
    sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]
