"""Python's own output streams, written on first and then told, for a worker without a launcher above it.

Only the stream's `write` is shadowed, on the object that the user already holds: identity, type and every other
attribute stay, and log handlers made earlier are seen too. Native code and children write past it; they need the
launcher.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final

from sdk_exporter import bounds, events, losses
from sdk_exporter.contract import Loss
from sdk_exporter.guard import never_raise
from sdk_exporter.spool import Page, quoted

PIECE_CHARACTERS: Final = 8_192
"""A longer piece is told in several records."""


class Tee:
    """What was written to one stream since the last whole line, by job."""

    def __init__(self, stream: str, *, handler_logs: bool) -> None:
        self._stream, self._handler_logs = stream, handler_logs
        self._pending: dict[str | None, str] = {}
        self._withheld_bytes: dict[str | None, int] = {}
        self._pending_at_tick: dict[str | None, str] = {}
        self.original: Callable[[str], Any] | None = None
        self.shadow: Callable[[str], Any] | None = None
        self.was_shadowed = False

    def wrap(self, write: Callable[[str], Any]) -> Callable[[str], Any]:
        """`write`, told about afterwards. Its answer and its exceptions pass untouched."""
        self.original = write

        told = self.told

        def teed(text: str, /) -> Any:
            answer = write(text)
            try:
                told(text)
            except Exception:  # noqa: BLE001 - as `never_raise` does, whose own call is a tenth of a line's cost
                losses.record(Loss.INTERNAL_ERROR)
            return answer

        return teed

    def told(self, text: object) -> None:
        """Keep `text`, and tell it as far as its last line end."""
        if not isinstance(text, str):
            return
        attempt = events.current.get()
        job_id = attempt.job_id if attempt is not None else None
        if Tee.run_began and not self._handler_logs:
            size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            self._withheld_bytes[job_id] = self._withheld_bytes.get(job_id, 0) + size
            return
        if self._pending:
            text = self._pending.pop(job_id, "") + text
        if text.endswith("\n") or len(text) >= PIECE_CHARACTERS:
            self._tell(job_id, text)
        elif text:
            self._pending[job_id] = text  # `print` writes the line and its end apart

    def _tell(self, job_id: str | None, text: str) -> None:
        # Raw on purpose: the recorder, on this machine, redacts what it keeps as one text. A piece redacted on its own
        # would hide the half of a secret that tells what the other half is.
        if not text.isascii():
            text = bounds.valid(text)
        whose = "" if job_id is None else f',"j":{quoted(job_id)}'
        for begin in range(0, len(text), PIECE_CHARACTERS):
            events.write_output(f'"st":"{self._stream}","b":{quoted(text[begin : begin + PIECE_CHARACTERS])}{whose}')

    @never_raise
    def settle(self) -> None:
        """Tell what is left of unfinished lines, and how much was withheld."""
        for job_id in list(self._pending):
            self._tell(job_id, self._pending.pop(job_id, ""))
        for job_id in list(self._withheld_bytes):
            record = {"k": "out", "st": self._stream, "w": self._withheld_bytes.pop(job_id, 0)}
            events.write(record if job_id is None else {**record, "j": job_id})

    def tick(self) -> None:
        """On the beat thread: an unfinished line that nothing was added to since the last beat may be the last words
        before a hang."""
        if self._pending == self._pending_at_tick:
            self.settle()
        self._pending_at_tick = dict(self._pending)

    run_began = False
    """Set with the first `job.run`, for good: without consent nothing written after it may leave the worker."""


_tees: list[tuple[Any, Tee]] = []


@never_raise
def install(*, handler_logs: bool) -> None:
    """Shadow `write` on sys.stdout and sys.stderr, where the objects allow it."""
    if _tees:
        return
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        write = getattr(stream, "write", None)
        if stream is None or write is None:
            continue
        tee = Tee(name, handler_logs=handler_logs)
        tee.was_shadowed = "write" in getattr(stream, "__dict__", {})
        tee.shadow = tee.wrap(write)
        try:
            stream.write = tee.shadow
        except (AttributeError, TypeError):
            continue
        _tees.append((stream, tee))


@never_raise
def tick() -> None:
    """Tell what has been held back for a whole beat."""
    for _, tee in list(_tees):
        tee.tick()


@never_raise
def uninstall() -> None:
    """Give `write` back, as it was; where somebody has wrapped it after us, theirs stays."""
    while _tees:
        stream, tee = _tees.pop()
        tee.settle()
        if stream.__dict__.get("write") is not tee.shadow:
            continue
        if tee.was_shadowed:
            stream.write = tee.original
        else:
            del stream.write


@never_raise
def settle() -> None:
    """Tell everything that is still held back."""
    for _, tee in _tees:
        tee.settle()


@never_raise
def run_begins() -> None:
    """A handler starts: settle what belongs to the time before it."""
    if not Tee.run_began:
        settle()
        Tee.run_began = True
        if events.page is not None:
            # Beside the run's record, which a full file may refuse: this word cannot be lost.
            events.page.set(Page.RUN_BEGAN, time.time_ns())


def flush() -> None:
    """Flush the user's streams and settle: what was printed before a failure must be where the recorder finds it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S112 - a closed, replaced or None stream is the user's business
            continue
    settle()
