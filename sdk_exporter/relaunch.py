"""`instrument(relaunch=True)`: the program again, in this process's place, under the launcher.

A program that may change its first lines but not its start command gets all that the launcher knows. The process keeps
its number, process 1 of a container included: the launcher takes it over and runs the program below it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from sdk_exporter import spool
from sdk_exporter.settings import warn_once

MARK: Final = "STALLSCOPE_RELAUNCHED"
"""Set on the way through the launcher. A program that meets it has been there: where the launcher could do nothing and
ran it unobserved, it would go round for ever."""
_HEAVY: Final = ("torch", "tensorflow", "jax", "vllm", "runpod")
_TEST_RUNNERS: Final = ("pytest", "_pytest", "unittest.main")
_DEBUGGERS: Final = ("pdb", "bdb", "pydevd", "debugpy")


def relaunch(caller: str) -> None:
    """Does not return where it succeeds. `caller`: `__name__` of the module that asks."""
    if os.environ.pop(MARK, None) is not None or spool.ENVIRONMENT_KEY in os.environ:
        return
    reason = _obstacle(caller)
    if reason is not None:
        warn_once(f"not relaunched under the launcher: {reason}")
        return
    # Whatever was printed so far would be lost with this program's buffers.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    program = [sys.executable, "-m", "sdk_exporter", "--", sys.executable, *sys.orig_argv[1:]]
    try:
        os.execve(sys.executable, program, {**os.environ, MARK: "1"})  # noqa: S606 - what we were asked for
    except OSError as error:
        warn_once(f"not relaunched under the launcher: {error}")


def _obstacle(caller: str) -> str | None:
    """Why the program cannot be started again as it was, or would not be the same."""
    threading: Any = sys.modules.get("threading")
    process: Any = sys.modules.get("multiprocessing.process")
    loaded = [name for name in _HEAVY if name in sys.modules]
    main = sys.modules.get("__main__")
    if sys.platform != "linux":
        return f"it needs Linux, this is {sys.platform}"
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "OTEL_SDK_DISABLED is true"
    if caller != "__main__":
        return f"{caller} is not the program itself"
    if getattr(main, "__file__", None) is None or sys.flags.interactive or hasattr(sys, "ps1"):
        return "the program is no file (`-c`, stdin or interactive)"
    if not sys.executable or getattr(sys, "frozen", False):
        return "there is no interpreter to start it with"
    if process is not None and process.parent_process() is not None:
        return "this is a child of multiprocessing"
    if sys.gettrace() is not None or any(name in sys.modules for name in (*_DEBUGGERS, *_TEST_RUNNERS)):
        return "a debugger or a test runner is there"
    if loaded:
        return f"{loaded[0]} is loaded already: make it the program's first lines"
    if threading is not None and threading.active_count() > 1:
        return "other threads run already: make it the program's first lines"
    return None
