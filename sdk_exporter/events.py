"""One event = one `write()` that outlives the process. Spans begin and end here; nothing is kept for later.

Until `start()` is called, and in forked children, everything here does nothing: prestart hooks and the rest of the
worker go on as if nobody watched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from sdk_exporter import bounds, losses
from sdk_exporter.contract import (
    ARRAY_ITEMS,
    ATTRIBUTE_BYTES,
    JOB_ID_BYTES,
    MESSAGE_BYTES,
    STACKTRACE_BYTES,
    Key,
    SpanName,
)
from sdk_exporter.guard import never_raise
from sdk_exporter.spool import Page, Writer

REDACTION_INPUT_CHARACTERS: Final = 65_536
"""Of a longer text only the end is looked at, so that one giant message cannot hold up a job."""

Attributes = Mapping[str, Any]


class Boot:
    """One life of a worker: the trace that its jobs' traces link to."""

    __slots__ = ("boot_id", "span_id", "start_ns", "trace_id")

    def __init__(self, boot_id: str, trace_id: str, span_id: str, start_ns: int) -> None:
        self.boot_id, self.trace_id, self.span_id, self.start_ns = boot_id, trace_id, span_id, start_ns

    @classmethod
    def new(cls, start_ns: int) -> Boot:
        return cls(new_id(16), new_id(16), new_id(8), start_ns)

    def text(self) -> str:
        """As in the environment: `boot_id,trace_id,span_id,start_ns`."""
        return f"{self.boot_id},{self.trace_id},{self.span_id},{self.start_ns}"

    @classmethod
    def parse(cls, text: str) -> Boot | None:
        parts = text.split(",")
        if [len(part) for part in parts[:3]] != [32, 32, 16] or len(parts) != 4 or not parts[3].isdigit():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]))


class Attempt:
    """One claim of a job by this worker. Spans of the attempt share a trace."""

    __slots__ = ("claimed", "delivery", "job_id", "outcome", "root_id", "run", "stop", "trace_id")

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.trace_id = new_id(16)
        self.root_id: str | None = None
        """Span that the attempt's other spans hang from; the first one written."""
        self.claimed = False
        self.run: Span | None = None
        """The handler's span, from its first step on; it stays when it has ended."""
        self.stop: Any = None
        """The open stop signal (hooks.stops.Stop), if the platform sent one."""
        self.delivery: Any = None
        """The result on its way (hooks.delivery.Delivery)."""
        self.outcome: str | None = None


current: ContextVar[Attempt | None] = ContextVar("stallscope_attempt", default=None)
"""The job that the running code works for. Inherited by tasks and `asyncio.to_thread`, not by plain threads."""

_writer: Writer | None = None
page: Page | None = None
boot: Boot = Boot("", "", "", 0)
before_failure: list[Callable[[], None]] = []
"""Called before a failure is written: output printed so far should be where the recorder finds it."""


def new_id(size_bytes: int) -> str:
    """Random id in hex. From the system: the user's `random` state is theirs."""
    return os.urandom(size_bytes).hex()


def start(writer: Writer, shared: Page, life: Boot) -> None:
    """From now on, write."""
    global _writer, page, boot
    _writer, page, boot = writer, shared, life


def stop() -> None:
    """From now on, nothing: after uninstrumenting, and in a forked child, which is not the worker."""
    global _writer, page
    _writer = page = None


def enabled() -> bool:
    return _writer is not None


def write(record: dict[str, Any]) -> None:
    """Add time and pid, and hand over. Never raises, never waits."""
    if _writer is None:
        return
    record.setdefault("t", time.time_ns())
    record["pid"] = os.getpid()
    _writer.write(record)


@never_raise
def report_losses() -> None:
    for reason, count in losses.take().items():
        write({"k": "loss", "r": reason, "c": count})


class Span:
    """A thing that takes time. `end` counts once; later calls do nothing, from whatever thread they come."""

    __slots__ = ("_began", "_record", "attributes", "ended", "span_id", "trace_id")

    def __init__(self, name: str, attributes: dict[str, Any], attempt: Attempt | None, parent: Span | None) -> None:
        self.span_id = new_id(8)
        self.trace_id, parent_id, link = _place(attempt, parent, self.span_id)
        self.attributes = attributes
        self.ended = False
        self._began = time.monotonic_ns()
        self._record: dict[str, Any] = {"n": name, "id": self.span_id, "tr": self.trace_id, "t0": time.time_ns()}
        if parent_id is not None:
            self._record["pa"] = parent_id
        if attempt is not None:
            self._record["j"] = attempt.job_id
        if link is not None:
            self._record["li"] = link

    def begin(self) -> None:
        record = {"k": "start", **self._record, "a": clean(self.attributes)}
        record["t"] = record.pop("t0")
        write(record)

    def seconds(self) -> float:
        return (time.monotonic_ns() - self._began) / 1e9

    @never_raise
    def end(
        self,
        status: str | None = "ok",
        *,
        error: BaseException | Mapping[str, str] | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        """`error` (an exception, or its told form) makes the status `error` unless another is given with it."""
        if self.ended:
            return
        self.ended = True
        record: dict[str, Any] = {"k": "end", **self._record}
        # Duration by the monotonic clock: a wall clock set meanwhile must not make it negative.
        record["t"] = record["t0"] + time.monotonic_ns() - self._began
        if error is not None:
            told = told_exception(error) if isinstance(error, BaseException) else dict(error)
            record["x"] = told
            self.attributes.setdefault(Key.ERROR_TYPE, told["type"])
            status = "error" if status == "ok" else status
        if attributes:
            self.attributes.update(attributes)
        record["a"] = clean(self.attributes)
        if status is not None:
            record["s"] = status
        if status == "error":
            _before_failure()
        write(record)


def begin(
    name: str, attributes: Attributes | None = None, *, attempt: Attempt | None = None, parent: Span | None = None
) -> Span:
    """Start a span and tell it at once. Without attempt or parent it hangs from the boot."""
    span = Span(name, dict(attributes or {}), attempt, parent)
    _begin(span)
    return span


@never_raise
def _begin(span: Span) -> None:
    span.begin()


@never_raise
def point(
    name: str,
    attributes: Attributes | None = None,
    *,
    attempt: Attempt | None = None,
    status: str | None = None,
    error: Mapping[str, str] | None = None,
) -> None:
    """Something that takes no time."""
    span_id = new_id(8)
    trace_id, parent_id, link = _place(attempt, None, span_id)
    record: dict[str, Any] = {"k": "point", "n": name, "id": span_id, "tr": trace_id, "a": clean(attributes or {})}
    if parent_id is not None:
        record["pa"] = parent_id
    if attempt is not None:
        record["j"] = attempt.job_id
    if link is not None:
        record["li"] = link
    if status is not None:
        record["s"] = status
    if error is not None:
        record["x"] = dict(error)
        record["a"].setdefault(Key.ERROR_TYPE, error["type"])
    write(record)


def _place(attempt: Attempt | None, parent: Span | None, span_id: str) -> tuple[str, str | None, list[str] | None]:
    """Trace, parent and link of a new span."""
    if parent is not None:
        return parent.trace_id, parent.span_id, None
    if attempt is None:
        return boot.trace_id, boot.span_id or None, None
    if attempt.root_id is None:
        attempt.root_id = span_id
        return attempt.trace_id, None, [boot.trace_id, boot.span_id]
    return attempt.trace_id, attempt.root_id, None


@never_raise
def begin_boot(attributes: Attributes) -> None:
    """The start record of the boot, where no launcher has written it."""
    write(
        {
            "k": "start",
            "n": SpanName.BOOT,
            "id": boot.span_id,
            "tr": boot.trace_id,
            "t": boot.start_ns,
            "a": clean(attributes),
        }
    )


_boot_told: set[str] = set()


@never_raise
def end_boot(attributes: Attributes, *, error: BaseException | None = None) -> None:
    """The boot is over, well or badly; told once."""
    if boot.span_id in _boot_told:
        return
    _boot_told.add(boot.span_id)
    record: dict[str, Any] = {
        "k": "end",
        "n": SpanName.BOOT,
        "id": boot.span_id,
        "tr": boot.trace_id,
        "t0": boot.start_ns,
        "t": max(time.time_ns(), boot.start_ns),
        "s": "ok",
        "a": clean(attributes),
    }
    if error is not None:
        record["x"] = told_exception(error)
        record["s"] = "error"
        record["a"][Key.ERROR_TYPE] = record["x"]["type"]
        _before_failure()
    write(record)


@never_raise
def hand(attempt: Attempt) -> None:
    """The worker holds this job now."""
    write({"k": "hand", "j": attempt.job_id})


@never_raise
def release(attempt: Attempt, outcome: str) -> None:
    """And now it does not."""
    write({"k": "release", "j": attempt.job_id, "o": outcome})


@never_raise
def resource(attributes: Attributes) -> None:
    write({"k": "resource", "a": clean(attributes)})


@never_raise
def progress() -> None:
    """The handler moves."""
    if page is not None:
        page.set(Page.PROGRESS_BEAT, time.monotonic_ns())


def job_id_text(value: object) -> str:
    """An id as it came, up to its bound."""
    return bounds.clip(value if isinstance(value, str) else str(value), JOB_ID_BYTES)


def clean(attributes: Attributes) -> dict[str, Any]:
    """Values that can be told: strings and arrays within their bounds, absent ones left out."""
    told: dict[str, Any] = {}
    for key, value in attributes.items():
        kind = type(value)
        # The usual kinds first: they are nearly all that a job has.
        if kind is int or kind is bool or kind is float or (kind is str and len(value) < ATTRIBUTE_BYTES // 4):
            told[key] = value
        elif value is not None:
            told[key] = _value(value)
    return told


def _value(value: Any) -> Any:
    if isinstance(value, str):
        text = str(value)
        # What is not cut is redacted by the recorder; what is cut must be so before, while its secrets are whole.
        return text if len(text) < ATTRIBUTE_BYTES // 4 else redacted(text, ATTRIBUTE_BYTES)
    if isinstance(value, Sequence):
        return [_value(item) for item in value[:ARRAY_ITEMS]]
    return value


def type_name(kind: type[BaseException]) -> str:
    """`RuntimeError`, `torch.cuda.OutOfMemoryError`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def told_exception(error: BaseException) -> dict[str, str]:
    """Type, message and stack trace, redacted and within their bounds. Hostile `__str__` is survived."""
    import traceback  # 8 ms, and only a failure needs it

    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__ may do anything
        message = "<message could not be read>"
    try:
        stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001 - same
        stack = ""
    return {
        "type": bounds.clip(type_name(type(error)), MESSAGE_BYTES),
        "message": redacted(message, MESSAGE_BYTES),
        # The end of a trace says most: the exception itself and the frame that raised it.
        "stacktrace": redacted(stack, STACKTRACE_BYTES, keep_end=True),
    }


def redacted(text: str, limit_bytes: int, *, keep_end: bool = False) -> str:
    """`text` without secrets, then cut: a secret is never halved before it is looked for."""
    from sdk_exporter.redaction import redact  # compiled patterns, loaded with the first failure

    if len(text) > REDACTION_INPUT_CHARACTERS:
        if keep_end:
            text = redact(text[-REDACTION_INPUT_CHARACTERS:], truncated=True)
        else:
            text = redact(text[:REDACTION_INPUT_CHARACTERS], open_end=True)
    else:
        text = redact(text)
    return bounds.tail(text, limit_bytes) if keep_end else bounds.clip(text, limit_bytes)


def _before_failure() -> None:
    for action in before_failure:
        action()
