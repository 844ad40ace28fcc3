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

from sdk_exporter import bounds, events, interruption
from sdk_exporter.contract import MESSAGE_BYTES, Key, PrestartKind, SpanName
from sdk_exporter.failure import Failure, PrestartInterrupted, failure_of, timeout_of
from sdk_exporter.settings import warn_once

CLAIM_TO_FAIL_SECONDS: Final = 10.0
"""After a failure with nothing in hand: how long one request may still be claimed, so that it hears the reason."""
FAIL_REQUESTS_SECONDS: Final = 15.0
"""Most time for handing in the failures: three tries of the SDK and their pauses take about 5 s."""
LOOP_ANSWER_SECONDS: Final = 1.0
"""A loop that does not come to a callback in this time is taken for blocked."""
LOOP_ROUNDS: Final = 20
"""Rounds of the loop in which it reads an answer that has come to an open poll: headers, body, the SDK's own steps."""
FREEING_TRIES: Final = 2
"""A hook that blocks the loop is interrupted so often."""
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
        leave: Callable[[], None],
        at_exit: Callable[[], None],
        is_claiming: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """To be made on the loop's thread. `fail` hands in the failure of one request id, `claim` takes one if there
        is one (both on a loop of the supervisor's own); after `leave` the worker asks for no more; `at_exit` tells what
        is left before the process is gone.
        """
        self._phases, self._loop = phases, loop
        self._in_hand, self._fail, self._claim = in_hand, fail, claim
        self._leave, self._at_exit, self._is_claiming = leave, at_exit, is_claiming
        self._clock, self._sleep = clock, sleep
        # A SimpleQueue may be put into from a signal handler.
        self._messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._interruption = interruption.Interruption(loop)
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
            failure = failure_of(PrestartKind.HOOK, error, "unknown")
        if failure is not None:
            self._end_worker(failure)
        self._in_loop(self._open_gate)

    def _open_gate(self) -> None:
        self._interruption.put_away()
        self.gate.set()

    def _run_phases(self) -> Failure | None:
        for phase in self._phases:
            failure = self._run_phase(phase)
            if failure is not None:
                return failure
        return None

    def _run_phase(self, phase: Phase) -> Failure | None:
        attributes = {Key.PRESTART_KIND: phase.kind.value, Key.PRESTART_TIMEOUT_SECONDS: phase.timeout_seconds}
        span = events.begin(SpanName.PRESTART, attributes)
        deadline = None if phase.timeout_seconds is None else self._clock() + phase.timeout_seconds
        for hook in phase.hooks:
            about = {Key.PRESTART_HOOK: hook.name, Key.PRESTART_KIND: phase.kind.value}
            hook_span = events.begin(SpanName.PRESTART_HOOK, about, parent=span)
            events.progress()
            error = self._run_hook(hook, deadline, phase)
            if error is None:
                hook_span.end()
                continue
            failure = failure_of(phase.kind, error, hook.name)
            failure.say()
            told = failure.told()
            hook_span.end(error=told)
            span.end(error=told, attributes={Key.PRESTART_HOOK: hook.name})
            return failure
        span.end()
        return None

    def _run_hook(self, hook: Hook, deadline: float | None, phase: Phase) -> BaseException | None:
        """What the hook failed with, or None."""
        if deadline is not None and deadline <= self._clock():
            return _timeout(phase, hook)
        self._begin(hook)
        while True:
            left = None if deadline is None else max(0.0, deadline - self._clock())
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

        self._in_loop(schedule)

    def _cancel(self) -> None:
        """Ask an async hook to stop. Nobody waits for it: the process ends soon."""

        def cancel() -> None:
            if self._task is not None:
                self._task.cancel()

        self._in_loop(cancel)

    def _in_loop(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # the worker has left the loop already

    # ------------------------------------------------------------------------------------------------ failing

    def _end_worker(self, failure: Failure) -> None:
        """Fail what is in hand, then leave at once: open polls of the SDK would hold the process for up to 90 s."""
        try:
            told: set[str] = set()
            self._fail_all(failure, told)
            if not (failure.is_shutdown or told):
                self._free_loop()
                self._wait_for_a_request()
                self._fail_all(failure, told)
            # A loop that is free again would ask for more at once, and nobody would hear the answer.
            self._leave()
            self._free_loop()
            self._fail_all(failure, told)
        except Exception:  # noqa: BLE001 - whatever went wrong, the exit is the promise
            traceback.print_exc()
        finally:
            self._at_exit()
            _end_children()
            _flush()
            os._exit(EXIT_SHUTDOWN if failure.is_shutdown else EXIT_FAILED)

    def _fail_all(self, failure: Failure, told: set[str]) -> None:
        """All requests in hand but those told already, on a loop of our own: the hook may block the worker's."""
        if any(job_id not in told for job_id in self._in_hand()):
            asyncio.run(self._fail_in_hand(failure, told))

    async def _fail_in_hand(self, failure: Failure, told: set[str]) -> None:
        """At once, and those that are claimed while the others are told."""
        deadline = self._clock() + FAIL_REQUESTS_SECONDS
        while (left := deadline - self._clock()) > 0:
            waiting = [job_id for job_id in self._in_hand() if job_id not in told]
            if not waiting:
                return
            told.update(waiting)
            failing = [self._fail(job_id, failure.payload()) for job_id in waiting]
            await asyncio.wait_for(asyncio.gather(*failing, return_exceptions=True), left)

    def _free_loop(self) -> None:
        """Let the loop read what has come to its open poll: that request is claimed, and nobody else knows its id."""
        for _ in range(FREEING_TRIES):
            if self._loop_turns():
                return
            self._interruption.send(self._task)

    def _loop_turns(self) -> bool:
        deadline = time.monotonic() + LOOP_ANSWER_SECONDS
        for _ in range(LOOP_ROUNDS):
            if not self._loop_answers():
                return False
            if time.monotonic() > deadline:
                break  # it does, and slowly: the exit comes first
        return True

    def _loop_answers(self) -> bool:
        answered = threading.Event()
        self._in_loop(answered.set)
        return answered.wait(LOOP_ANSWER_SECONDS) or self._loop.is_closed()

    def _wait_for_a_request(self) -> None:
        """The SDK goes on claiming meanwhile, unless its loop is blocked; the first request that comes hears why."""
        deadline = self._clock() + CLAIM_TO_FAIL_SECONDS
        is_blocked = not self._loop_answers()
        while not self._in_hand() and self._is_claiming() and (left := deadline - self._clock()) > 0:
            if is_blocked:
                self._claim_one(left)
            self._sleep(IN_HAND_LOOK_SECONDS)

    def _claim_one(self, seconds: float) -> None:
        """One poll in the blocked loop's place; it may end empty."""
        try:
            asyncio.run(asyncio.wait_for(self._claim(), seconds))
        except Exception:  # noqa: BLE001, S110 - whatever the poll met, the next one may do better
            pass


def _timeout(phase: Phase, hook: Hook) -> Exception:
    return timeout_of(phase.kind, phase.timeout_seconds or 0.0, hook.name)


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
