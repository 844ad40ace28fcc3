"""How the worker ended, and what can be known about it afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator


def exit_facts(status: int) -> tuple[int | None, str | None]:
    """(exit code, signal name) of a raw wait status; one of both is None."""
    if os.WIFSIGNALED(status):
        return None, signal_name(os.WTERMSIG(status))
    return os.WEXITSTATUS(status), None


def shell_code(status: int) -> int:
    """What a shell would report: the code, or 128 + the signal's number."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def oom_kills() -> int | None:
    """How many processes of our own memory cgroup the kernel has killed for want of memory, None where unknown.

    cgroup v2 keeps it in `memory.events`, v1 in `memory.oom_control`.
    """
    for path in _counter_paths():
        try:
            with open(path, encoding="ascii") as file:
                for line in file:
                    key, _, value = line.partition(" ")
                    if key == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue
    return None


def _counter_paths() -> Iterator[str]:
    """Our own path first: outside a cgroup namespace the root of the mount is somebody else's counter."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        lines = []
    for parts in lines:
        if len(parts) != 3 or parts[2] == "/":
            continue
        if parts[1] == "":
            yield f"/sys/fs/cgroup{parts[2]}/memory.events"
        elif "memory" in parts[1].split(","):
            yield f"/sys/fs/cgroup/memory{parts[2]}/memory.oom_control"
    yield "/sys/fs/cgroup/memory.events"
    yield "/sys/fs/cgroup/memory/memory.oom_control"
