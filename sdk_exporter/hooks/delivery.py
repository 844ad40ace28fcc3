"""A result on its way back: one `job.deliver` per try, and what became of it.

The SDK tells nobody: a refused result ends in the same log lines as a delivered one.
"""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from typing import Any

from sdk_exporter import events
from sdk_exporter.contract import Key, SpanName
from sdk_exporter.events import Attempt, Span
from sdk_exporter.guard import never_raise

current: ContextVar[Delivery | Chunk | None] = ContextVar("stallscope_delivery", default=None)
"""What the HTTP trace's requests belong to."""


class Delivery:
    """All tries of one result."""

    __slots__ = ("_attempt", "_bytes", "_error", "_span", "_status", "_tries", "is_delivered", "is_over")

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._span: Span | None = None
        self._tries = self._bytes = 0
        self._status: int | None = None
        self._error: BaseException | None = None
        self.is_delivered = False
        self.is_over = False

    @property
    def outcome(self) -> str:
        """Word for the release."""
        if self.is_delivered:
            return "delivered"
        return "refused" if self._tries else "undeliverable"

    @never_raise
    def try_begins(self) -> None:
        self._end_try(is_last=False)
        self._tries += 1
        self._bytes = 0
        self._status = self._error = None
        self._span = events.begin(SpanName.JOB_DELIVER, {Key.DELIVER_ATTEMPT: self._tries}, attempt=self._attempt)
        events.progress()

    def sent(self, size_bytes: int) -> None:
        self._bytes += size_bytes

    def answered(self, status: int) -> None:
        self._status = status

    @never_raise
    def failed(self, error: BaseException) -> None:
        self._error = error
        status = getattr(error, "status", None)
        if isinstance(status, int) and status:
            self._status = status

    def _end_try(self, *, is_last: bool) -> None:
        """The try ends when the next begins or the SDK gives up: only then it is known which was the last."""
        if self._span is None or self._span.ended:
            return
        is_ok = self._error is None and self._status is not None and self._status < 400
        if is_last:
            self.is_delivered = is_ok
        attributes: dict[str, Any] = {Key.DELIVER_BYTES: self._bytes, Key.DELIVER_LAST: is_last}
        if self._status is not None:
            attributes[Key.HTTP_STATUS] = self._status
        error = self._error
        if not is_ok and error is None:
            attributes[Key.ERROR_TYPE] = str(self._status)  # OpenTelemetry: the status, where no exception tells more
        self._span.end("ok" if is_ok else "error", error=error, attributes=attributes)

    @never_raise
    def over(self, job_data: Any, error: BaseException | None) -> None:
        """The SDK is done with it. Without a try, the result could not be put into JSON."""
        if self.is_over:
            return
        self.is_over = True
        if error is not None and self._error is None and self._status is None:
            self._error = error
        self._end_try(is_last=True)
        if self._tries == 0 and not isinstance(error, asyncio.CancelledError):
            span = events.begin(SpanName.JOB_DELIVER, {Key.DELIVER_ATTEMPT: 1}, attempt=self._attempt)
            span.end(error=error or _why_unserialisable(job_data), attributes={Key.DELIVER_LAST: True})


def outcome_of_failure(told: Delivery | None) -> str:
    """Word for the release of a request that was failed with prestart, unless nobody could be told."""
    return "prestart_failed" if told is None or told.is_delivered else told.outcome


class Chunk:
    """All tries of one chunk of a stream. No span of its own: there may be thousands, and none decides the request."""

    __slots__ = ("is_delivered",)

    def __init__(self) -> None:
        self.is_delivered = False

    def try_begins(self) -> None:
        self.is_delivered = False
        events.progress()

    def sent(self, size_bytes: int) -> None:
        pass

    def answered(self, status: int) -> None:
        self.is_delivered = status < 400

    def failed(self, error: BaseException) -> None:
        self.is_delivered = False


def _why_unserialisable(job_data: Any) -> Exception:
    """The SDK has swallowed the reason; asking again costs little, and only where the result is lost anyway."""
    try:
        json.dumps(job_data, ensure_ascii=False).encode()
    except Exception as error:  # noqa: BLE001 - this is the answer
        return error
    return RuntimeError("the result was never sent")
