"""Separate beats for process, loop and progress, stored in the shared page: 0.2 us each, no system call.

A daemon thread beats for the process and, five times a second, lets others look at their clocks (`every_tick`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sdk_exporter import events
from sdk_exporter.guard import never_raise
from sdk_exporter.spool import Page

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

BEAT_SECONDS: Final = 0.2

every_tick: list[Callable[[], None]] = [events.report_losses]
"""Called on the beat thread. Each must be quick and guard itself."""

_thread: threading.Thread | None = None


def start() -> None:
    """Beat until the process ends, or a fork leaves us without the thread. A second call does nothing."""
    global _thread
    if _thread is not None and _thread.is_alive():
        return
    _thread = threading.Thread(target=_beat, args=(os.getpid(),), name="stallscope-beat", daemon=True)
    _thread.start()


def _beat(pid: int) -> None:
    while events.enabled() and os.getpid() == pid:
        tick()
        time.sleep(BEAT_SECONDS)


@never_raise
def tick() -> None:
    """One beat."""
    if events.page is not None:
        events.page.set(Page.PROCESS_BEAT, time.monotonic_ns())
    for action in every_tick:
        action()


class LoopBeat:
    """The event loop's own beat: a timer that arms itself again. A blocked loop stops beating, a busy one does not."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._running = True
        self._beat()

    def _beat(self) -> None:
        if self._running and events.page is not None:
            events.page.set(Page.LOOP_BEAT, time.monotonic_ns())
            self._loop.call_later(BEAT_SECONDS, self._beat)

    @never_raise
    def stop(self) -> None:
        """The loop ends on purpose: 0 says that no loop runs."""
        self._running = False
        if events.page is not None:
            events.page.set(Page.LOOP_BEAT, 0)
