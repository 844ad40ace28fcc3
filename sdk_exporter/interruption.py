"""To get a hook out of the event loop's way: an async hook that blocks it is interrupted where it stands.

Only a signal reaches a thread that waits in `time.sleep`, a lock or a socket; its handler runs in the waiting frame and
raises there. Native code that never comes back to Python is out of reach, and stays so.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from types import FrameType
from typing import Any, Final

SIGNAL: Final = getattr(signal, "SIGURG", None)
"""Ignored unless somebody asks for it: a late one harms nobody."""


class Interruption:
    """A handler for SIGNAL, unless the worker has one of its own. To be made and put away on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._thread = loop, threading.get_ident()
        self._task: asyncio.Task[Any] | None = None
        self._is_set = False
        # Handlers run in the main thread, and only there can they be set.
        is_main = threading.current_thread() is threading.main_thread()
        if SIGNAL is not None and is_main and signal.getsignal(SIGNAL) is signal.SIG_DFL:
            signal.signal(SIGNAL, self._handle)
            self._is_set = True

    def send(self, task: asyncio.Task[Any] | None) -> None:
        """From another thread: cancel `task` in the middle of the step that it is making, if it is making one."""
        if self._is_set and task is not None and SIGNAL is not None:
            self._task = task
            signal.pthread_kill(self._thread, SIGNAL)

    def put_away(self) -> None:
        if self._is_set and SIGNAL is not None and signal.getsignal(SIGNAL) == self._handle:
            signal.signal(SIGNAL, signal.SIG_DFL)
        self._is_set = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._task is not None and asyncio.current_task(self._loop) is self._task:
            raise asyncio.CancelledError
