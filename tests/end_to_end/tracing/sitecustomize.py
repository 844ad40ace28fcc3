"""Put on PYTHONPATH, this notes the first call of each of the project's functions, one file per process.

The folder is named by `PATH_TRACE_FOLDER`, which no part of the product reads; without it nothing is noted.
"""

import os
import sys
import threading

_FOLDER = os.environ.get("PATH_TRACE_FOLDER", "")
_PACKAGES = ("sdk_exporter", "collector", "dashboard")


def _note_first_calls() -> None:
    seen: set[tuple[int, str]] = set()

    def note(frame, event, _argument):  # type: ignore[no-untyped-def]
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _PACKAGES:
            return
        code = frame.f_code
        name = f"{module}.{getattr(code, 'co_qualname', code.co_name)}"
        pid = os.getpid()  # the recorder is a fork: its calls are its own
        if "<" in name or (pid, name) in seen:
            return
        seen.add((pid, name))
        file = os.open(f"{_FOLDER}/{pid}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, f"{name}\n".encode())
        os.close(file)

    threading.setprofile(note)
    sys.setprofile(note)


if _FOLDER:
    _note_first_calls()
