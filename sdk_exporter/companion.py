"""The recorder of the one-line form: a process beside the worker, started again when it is gone.

It is no child of the worker: a program that waits for all its children would wait for ever, and one that ends all of
them would end it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from sdk_exporter import spool
from sdk_exporter.events import Boot

BOOT_ENVIRONMENT_KEY: Final = "STALLSCOPE_BOOT"
RECORDER_MODULE: Final = "sdk_exporter.recorder"
FREE_BELOW: Final = 200
"""Our descriptors lie above: programs believe that 3 to 9 are free."""
SILENT_LOOKS: Final = 50
"""Looks (five a second) without a sign of life, after which a successor is started; twice as many for each next one.
Counted in looks and not in seconds: a container that was frozen must not take its recorder for dead."""
MOST_STARTS: Final = 5


class CannotStart(Exception):
    """This process has no interpreter to start the recorder with."""


class Companion:
    """Memory for the records, a page for the beats, and the process that reads them."""

    def __init__(self, life: Boot) -> None:
        """Raises OSError, AttributeError (no memfd here), NotImplementedError, CannotStart."""
        self._interpreter = _interpreter()
        self._life, self._owner = life, os.getpid()
        events_file = os.memfd_create("stallscope-events", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        spool.seal(events_file)
        self.events_file = _out_of_the_way(events_file, append=True)
        self._page_file = _out_of_the_way(os.memfd_create("stallscope-page", os.MFD_CLOEXEC))
        os.ftruncate(self._page_file, spool.PAGE_BYTES)
        self.page = spool.Page(self._page_file)
        self._identity = os.fstat(self.events_file)
        self._first: int | None = None
        self._starts = self._silent = self._last_sign = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self._first = self._spawn()

    def _spawn(self) -> int:
        """Pid of a process that starts the recorder and ends at once. `posix_spawn`: no copy of the worker's memory,
        and no lock held by one of its threads."""
        environ = _recorder_environment(os.environ)
        mark = f"{self._identity.st_dev},{self._identity.st_ino},{self._owner}"
        environ[spool.ENVIRONMENT_KEY] = f"{self.events_file},-1,{self._page_file},{mark}"
        environ[BOOT_ENVIRONMENT_KEY] = self._life.text()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            return os.posix_spawn(
                self._interpreter,
                [self._interpreter, "-m", RECORDER_MODULE],
                environ,
                file_actions=[
                    # The worker's own output must end with the worker: whoever reads it waits for its end.
                    *((os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)),
                    # A descriptor duplicated onto itself is inherited; nobody else gets it.
                    (os.POSIX_SPAWN_DUP2, self.events_file, self.events_file),
                    (os.POSIX_SPAWN_DUP2, self._page_file, self._page_file),
                ],
                setsid=True,
            )
        finally:
            os.close(null)

    def look(self) -> bool:
        """On the beat thread. False when no recorder can live here."""
        if os.getpid() != self._owner:
            return True
        self._reap()
        sign = self.page.get(spool.Page.RECORDER_BEAT)
        if sign != self._last_sign:
            self._last_sign, self._silent = sign, 0
            return True
        self._silent += 1
        if self._silent < SILENT_LOOKS << (self._starts - 1):
            return True
        if self._starts >= MOST_STARTS or not self._is_ours():
            return False
        self._silent = 0
        self._start()
        return True

    def _reap(self) -> None:
        """What has started the recorder must not stay as a zombie of the worker."""
        if self._first is None:
            return
        try:
            ended, _ = os.waitpid(self._first, os.WNOHANG)
        except ChildProcessError:
            ended = self._first  # the worker was faster
        if ended:
            self._first = None

    def _is_ours(self) -> bool:
        """Unless the worker has closed all its descriptors."""
        try:
            status = os.fstat(self.events_file)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._identity.st_dev, self._identity.st_ino)


def _interpreter() -> str:
    """`sys.executable` may be the user's own program (frozen, embedded, a server with Python inside): started with our
    arguments it would run a second worker."""
    name = os.path.basename(sys.executable or "").lstrip(".")
    if getattr(sys, "frozen", False) or not name.startswith(("python", "pypy")):
        raise CannotStart(sys.executable)
    return sys.executable


def _out_of_the_way(descriptor: int, *, append: bool = False) -> int:
    """The same open file under a high number, where the limit allows it; closed in programs that the worker starts."""
    import fcntl  # only this form needs it

    if append:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FREE_BELOW)
    except OSError:
        return descriptor  # a low `ulimit -n`
    os.close(descriptor)
    return moved


def _recorder_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what would instrument the recorder itself."""
    kept = dict(environ)
    paths = kept.get("PYTHONPATH", "").split(os.pathsep)
    clean = [
        path for path in paths if not path.rstrip("/").endswith("opentelemetry/instrumentation/auto_instrumentation")
    ]
    if clean != paths:
        kept["PYTHONPATH"] = os.pathsep.join(clean)
    return kept
