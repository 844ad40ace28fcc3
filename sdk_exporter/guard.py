"""The one place where our own bugs are swallowed: a guest never raises into the worker."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sdk_exporter import losses
from sdk_exporter.contract import Loss

P = ParamSpec("P")
R = TypeVar("R")


def never_raise(function: Callable[P, R]) -> Callable[P, R | None]:
    """`function`, answering None where it would have raised; the mistake is counted as `internal_error`.

    Exits and interrupts (BaseException) pass: they are the user's.
    """

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - what goes wrong in here is ours, and must stay ours
            losses.record(Loss.INTERNAL_ERROR)
            return None

    return guarded
