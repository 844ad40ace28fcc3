"""`python -m sdk_exporter.recorder`: the attached form, started by `instrument()` where there is no launcher.

Not for people: its descriptors come in STALLSCOPE_HANDOVER. It reads the worker's records until the worker has ended,
hands them on and leaves, two seconds later at most. It never touches the worker's output and promises no
`worker.death`: where the worker is a container's first process, the kernel ends us with it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from sdk_exporter import spool
from sdk_exporter.recorder import forget_working_folder, kernel


def main() -> int:
    """0 when the worker has ended, 2 without a hand-over."""
    handed_over = _handover(os.environ)
    if handed_over is None:
        print(
            f"stallscope: {spool.ENVIRONMENT_KEY} names no files of ours; `instrument()` starts this", file=sys.stderr
        )
        return 2
    events, wake, page, worker = handed_over
    is_alive = os.getppid() == worker
    if os.fork():
        # Not a child of the worker: one that waits for all its children would wait for us.
        return 0
    _stand_aside({events, wake, page})
    # Deliberate: what these load must not be looked for in the user's working folder.
    from sdk_exporter.recorder.around import Attached
    from sdk_exporter.recorder.loop import Recorder
    from sdk_exporter.recorder.settings import RecorderSettings

    settings = RecorderSettings.from_env(os.environ)
    shared = spool.Page(page)
    Recorder(shared, events, wake, Attached(worker if is_alive else None, shared, events), settings, None).run()
    return 0


def _handover(environ: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """Event file, wake (-1: none), page and the worker's pid."""
    try:
        events, wake, page, device, inode, worker = map(int, environ[spool.ENVIRONMENT_KEY].split(","))
        status = os.fstat(events)
        os.fstat(page)
    except (KeyError, ValueError, OSError):
        return None
    return (events, wake, page, worker) if (status.st_dev, status.st_ino) == (device, inode) else None


def _stand_aside(ours: set[int]) -> None:
    """Out of the worker's way: its signals are not for us, and whoever waits for the end of a pipe or a port that we
    inherited by accident should not wait for us."""
    kernel.set_process_name("stallscope-rec")
    try:
        os.setsid()
    except PermissionError:
        pass  # started as the leader of a session already
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    forget_working_folder()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in ours:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the listing itself


if __name__ == "__main__":
    code = main()
    os._exit(code)  # a delivery that hangs must not hold up the end
