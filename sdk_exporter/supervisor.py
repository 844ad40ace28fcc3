"""Supervised prestart: ordered hooks, one bound for the phase, a gate for the requests, and a clear end on failure.

Knows no SDK. The platform's hooks (`hooks/`) say where the loop is, what is in hand, and how a request is failed.

The supervisor has a thread of its own and waits at one place (`_messages`) for whatever comes first: the hook's end,
the phase's bound, a shutdown. So neither a hook that blocks the event loop nor one that ignores its cancellation can
keep a request waiting past the bound.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from sdk_exporter import bounds, events
from sdk_exporter.contract import MESSAGE_BYTES, STACKTRACE_BYTES, Key, PrestartKind, SpanName
from sdk_exporter.settings import warn_once

CLAIM_TO_FAIL_SECONDS: Final = 10.0
"""After a failure with nothing in hand: how long one request may still be claimed, so that it hears the reason."""
FAIL_REQUESTS_SECONDS: Final = 15.0
"""Most time for handing in the failures: three tries of the SDK and their pauses take about 5 s."""
LOOP_ANSWER_SECONDS: Final = 1.0
"""A loop that does not come to a callback in this time is taken for blocked."""
IN_HAND_LOOK_SECONDS: Final = 0.05
EXIT_FAILED: Final = 1
EXIT_SHUTDOWN: Final = 0
"""What the SDK's own shutdown ends with."""


class Hook:
    """A function to run before the first request."""

    __slots__ = ("function", "name")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.name = hook_name(function)


class Phase:
    """Hooks that run in order under one bound. `timeout_seconds` None: unbounded; 0 is a bound."""

    __slots__ = ("hooks", "kind", "timeout_seconds")

    def __init__(self, kind: PrestartKind, hooks: Sequence[Hook], timeout_seconds: float | None) -> None:
        self.kind, self.hooks, self.timeout_seconds = kind, hooks, timeout_seconds


class Failure:
    """Why the worker cannot start, in the words that the requests in hand are failed with."""

    __slots__ = ("error", "event", "hook", "is_shutdown", "stack")

    def __init__(self, event: str, error: BaseException, hook: str, *, stack: str, is_shutdown: bool = False) -> None:
        self.event, self.error, self.hook = event, error, hook
        self.stack = stack
        self.is_shutdown = is_shutdown

    def payload(self) -> dict[str, str]:
        """JSON object of strings, the request's error to its caller. Redacted, each part within its bound."""
        return {
            "event": self.event,
            "error_type": type_name(self.error),
            "error_message": events.redacted(_message(self.error), MESSAGE_BYTES),
            "error_traceback": events.redacted(self.stack, STACKTRACE_BYTES, keep_end=True),
            "hook": bounds.clip(self.hook, MESSAGE_BYTES),
        }


class PrestartTimeout(Exception):
    """The hooks exceeded the bound of their phase."""


class InitializerTimeout(Exception):
    """The initializer exceeded its bound."""


class PrestartInterrupted(Exception):
    """The worker was told to shut down before it was ready."""


_hooks: list[Hook] = []
_timeouts: list[float] = []
registered: list[Callable[[Hook, float | None], None]] = []
"""Told of each hook, if the SDK has hooks of its own that ours are handed to."""


def register(function: Callable[[], Any], timeout: float | None) -> None:
    """Add a hook. An unusable timeout warns once and counts as absent."""
    bound = usable_timeout(timeout, "prestart timeout")
    hook = Hook(function)
    if registered:
        for adopt in registered:
            adopt(hook, bound)
        return
    _hooks.append(hook)
    if bound is not None:
        _timeouts.append(bound)
    # Hooks are the worker's own function: they run whether or not anything is observed.
    from sdk_exporter import importing

    importing.watch_sdk()


def has_hooks() -> bool:
    """Whether this worker must not serve before something has run."""
    return bool(_hooks)


def take_registered() -> tuple[list[Hook], list[float]]:
    """The hooks so far and their bounds, to be handed to an SDK that runs them itself."""
    taken = list(_hooks), list(_timeouts)
    _hooks.clear()
    _timeouts.clear()
    return taken


def phases(initializer: Callable[[], Any] | None, init_timeout: Any, prestart_timeout: Any) -> list[Phase]:
    """What has to run, in order: the initializer given to the SDK's `start()`, then the registered hooks."""
    found = []
    if callable(initializer):
        bound = usable_timeout(init_timeout, "init_timeout")
        found.append(Phase(PrestartKind.INITIALIZER, [Hook(initializer)], bound))
    if _hooks:
        configured = usable_timeout(prestart_timeout, "prestart_timeout")
        timeouts = [*_timeouts, *([] if configured is None else [configured])]
        found.append(Phase(PrestartKind.HOOK, list(_hooks), min(timeouts, default=None)))
    return found


def hook_name(function: Any) -> str:
    """How the hook is called in every message about it."""
    function = getattr(function, "func", function)  # functools.partial
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return bounds.clip(str(name).replace("<locals>.", ""), MESSAGE_BYTES)


def usable_timeout(value: Any, name: str) -> float | None:
    """Seconds, or None where there is no bound. 0 is a bound; what is not a number of at least 0 warns once."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if seconds >= 0:
        return None if math.isinf(seconds) else seconds
    warn_once(f"{name}={value!r:.40} is not a number of seconds of at least 0; the phase has no bound")
    return None


class Supervisor:
    """Runs the phases beside the claiming of requests, and then opens the gate or ends the worker."""

    def __init__(
        self,
        phases: Sequence[Phase],
        *,
        loop: asyncio.AbstractEventLoop,
        in_hand: Callable[[], Sequence[str]],
        fail: Callable[[str, dict[str, str]], Coroutine[Any, Any, None]],
        claim: Callable[[], Coroutine[Any, Any, None]],
        at_exit: Callable[[Failure], None],
        is_claiming: Callable[[], bool],
    ) -> None:
        """`fail` hands in the failure of one request id, `claim` takes one if there is one (both on a loop of the
        supervisor's own); `at_exit` tells what is left before the process is gone.
        """
        self._phases, self._loop = phases, loop
        self._in_hand, self._fail, self._claim = in_hand, fail, claim
        self._at_exit, self._is_claiming = at_exit, is_claiming
        # A SimpleQueue may be put into from a signal handler.
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self.gate = asyncio.Event()

    def start(self) -> None:
        threading.Thread(target=self._supervise, name="stallscope-prestart", daemon=True).start()

    def interrupt(self, signal_name: str) -> None:
        """The worker is told to shut down. Callable from a signal handler; after the phases it does nothing."""
        self._messages.put(("interrupt", signal_name))

    def _supervise(self) -> None:
        try:
            failure = self._run_phases()
        except Exception as error:  # noqa: BLE001 - a mistake of ours must not leave the requests waiting for ever
            failure = _failure(PrestartKind.HOOK, error, "unknown")
        if failure is not None:
            self._end_worker(failure)
        self._loop.call_soon_threadsafe(self.gate.set)

    def _run_phases(self) -> Failure | None:
        for phase in self._phases:
            failure = self._run_phase(phase)
            if failure is not None:
                return failure
        return None

    def _run_phase(self, phase: Phase) -> Failure | None:
        attributes = {Key.PRESTART_KIND: phase.kind.value, Key.PRESTART_TIMEOUT_SECONDS: phase.timeout_seconds}
        span = events.begin(SpanName.PRESTART, attributes)
        deadline = None if phase.timeout_seconds is None else time.monotonic() + phase.timeout_seconds
        for hook in phase.hooks:
            about = {Key.PRESTART_HOOK: hook.name, Key.PRESTART_KIND: phase.kind.value}
            hook_span = events.begin(SpanName.PRESTART_HOOK, about, parent=span)
            events.progress()
            error = self._run_hook(hook, deadline, phase)
            if error is None:
                hook_span.end()
                continue
            failure = _failure(phase.kind, error, hook.name)
            _say(failure)
            told = _told(failure)
            hook_span.end(error=told)
            span.end(error=told, attributes={Key.PRESTART_HOOK: hook.name})
            return failure
        span.end()
        return None

    def _run_hook(self, hook: Hook, deadline: float | None, phase: Phase) -> BaseException | None:
        """What the hook failed with, or None."""
        if deadline is not None and deadline <= time.monotonic():
            return _timeout(phase, hook)
        self._begin(hook)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                what, value = self._messages.get(timeout=left)
            except queue.Empty:
                self._cancel()
                return _timeout(phase, hook)
            if what == "interrupt":
                self._cancel()
                return PrestartInterrupted(
                    f"the worker was told to shut down ({value}) while prestart hook '{hook.name}' was running"
                )
            if what == "awaitable":
                self._await(value)
            else:
                error: BaseException | None = value
                return error

    def _begin(self, hook: Hook) -> None:
        if inspect.iscoroutinefunction(hook.function):
            self._await(hook.function())
        else:
            # Abandonable: not the loop's default executor, whose threads are joined at exit.
            threading.Thread(target=self._call, args=(hook,), name="stallscope-hook", daemon=True).start()

    def _call(self, hook: Hook) -> None:
        """A sync hook, on its own thread. Exits and interrupts raised in it are failures, not silence."""
        try:
            result = hook.function()
        except BaseException as error:  # noqa: BLE001 - it is told as the phase's failure
            self._messages.put(("done", error))
            return
        self._messages.put(("awaitable", result) if inspect.isawaitable(result) else ("done", None))

    def _await(self, awaitable: Any) -> None:
        """An async hook, on the worker's own loop: what it makes there is used there."""

        async def run() -> None:
            try:
                await awaitable
            except BaseException as error:  # noqa: BLE001 - same; raised through a task it would end the loop
                self._messages.put(("done", error))
            else:
                self._messages.put(("done", None))

        def schedule() -> None:
            self._task = self._loop.create_task(run())

        self._loop.call_soon_threadsafe(schedule)

    def _cancel(self) -> None:
        """Ask an async hook to stop. Nobody waits for it: the process ends soon."""

        def cancel() -> None:
            if self._task is not None:
                self._task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    # ------------------------------------------------------------------------------------------------ failing

    def _end_worker(self, failure: Failure) -> None:
        """Fail what is in hand, then leave at once: open polls of the SDK would hold the process for up to 90 s."""
        try:
            if not failure.is_shutdown:
                self._wait_for_a_request()
            # A loop of its own: the worker's may be blocked by the very hook that failed.
            asyncio.run(self._fail_all(failure))
        except Exception:  # noqa: BLE001 - whatever went wrong, the exit is the promise
            traceback.print_exc()
        finally:
            self._at_exit(failure)
            _end_children()
            _flush()
            os._exit(EXIT_SHUTDOWN if failure.is_shutdown else EXIT_FAILED)

    def _wait_for_a_request(self) -> None:
        """The SDK goes on claiming meanwhile, unless its loop is blocked; the first request that comes hears why."""
        deadline = time.monotonic() + CLAIM_TO_FAIL_SECONDS
        is_blocked: bool | None = None
        while not self._in_hand() and self._is_claiming() and (left := deadline - time.monotonic()) > 0:
            if is_blocked is None:
                is_blocked = self._is_loop_blocked()
            if is_blocked:
                self._claim_one(left)
            time.sleep(IN_HAND_LOOK_SECONDS)

    def _claim_one(self, seconds: float) -> None:
        """One poll in the blocked loop's place; it may end empty."""
        try:
            asyncio.run(asyncio.wait_for(self._claim(), seconds))
        except Exception:  # noqa: BLE001, S110 - whatever the poll met, the next one may do better
            pass

    def _is_loop_blocked(self) -> bool:
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        return not answered.wait(LOOP_ANSWER_SECONDS)

    async def _fail_all(self, failure: Failure) -> None:
        """All requests in hand, and those that are claimed while they are told."""
        deadline = time.monotonic() + FAIL_REQUESTS_SECONDS
        told: set[str] = set()
        while time.monotonic() < deadline:
            waiting = [job_id for job_id in self._in_hand() if job_id not in told]
            if not waiting:
                return
            told.update(waiting)
            failing = [self._fail(job_id, failure.payload()) for job_id in waiting]
            await asyncio.wait_for(
                asyncio.gather(*failing, return_exceptions=True), max(0.1, deadline - time.monotonic())
            )


def _timeout(phase: Phase, hook: Hook) -> Exception:
    return timeout_of(phase.kind, phase.timeout_seconds or 0.0, hook.name)


def timeout_of(kind: PrestartKind, timeout_seconds: float, hook_name: str) -> Exception:
    """The bound's expiry, in words that name the hook running then."""
    if kind is PrestartKind.INITIALIZER:
        return InitializerTimeout(f"initializer '{hook_name}' exceeded init_timeout of {timeout_seconds:g} s")
    return PrestartTimeout(
        f"prestart exceeded its timeout of {timeout_seconds:g} s while hook '{hook_name}' was running"
    )


def told_error(error: BaseException) -> dict[str, str]:
    """Type, message and stack trace as they are told, our own errors by their bare name."""
    return {**events.told_exception(error), "type": type_name(error)}


def _failure(kind: PrestartKind, error: BaseException, hook: str) -> Failure:
    event = "init_failed" if kind is PrestartKind.INITIALIZER else "prestart_failed"
    try:
        stack = "".join(traceback.format_exception(type(error), _without_own_frames(error), error.__traceback__))
    except Exception:  # noqa: BLE001 - the user's own __str__ may do anything
        stack = type_name(error)
    return Failure(event, error, hook, stack=stack, is_shutdown=isinstance(error, PrestartInterrupted))


def _without_own_frames(error: BaseException) -> BaseException:
    """The trace as the user would see it: without the frame of ours that called the hook."""
    trace = error.__traceback__
    if trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
        return error.with_traceback(trace.tb_next)
    return error


def _told(failure: Failure) -> dict[str, str]:
    payload = failure.payload()
    return {
        "type": payload["error_type"],
        "message": payload["error_message"],
        "stacktrace": payload["error_traceback"],
    }


def type_name(error: BaseException) -> str:
    """Our own errors by their bare name: they are words of the contract's payload."""
    if isinstance(error, (PrestartTimeout, InitializerTimeout, PrestartInterrupted)):
        return type(error).__name__
    return events.type_name(type(error))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - hostile __str__
        return "<message could not be read>"


def _say(failure: Failure) -> None:
    """What the interpreter would have printed for an uncaught exception, and one line that says what follows."""
    what = "initializer" if failure.event == "init_failed" else "prestart hook"
    try:
        if not failure.is_shutdown:
            sys.stderr.write(failure.stack)
        sys.stderr.write(
            f"stallscope: {what} '{failure.hook}' failed ({type_name(failure.error)}); "
            "requests in hand are failed and the worker exits\n"
        )
    except Exception:  # noqa: BLE001, S110 - no stderr, no line
        pass


def _end_children() -> None:
    """What multiprocessing does at a usual exit: the SDK's heartbeat would ping for this worker for ever."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return
    try:
        for child in multiprocessing.active_children():
            if child.daemon:
                child.terminate()
    except Exception:  # noqa: BLE001 - the exit comes first
        traceback.print_exc()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 - a closed, replaced or None stream must not keep us
            continue
