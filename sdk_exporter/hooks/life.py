"""The worker's own life, as far as several hooks need it: its loop, and its going down."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from sdk_exporter import events, ledger, supervisor
from sdk_exporter.contract import Key, SpanName
from sdk_exporter.events import Span
from sdk_exporter.guard import never_raise

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


class Worker:
    """What this worker's life consists of."""

    __slots__ = ("config", "is_leaving", "is_shutting_down", "shutdown", "supervisor")

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.supervisor: supervisor.Supervisor | None = None
        self.shutdown: Span | None = None
        self.is_shutting_down = False
        self.is_leaving = False
        """The supervisor ends the process now: what a poll would still bring, nobody could be told about."""


worker = Worker()


def around_shutdown(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.handle_shutdown, the SDK's signal handler: one of ours would be inherited by its heartbeat's fork."""
    _shutdown_begins(args[0] if args else kwargs.get("signum"))
    answer = wrapped(*args, **kwargs)
    _interrupt_prestart()
    return answer


def around_kill(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.kill_worker: after a signal, and for `refresh_worker`, which has none."""
    _shutdown_begins(None)
    return wrapped(*args, **kwargs)


@never_raise
def _shutdown_begins(number: Any) -> None:
    worker.is_shutting_down = True
    if worker.shutdown is None:
        worker.shutdown = _begin_shutdown(number)


def _begin_shutdown(number: Any) -> Span:
    name = signal.Signals(number).name if isinstance(number, int) else None
    return events.begin(SpanName.SHUTDOWN, {Key.SHUTDOWN_SIGNAL: name, Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})


@never_raise
def _interrupt_prestart() -> None:
    if worker.supervisor is not None and worker.shutdown is not None:
        worker.supervisor.interrupt(str(worker.shutdown.attributes.get(Key.SHUTDOWN_SIGNAL)))


@never_raise
def loop_ended(error: BaseException | None) -> None:
    """The SDK's loop is over: by an error of its own, which nobody asked for, or as it was told to."""
    if isinstance(error, Exception):
        if worker.shutdown is None:
            worker.shutdown = _begin_shutdown(None)
        worker.shutdown.end(error=error, attributes={Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})
    else:
        end_shutdown()


def end_shutdown() -> None:
    """With what is in hand then, and stays there."""
    if worker.shutdown is not None:
        worker.shutdown.end(attributes={Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})
