"""Why a worker cannot start, in the words that its requests are failed with, and its log and its spans tell."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

from sdk_exporter import bounds, events
from sdk_exporter.contract import MESSAGE_BYTES, STACKTRACE_BYTES, PrestartKind

_OURS: Final = os.path.dirname(__file__) + os.sep


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

    def told(self) -> dict[str, str]:
        """The same as a span's exception."""
        payload = self.payload()
        return {
            "type": payload["error_type"],
            "message": payload["error_message"],
            "stacktrace": payload["error_traceback"],
        }

    def say(self) -> None:
        """On stderr: what the interpreter prints for an uncaught exception, and one line that says what follows."""
        what = "initializer" if self.event == "init_failed" else "prestart hook"
        try:
            if not self.is_shutdown:
                sys.stderr.write(self.stack)
            sys.stderr.write(
                f"stallscope: {what} '{self.hook}' failed ({type_name(self.error)}); "
                "requests in hand are failed and the worker exits\n"
            )
        except Exception:  # noqa: BLE001, S110 - no stderr, no line
            pass


class PrestartTimeout(Exception):
    """The hooks exceeded the bound of their phase."""


class InitializerTimeout(Exception):
    """The initializer exceeded its bound."""


class PrestartInterrupted(Exception):
    """The worker was told to shut down before it was ready."""


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


def failure_of(kind: PrestartKind, error: BaseException, hook: str) -> Failure:
    """What `hook` failed with, as it is told."""
    event = "init_failed" if kind is PrestartKind.INITIALIZER else "prestart_failed"
    try:
        stack = "".join(traceback.format_exception(type(error), _without_own_frames(error), error.__traceback__))
    except Exception:  # noqa: BLE001 - the user's own __str__ may do anything
        stack = type_name(error)
    return Failure(event, error, hook, stack=stack, is_shutdown=isinstance(error, PrestartInterrupted))


def _without_own_frames(error: BaseException) -> BaseException:
    """The trace as the user would see it: without the frame of ours that called the hook."""
    trace = error.__traceback__
    if trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        BaseException.with_traceback(error, trace.tb_next)  # the error's own method may be anything
    return error


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
