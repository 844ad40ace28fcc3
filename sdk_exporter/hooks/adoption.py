"""An SDK with prestart hooks or an initializer of its own: it supervises, and we hand it our hooks and watch.

No released SDK has them. The shapes are those of its open proposals: `register_prestart_hook` and
`JobScaler._run_prestart` with `prestart_timeout`; `config["initializer"]` and `JobScaler._run_init` with
`init_timeout`; `JobScaler._fail_job`. What is not there is left out.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

import wrapt

from sdk_exporter import events, ledger, supervisor
from sdk_exporter.contract import Key, PrestartKind, SpanName
from sdk_exporter.events import Span
from sdk_exporter.failure import timeout_of, told_error
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import delivery
from sdk_exporter.hooks.life import Arguments, Keywords

_SCALE: Final = "runpod.serverless.modules.rp_scale"
_adopted_timeouts: list[float] = []


class _Phase:
    """The SDK's phase under way: its span, the hook that runs, and what it failed with."""

    def __init__(self, kind: PrestartKind, timeout_seconds: float | None) -> None:
        self.kind, self.timeout_seconds = kind, timeout_seconds
        about = {Key.PRESTART_KIND: kind.value, Key.PRESTART_TIMEOUT_SECONDS: timeout_seconds}
        self.span = events.begin(SpanName.PRESTART, about)
        self.hook: supervisor.Hook | None = None
        self.hook_span: Span | None = None
        self.error: BaseException | None = None

    def told(self, error: BaseException) -> BaseException:
        """A cancellation at the phase's bound is the bound's expiry, by the same name as where we supervise."""
        bound = self.timeout_seconds
        if isinstance(error, asyncio.CancelledError) and bound is not None and self.span.seconds() >= bound:
            return self.expiry()
        return error

    def expiry(self) -> BaseException:
        return timeout_of(self.kind, self.timeout_seconds or 0.0, self.hook.name if self.hook else "unknown")

    @never_raise
    def over(self, error: BaseException | None) -> None:
        """The SDK is done with the phase; it need not raise what its hook did."""
        failed = self.error or (self.told(error) if error is not None else None)
        if self.hook_span is not None and not self.hook_span.ended:
            failed = failed or self.expiry()  # a hook on a thread goes on when nobody waits for it any more
            self.hook_span.end(error=told_error(failed))
        if failed is None:
            self.span.end()
        else:
            about = {} if self.hook is None else {Key.PRESTART_HOOK: self.hook.name}
            self.span.end(error=told_error(failed), attributes=about)


_open: list[_Phase] = []
_gated: dict[str, Span] = {}


def runs_hooks() -> bool:
    return hasattr(importlib.import_module("runpod.serverless"), "register_prestart_hook")


def runs_initializer() -> bool:
    return hasattr(importlib.import_module(_SCALE).JobScaler, "_run_init")


@never_raise
def adopt_prestart() -> None:
    """Hand over the hooks registered so far, and each that comes."""
    if not runs_hooks():
        return
    register = importlib.import_module("runpod.serverless").register_prestart_hook

    def adopt(hook: supervisor.Hook, timeout: float | None) -> None:
        if timeout is not None:
            _adopted_timeouts.append(timeout)
        register(watched(hook, PrestartKind.HOOK))

    hooks, timeouts = supervisor.take_registered()
    _adopted_timeouts.extend(timeouts)
    for hook in hooks:
        adopt(hook, None)
    supervisor.registered.append(adopt)


def adopted_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config for an SDK that supervises itself: our hooks' bound in its own words, its initializer watched.

    A copy where something changes; the user's dict stays as it is.
    """
    changed: dict[str, Any] = {}
    if _adopted_timeouts and runs_hooks():
        configured = supervisor.usable_timeout(config.get("prestart_timeout"), "prestart_timeout")
        changed["prestart_timeout"] = min([*_adopted_timeouts, *([] if configured is None else [configured])])
    if callable(config.get("initializer")) and runs_initializer():
        changed["initializer"] = watched(supervisor.Hook(config["initializer"]), PrestartKind.INITIALIZER)
    return {**config, **changed} if changed else config


def watched(hook: supervisor.Hook, kind: PrestartKind) -> Any:
    """The hook to the SDK's eye: same name, sync or async as it is."""
    if inspect.iscoroutinefunction(hook.function):

        async def around_async(wrapped: Any, _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
            with _telling(hook, kind):
                return await wrapped(*args, **kwargs)

        return wrapt.FunctionWrapper(hook.function, around_async)

    def around(wrapped: Any, _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
        with _telling(hook, kind):
            return wrapped(*args, **kwargs)

    return wrapt.FunctionWrapper(hook.function, around)


@contextmanager
def _telling(hook: supervisor.Hook, kind: PrestartKind) -> Generator[None]:
    phase, span = _hook_begins(hook, kind) or (None, None)
    try:
        yield
    except BaseException as error:
        _hook_ended(phase, span, error)
        raise
    _hook_ended(phase, span, None)


@never_raise
def _hook_begins(hook: supervisor.Hook, kind: PrestartKind) -> tuple[_Phase | None, Span]:
    phase = _open[-1] if _open else None
    about = {Key.PRESTART_HOOK: hook.name, Key.PRESTART_KIND: kind.value}
    span = events.begin(SpanName.PRESTART_HOOK, about, parent=phase.span if phase else None)
    if phase is not None:
        phase.hook, phase.hook_span = hook, span
    events.progress()
    return phase, span


@never_raise
def _hook_ended(phase: _Phase | None, span: Span | None, error: BaseException | None) -> None:
    events.progress()
    if span is None or span.ended:
        return  # the phase was over before
    if error is None:
        span.end()
        return
    told = phase.told(error) if phase is not None else error
    if phase is not None:
        phase.error = told
    span.end(error=told_error(told))


async def around_prestart(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler._run_prestart."""
    return await _around_phase(PrestartKind.HOOK, "prestart_timeout", wrapped, instance, args, kwargs)


async def around_init(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler._run_init."""
    return await _around_phase(PrestartKind.INITIALIZER, "init_timeout", wrapped, instance, args, kwargs)


async def _around_phase(
    kind: PrestartKind, setting: str, wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords
) -> Any:
    phase = _phase_begins(kind, setting, instance)
    error: BaseException | None = None
    try:
        return await wrapped(*args, **kwargs)
    except BaseException as raised:
        error = raised
        raise
    finally:
        if phase is not None:
            _open.remove(phase)
            phase.over(error)


@never_raise
def _phase_begins(kind: PrestartKind, setting: str, scaler: Any) -> _Phase:
    phase = _Phase(kind, supervisor.usable_timeout(scaler.config.get(setting), setting))
    _open.append(phase)
    return phase


async def around_outer_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.handle_job, where such an SDK holds a request back until it is ready."""
    job_id = _gate_closed(args, kwargs)
    try:
        return await wrapped(*args, **kwargs)
    finally:
        if job_id is not None:
            passed(job_id, is_open=False)


@never_raise
def _gate_closed(args: Arguments, kwargs: Keywords) -> str | None:
    if not _open:
        return None
    job = args[1] if len(args) > 1 else kwargs["job"]
    job_id = events.job_id_text(job["id"])
    _gated[job_id] = events.begin(SpanName.JOB_GATED, attempt=ledger.attempt_of(job_id))
    return job_id


def passed(job_id: str, *, is_open: bool) -> None:
    """The request need not wait any longer: it may run, or it failed with the phase."""
    span = _gated.pop(job_id, None) if _gated else None
    if span is not None:
        span.end("ok" if is_open else "error")


async def around_fail_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler._fail_job: a request in hand is failed with the phase's reason."""
    try:
        return await wrapped(*args, **kwargs)
    finally:
        _failed_with_phase([*args, *kwargs.values()])


@never_raise
def _failed_with_phase(given: list[Any]) -> None:
    for job in given:
        if isinstance(job, dict) and isinstance(job.get("id"), str):
            job_id = events.job_id_text(job["id"])
            passed(job_id, is_open=False)
            attempt = ledger.in_hand.get(job_id)
            if attempt is not None:
                ledger.release(attempt, delivery.outcome_of_failure(attempt.delivery))


HOOKS: Final[tuple[tuple[str, str, Callable[..., Any]], ...]] = (
    (_SCALE, "JobScaler._run_prestart", around_prestart),
    (_SCALE, "JobScaler._run_init", around_init),
    (_SCALE, "JobScaler._fail_job", around_fail_job),
    (_SCALE, "JobScaler.handle_job", around_outer_job),
)
"""Module, name and wrapper."""
