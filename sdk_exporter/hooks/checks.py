"""Fitness checks of the worker SDK: each one's name, time and failure, which ends the process."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import wrapt

from sdk_exporter import events, supervisor
from sdk_exporter.contract import Key, SpanName
from sdk_exporter.events import Span
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks.handler import drop_own_frame
from sdk_exporter.hooks.life import Arguments, Keywords


async def around_run(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """worker.run_fitness_checks: wrap each check in place, under its own name; a failing one ends the process."""
    watch_registered()
    return await wrapped(*args, **kwargs)


def around_register(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_fitness.register_fitness_check: the SDK's own checks are added while the checks run."""
    answer = wrapped(*args, **kwargs)
    watch_registered()
    return answer


class _Check(wrapt.FunctionWrapper):  # type: ignore[misc,type-arg,unused-ignore]  # wrapt is untyped before 2.0
    """A watched check; the type marks it as already wrapped."""


@never_raise
def watch_registered() -> None:
    """Wrap the checks in the SDK's own list, each once."""
    checks = getattr(importlib.import_module("runpod.serverless.modules.rp_fitness"), "_fitness_checks", None)
    if isinstance(checks, list):
        for at, check in enumerate(checks):
            if not isinstance(check, _Check):
                checks[at] = _Check(check, _around_async_check if inspect.iscoroutinefunction(check) else _around_check)


def _begin_check(wrapped: Any) -> Span:
    return events.begin(SpanName.FITNESS_CHECK, {Key.CHECK_NAME: supervisor.hook_name(wrapped)})


def _around_check(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    span = _begin_check(wrapped)
    try:
        answer = wrapped(*args, **kwargs)
    except BaseException as error:
        drop_own_frame(error)
        span.end(error=error)
        raise
    span.end()
    return answer


async def _around_async_check(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    span = _begin_check(wrapped)
    try:
        answer = await wrapped(*args, **kwargs)
    except BaseException as error:
        drop_own_frame(error)
        span.end(error=error)
        raise
    span.end()
    return answer
