"""An SDK with prestart hooks of its own: it supervises, and we hand it our hooks and watch them."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import wrapt

from sdk_exporter import events, supervisor
from sdk_exporter.contract import Key, PrestartKind, SpanName
from sdk_exporter.guard import never_raise

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


@never_raise
def adopt_prestart() -> None:
    """An SDK with prestart hooks of its own gets ours; it then supervises, and we watch."""
    register = getattr(importlib.import_module("runpod.serverless"), "register_prestart_hook", None)
    if register is None:
        return

    def adopt(hook: supervisor.Hook, _timeout: float | None) -> None:
        register(_watched_hook(hook))

    for hook in supervisor.take_registered():
        adopt(hook, None)
    supervisor.registered.append(adopt)


def _watched_hook(hook: supervisor.Hook) -> Any:
    def attributes() -> dict[str, Any]:
        return {Key.PRESTART_HOOK: hook.name, Key.PRESTART_KIND: PrestartKind.HOOK.value}

    if inspect.iscoroutinefunction(hook.function):

        async def around_async(wrapped: Any, _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
            span = events.begin(SpanName.PRESTART_HOOK, attributes())
            try:
                answer = await wrapped(*args, **kwargs)
            except BaseException as error:
                span.end(error=error)
                raise
            span.end()
            return answer

        return wrapt.FunctionWrapper(hook.function, around_async)

    def around(wrapped: Any, _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
        span = events.begin(SpanName.PRESTART_HOOK, attributes())
        try:
            answer = wrapped(*args, **kwargs)
        except BaseException as error:
            span.end(error=error)
            raise
        span.end()
        return answer

    return wrapt.FunctionWrapper(hook.function, around)
