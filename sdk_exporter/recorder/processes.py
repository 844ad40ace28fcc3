"""What /proc tells about the worker and its descendants. Everything here may be gone between two looks."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from sdk_exporter import bounds
from sdk_exporter.recorder import kernel

_ARGUMENTS_BYTES = 512


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc/PID/stat."""

    pid: int
    parent: int
    state: str
    started_ticks: int
    rss_pages: int
    exit_status: int | None
    """Raw wait status; known only of a zombie of our own user."""


def read_process(pid: int) -> Process | None:
    """None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        state = fields[0].decode()
        status = int(fields[49]) if state == "Z" and len(fields) > 49 else None
        return Process(pid, int(fields[1]), state, int(fields[19]), int(fields[21]), status)
    except (OSError, IndexError, ValueError):
        return None


def command_of(pid: int) -> str | None:
    """Its arguments, joined by blanks."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read(_ARGUMENTS_BYTES + 1)
    except OSError:
        return None
    if len(raw) > _ARGUMENTS_BYTES:  # an argument that is cut may be half a secret
        raw = raw[:_ARGUMENTS_BYTES].rpartition(b"\0")[0] + f" {bounds.CUT_MARK}".encode()
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip() or None


def descendants(root: int) -> list[Process]:
    """All processes below `root`, zombies included, whatever session they moved to."""
    found: list[Process] = []
    waiting = [root]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child.pid)
    return found


def _children(pid: int) -> Iterator[Process]:
    """By the kernel's own list where it has one (CONFIG_PROC_CHILDREN), else by a look at every process."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    pids: list[int] = []
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                pids += map(int, file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{task}"):
                pids = [process.pid for process in _everything() if process.parent == pid]
                break
        except OSError:
            continue
    for child in pids:
        process = read_process(child)
        if process is not None:
            yield process


def _everything() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                yield process


def rss_bytes(pid: int) -> int | None:
    """Resident memory."""
    process = read_process(pid)
    return None if process is None else process.rss_pages * os.sysconf("SC_PAGE_SIZE")


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()  # select() itself knows descriptors below 1024 only
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class Watched:
    """A process whose end is awaited: by pidfd, and by a look at /proc every time where there is none.

    The start time is kept, so that a process that got the number afterwards is not taken for it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seen_at = time.monotonic()
        self._first = read_process(pid)
        self.last_parent = self._first.parent if self._first else 0
        self.descriptor: int | None = None
        try:
            self.descriptor = os.pidfd_open(pid)
        except (AttributeError, OSError):
            pass  # a kernel or sandbox without it, or it is gone already

    def gone(self) -> bool:
        """True once it has ended; a zombie has."""
        now = read_process(self.pid)
        if self.descriptor is not None:  # certain, also without /proc and when the number was given away since
            self.last_parent = now.parent if now else self.last_parent
            return _is_readable(self.descriptor)
        if now is None or (self._first is not None and now.started_ticks != self._first.started_ticks):
            return True
        self.last_parent = now.parent
        return now.state in "ZX"

    def exit_status(self) -> int | None:
        """Raw wait status of one that has ended, also after its parent has reaped it; None where the kernel (before
        6.15) does not tell."""
        return None if self.descriptor is None else kernel.exit_status(self.descriptor)

    def send(self, number: int) -> None:
        """A signal, unless it has ended or is not ours to end."""
        if self.gone():
            return
        try:
            if self.descriptor is not None:
                signal.pidfd_send_signal(self.descriptor, number)
            else:
                os.kill(self.pid, number)
        except OSError:
            pass

    def close(self) -> None:
        """No longer of interest."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
