"""Stallscope's guest in the worker. Importing it loads the standard library only, and little of that.

import sdk_exporter

sdk_exporter.instrument()

@sdk_exporter.prestart(timeout=120)
def load_model() -> None: ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sdk_exporter.contract import VERSION as __version__

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["__version__", "instrument", "job", "phase", "prestart"]

HookFunction = TypeVar("HookFunction", bound=Callable[[], Any])


# What does the work is loaded with the first call: the server imports this package too, for its shared language.


def instrument(*, relaunch: bool = False) -> None:
    """Watch this worker. Never raises; a second call does nothing; `OTEL_SDK_DISABLED=true` makes it do nothing.

    `relaunch`: the program is run again from its start, in this process's place, under the launcher, which sees its
    death and all its output too. For the first lines of the program itself; where that cannot be, stderr says why and
    the worker is watched as without it.
    """
    try:
        if relaunch:
            from sdk_exporter.relaunch import relaunch as run_again

            run_again(str(sys._getframe(1).f_globals.get("__name__")))
        from sdk_exporter import attach

        attach.instrument()
    except Exception:  # noqa: BLE001, S110 - whatever is wrong with us, the worker starts
        pass


@overload
def prestart(function: HookFunction, /) -> HookFunction: ...


@overload
def prestart(*, timeout: float | None = None) -> Callable[[HookFunction], HookFunction]: ...


def prestart(function: Any = None, /, *, timeout: float | None = None) -> Any:
    """Register a hook that runs once before the first request does; as `@prestart` or `@prestart(timeout=60)`.

    Hooks run in order of registration, sync ones on a thread of their own, async ones on the worker's loop. Requests
    may be claimed meanwhile and wait; if a hook raises, or the phase exceeds its bound, every request in hand fails
    with the reason and the worker exits with 1.

    `timeout`, in seconds, bounds the whole phase from its start; of several the smallest counts, and 0 is a bound.
    Returns the function unchanged.
    """
    from sdk_exporter import supervisor, watching

    def register(hook: Any) -> Any:
        supervisor.register(hook, timeout)
        watching.watch_sdk()  # hooks are the worker's own function: they run whether or not anything is observed
        return hook

    return register if function is None else register(function)


def job(job_id: str) -> AbstractContextManager[None]:
    """Mark the code inside as the handling of `job_id`, for workers whose SDK is not watched."""
    from sdk_exporter import phases

    return phases.job(job_id)


def phase(name: str) -> AbstractContextManager[None]:
    """Time a part of the work, as a span `phase.<name>` of the job (or boot) that it is in."""
    from sdk_exporter import phases

    return phases.phase(name)
