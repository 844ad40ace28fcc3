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
from sdk_exporter.spool import Page, Writer, quoted, text_of

REDACTION_INPUT_CHARACTERS: Final = 65_536
"""Of a longer text only the end is looked at, so that one giant message cannot hold up a job."""

_HEX: Final = frozenset("0123456789abcdef")
_ID_BYTES: Final = 8
_IDS_AT_ONCE: Final = 64

UNCUT_CHARACTERS: Final = ATTRIBUTE_BYTES // 4
"""A shorter text is within `ATTRIBUTE_BYTES`, whatever its characters."""

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
        if not _HEX.issuperset("".join(parts[:3])):
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
_pid = 0
page: Page | None = None
boot: Boot = Boot("", "", "", 0)
before_failure: list[Callable[[], None]] = []
"""Called before a failure is written: output printed so far should be where the recorder finds it."""
_ids: list[str] = []
"""Ids of 8 bytes, drawn many at once: one by one the system's randomness is a tenth of what a span costs."""


def new_id(size_bytes: int) -> str:
    """Random id of 8 or 16 bytes, in hex. From the system: the user's `random` state is theirs."""
    return _half() if size_bytes == _ID_BYTES else _half() + _half()


def _half() -> str:
    try:
        return _ids.pop()
    except IndexError:
        drawn = os.urandom(_ID_BYTES * (_IDS_AT_ONCE + 1)).hex()
        ids = [drawn[at : at + 2 * _ID_BYTES] for at in range(0, len(drawn), 2 * _ID_BYTES)]
        _ids.extend(ids[1:])
        return ids[0]


def start(writer: Writer, shared: Page, life: Boot) -> None:
    """From now on, write."""
    global _writer, _pid, page, boot
    _ids.clear()
    _writer, _pid, page, boot = writer, os.getpid(), shared, life


def stop() -> None:
    """From now on, nothing: after uninstrumenting, and in a forked child, which is not the worker."""
    global _writer, page
    _writer = page = None
    _ids.clear()  # a child must not draw its parent's


def enabled() -> bool:
    return _writer is not None


def write(record: dict[str, Any]) -> None:
    """Add time and pid, and hand over. Never raises, never waits."""
    writer = _writer
    if writer is not None:
        record.setdefault("t", time.time_ns())
        record["pid"] = _pid
        writer.write(record)


def write_output(members: str) -> None:
    """The same for an `out` record whose own members are JSON already."""
    writer = _writer
    if writer is not None:
        writer.write_text(f'{{"k":"out",{members},"t":{time.time_ns()},"pid":{_pid}}}', output=True)


@never_raise
def report_losses() -> None:
    for reason, count in losses.take().items():
        write({"k": "loss", "r": reason, "c": count})


class Span:
    """A thing that takes time. `end` counts once; later calls do nothing, from whatever thread they come.

    Both of its records share most of their JSON, which is made once: encoding is most of what a span costs.
    """

    __slots__ = ("_began", "_began_with", "_began_with_text", "_members", "_t0", "attributes", "ended", "span_id",
                 "trace_id")  # fmt: skip

    def __init__(self, name: str, attributes: dict[str, Any], attempt: Attempt | None, parent: Span | None) -> None:
        self.span_id = _half()
        self.trace_id, self._members = _members_of(name, self.span_id, attempt, parent)
        self.attributes = attributes
        self.ended = False
        self._began, self._t0 = time.monotonic_ns(), time.time_ns()
        self._began_with: Attributes | None = None
        self._began_with_text = ""

    def begin(self) -> None:
        writer = _writer
        if writer is not None:
            # In this order: attributes that cannot be told leave the end to try again.
            self._began_with_text = _attributes_text(self.attributes)
            self._began_with = dict(self.attributes)
            writer.write_text(
                f'{{"k":"start",{self._members},"t":{self._t0},"a":{self._began_with_text},"pid":{_pid}}}'
            )

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
        fault = ""
        # Duration by the monotonic clock: a wall clock set meanwhile must not make it negative.
        ended = self._t0 + time.monotonic_ns() - self._began
        if error is not None:
            told = told_exception(error) if isinstance(error, BaseException) else dict(error)
            fault = f',"x":{text_of(told)}'
            self.attributes.setdefault(Key.ERROR_TYPE, told["type"])
            status = "error" if status == "ok" else status
        if attributes:
            self.attributes.update(attributes)
        same = self.attributes == self._began_with
        text = self._began_with_text if same else _attributes_text(self.attributes)
        if status == "error":
            _before_failure()
        writer = _writer
        if writer is not None:
            writer.write_text(
                f'{{"k":"end",{self._members},"t0":{self._t0},"t":{ended}{fault},"a":{text}{_status_text(status)},'
                f'"pid":{_pid}}}'
            )


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
    writer = _writer
    _, members = _members_of(name, _half(), attempt, None)
    if writer is None:
        return
    told, fault = attributes or {}, ""
    if error is not None:
        fault = f',"x":{text_of(error)}'
        told = {**told, Key.ERROR_TYPE: told.get(Key.ERROR_TYPE, error["type"])}
    writer.write_text(
        f'{{"k":"point",{members},"t":{time.time_ns()}{fault},"a":{_attributes_text(told)}{_status_text(status)},'
        f'"pid":{_pid}}}'
    )


def _members_of(name: str, span_id: str, attempt: Attempt | None, parent: Span | None) -> tuple[str, str]:
    """Trace id of a new span, and the members that all its records have in common. Ids are hex, nothing to quote."""
    trace_id, parent_id, link = _place(attempt, parent, span_id)
    text = f'"n":{quoted(name)},"id":"{span_id}","tr":"{trace_id}"'
    if parent_id is not None:
        text += f',"pa":"{parent_id}"'
    if attempt is not None:
        text += f',"j":{quoted(attempt.job_id)}'
    if link is not None:
        text += f',"li":["{link[0]}","{link[1]}"]'
    return trace_id, text


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


def _attributes_text(attributes: Attributes) -> str:
    """As JSON. Only what may be too long or absent is looked at one by one."""
    text = text_of(attributes)
    if len(text) < UNCUT_CHARACTERS and "null" not in text:
        return text
    return text_of(clean(attributes))


def _status_text(status: str | None) -> str:
    return "" if status is None else f',"s":"{status}"'


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
        if kind is int or kind is bool or kind is float or (kind is str and len(value) < UNCUT_CHARACTERS):
            told[key] = value
        elif value is not None:
            told[key] = _value(value)
    return told


def _value(value: Any) -> Any:
    if isinstance(value, str):
        text = str(value)
        # What is not cut is redacted by the recorder; what is cut must be so before, while its secrets are whole.
        return text if len(text) < UNCUT_CHARACTERS else redacted(text, ATTRIBUTE_BYTES)
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
