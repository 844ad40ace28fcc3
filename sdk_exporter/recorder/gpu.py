"""GPU facts by `nvidia-smi`, asked in a thread of the recorder: a driver that hangs holds up nothing."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from typing import Any, Final

from sdk_exporter.contract import Key

_AGAIN_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 10.0
_FIELDS: Final = "uuid,name,driver_version,memory.used"


class Gpu:
    """The newest answer; empty where there is no GPU or none came."""

    def __init__(self) -> None:
        self._command = shutil.which("nvidia-smi")
        self._next = 0.0
        self._asking: threading.Thread | None = None
        self.facts: dict[str, Any] = {}
        """For the resource: ids (comma-separated), model and driver of the first."""
        self.memory_used_bytes: int | None = None

    def look(self) -> None:
        """Asks anew when it is time; never waits. One that hangs (a process in D state cannot be killed) is not asked
        again beside it."""
        if self._command is None or time.monotonic() < self._next or (self._asking and self._asking.is_alive()):
            return
        self._next = time.monotonic() + _AGAIN_SECONDS
        self._asking = threading.Thread(target=self._ask, args=(self._command,), name="stallscope-gpu", daemon=True)
        self._asking.start()

    def _ask(self, command: str) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - found on the PATH, like the worker's own call would be
                [command, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"],
                capture_output=True,
                timeout=_PATIENCE_SECONDS,
                check=False,
                text=True,
                errors="replace",
            )
        except (OSError, subprocess.SubprocessError):
            self.memory_used_bytes = None
            return
        rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
        self._take([row for row in rows if len(row) == 4] if done.returncode == 0 else [])

    def _take(self, rows: list[list[str]]) -> None:
        used = [int(row[3]) for row in rows if row[3].isdigit()]  # "[N/A]" inside a MIG slice
        self.memory_used_bytes = sum(used) << 20 if used else None  # reported in MiB
        if rows:
            self.facts = {
                Key.HW_ID: ",".join(row[0] for row in rows),
                Key.HW_MODEL: rows[0][1],
                Key.HW_DRIVER_VERSION: rows[0][2],
            }
