"""The end of the output, ready to leave: controls resolved, secrets out, then cut. Raw bytes stay in this process."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sdk_exporter import redaction
from sdk_exporter.contract import JOB_ID_BYTES, LOG_OVERLAP_BYTES, Key, LogScope, LogStream
from sdk_exporter.recorder.condense import condense
from sdk_exporter.recorder.progress import without_progress
from sdk_exporter.recorder.shared import CHUNKS, RUN_BEGAN, Shared, StreamField

_JOBS: Final = 64
"""Jobs whose own output is kept; the one that printed least recently leaves first."""

_LOOK_BACK_TIMES: Final = 8
_LOOK_BACK_BYTES: Final = 256 * 1024
_ACROSS_RESTART_BYTES: Final = 32 * 1024
"""Of what was printed before the first run, the part that a recorder after us gets."""

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_=>])")
_CONTROL: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of the output that may leave, unredacted: never handed to anything but `Cleaner.clean`."""

    data: bytes
    seen: int
    """Bytes that the stream or the job has written so far."""
    withheld: int
    """Those of them that may not leave (`STALLSCOPE_HANDLER_LOGS`, `STALLSCOPE_LOG_CAPTURE`)."""
    scope: LogScope
    stream: LogStream
    exact: bool
    """False where only Python's own streams are seen: native code and children may have written more."""
    open_end: bool
    """True while more may follow: the last word may be half a secret."""
    left_out: int = 0
    """Bytes that were taken out of the data: lines of the worker SDK about itself."""

    @property
    def truncated(self) -> bool:
        """True where the data begins in the middle of the stream."""
        return self.seen - self.withheld > len(self.data) + self.left_out

    def without_progress(self) -> Raw:
        """For a tail of what user code printed while it started."""
        kept = without_progress(self.data)
        return replace(self, data=kept, left_out=len(self.data) - len(kept))


class RedactionFailed(Exception):
    """No tail is made: unredacted text does not leave."""


class Cleaner:
    """Turns output into text that may leave."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._known = redaction.KnownValues(redaction.secret_values(dict(environ)))
        self._mask_emails = environ.get("STALLSCOPE_MASK_EMAILS", "").strip().lower() not in ("off", "false", "0", "no")

    def text(self, text: str, *, truncated: bool = False, open_end: bool = False) -> str:
        """`text` without secrets; raises RedactionFailed."""
        try:
            clean = self._known.redact(redaction.redact(text, truncated=truncated, open_end=open_end))
            return redaction.mask_emails(clean) if self._mask_emails else clean
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer is to send nothing
            # No cause and no text in it: a traceback of ours must not carry what was to be kept back.
            raise RedactionFailed(type(error).__name__) from None

    def tail(self, raw: Raw, limit_bytes: int) -> tuple[str, int, bool]:
        """(text of at most `limit_bytes`, redactions in it, whether something before it is missing)."""
        data = raw.data
        if raw.truncated:
            # Up to the first border of a line, a progress bar's included: what is before it may be half a secret.
            border = re.search(rb"[\r\n]", data)
            data = b"\n" + data[border.end() :] if border else data
        text = self.text(plain(data.decode("utf-8", "replace")), truncated=raw.truncated, open_end=raw.open_end)
        kept, cut = condense(text.lstrip("\n") if raw.truncated else text, limit_bytes)
        return kept, redaction.count(kept), cut or raw.truncated


def plain(text: str) -> str:
    """What a terminal would show in the end: no escape sequences, of a progress bar the last state, no controls."""
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\0", "\n")
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return _CONTROL.sub("", text)


def _last_state(line: str) -> str:
    """What `\\r` leaves of a line; a bare `\\r` at its end clears nothing yet."""
    return next((state for state in reversed(line.split("\r")) if state), "")


class PipeOutput:
    """The worker's output as the keeper left it in shared memory: nothing is copied until a tail is wanted."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._cut: int | None = None
        self._allowed = 0
        self._before_run: bytes | None = None
        self._began = time.time_ns()
        if shared.get(RUN_BEGAN):
            # The gate has a word of its own: a recorder that finds no snapshot must not open it again.
            self.close_at(shared.get(RUN_BEGAN), 0)

    def close_at(self, run_began_ns: int, keep_bytes: int) -> None:
        """From now on, what arrived after `run_began_ns` may not leave. The end of what came before is kept aside,
        since newer output takes its room."""
        if self._cut is not None:
            return
        self._shared.set(RUN_BEGAN, max(1, run_began_ns))
        head = self._shared.chunks
        cut, after = head, 0
        # A clock that was set back must not open the gate: the first chunk that is too new closes it for all behind.
        for number in range(max(0, head - CHUNKS), head):
            arrived, _, length, _ = self._shared.chunk(number)
            if arrived > run_began_ns and cut == head:
                cut = number
            after += length if number >= cut else 0
        self._allowed = self._total() - after
        self._before_run = self._collect(cut, keep_bytes)
        self._cut = cut

    def worker(self, keep_bytes: int) -> Raw:
        """All that may leave. Of two pipes the order is that of arrival: combined as well."""
        seen = self._total()
        if self._cut is None:
            data, withheld = self._collect(self._shared.chunks, keep_bytes), 0
        else:
            data, withheld = self._before_run or b"", max(0, seen - self._allowed)
        return Raw(data, seen, withheld, LogScope.WORKER, LogStream.COMBINED, True, True)

    def quiet_seconds(self) -> float:
        """Since the last output, or since we began where there was none."""
        head = self._shared.chunks
        last = self._shared.chunk(head - 1)[0] if head else self._began
        return max(0.0, (time.time_ns() - last) / 1e9)

    def since(self, begin_ns: int, keep_bytes: int) -> Raw:
        """What came after `begin_ns`: whoever printed it, hence the worker's."""
        head, seen = self._shared.chunks, 0
        for number in range(max(0, head - CHUNKS), head):
            arrived, _, length, _ = self._shared.chunk(number)
            seen += length if arrived >= begin_ns else 0
        closed = self._cut is not None
        data = b"" if closed else self._collect(head, keep_bytes, begin_ns)
        return Raw(data, seen, seen if closed else 0, LogScope.WORKER, LogStream.COMBINED, True, True)

    def _total(self) -> int:
        return sum(self._shared.field(stream, StreamField.HEAD) for stream in (0, 1))

    def _collect(self, end: int, keep_bytes: int, since_ns: int | None = None) -> bytes:
        """Backwards from chunk `end`, until enough or until newer output has taken the room."""
        pieces: list[bytes] = []
        wanted, number = keep_bytes, end - 1
        while wanted > 0 and number >= 0 and self._shared.chunks - number < CHUNKS:
            arrived, stream, length, offset = self._shared.chunk(number)
            if since_ns is not None and arrived < since_ns:
                break
            size = min(length, wanted)
            piece = self._shared.bytes_of(stream, offset + length - size, size)
            if piece is None:
                break
            pieces.append(piece)
            wanted -= len(piece)
            number -= 1
        return b"".join(reversed(pieces))

    # ------------------------------------------------------------------------------------------ across a restart

    def to_json(self) -> dict[str, Any]:
        """The gate's state. It holds raw text and goes to shared memory only."""
        before = None if self._before_run is None else self._before_run[-_ACROSS_RESTART_BYTES:].decode("latin-1")
        return {"cut": self._cut, "allowed": self._allowed, "before": before}

    def restore(self, saved: Mapping[str, Any]) -> None:
        before = saved.get("before")
        if saved.get("cut") is None:
            return
        self._cut, self._allowed = saved["cut"], saved.get("allowed", 0)
        self._before_run = None if before is None else before.encode("latin-1")


class PythonOutput:
    """Output of Python's own streams as the worker's tee told it, with the job that printed each piece."""

    def __init__(self) -> None:
        self._worker = _Kept()
        self._jobs: dict[str, _Kept] = {}
        self._began: int | None = None

    def add(self, record: Mapping[str, Any], keep_bytes: int) -> None:
        """Takes an `out` record."""
        text, job, at = record.get("b"), record.get("j"), record.get("t")
        if isinstance(job, str) and len(job) > JOB_ID_BYTES:
            job = None
        withheld = record.get("w")
        if isinstance(withheld, int) and not isinstance(withheld, bool) and withheld > 0:
            self._worker.withhold(withheld)
            if isinstance(job, str):
                self._of(job).withhold(withheld)
        if not isinstance(text, str) or not isinstance(at, int):
            return
        data = text.encode("utf-8", "replace")
        closed = self._began is not None and at > self._began
        self._worker.add(data, keep_bytes, closed=closed)
        if isinstance(job, str):
            self._of(job).add(data, keep_bytes, closed=closed)

    def _of(self, job: str) -> _Kept:
        kept = self._jobs.pop(job) if job in self._jobs else _Kept()
        self._jobs[job] = kept
        if len(self._jobs) > _JOBS:
            del self._jobs[next(iter(self._jobs))]
        return kept

    def close_at(self, run_began_ns: int) -> None:
        """From now on, what was written after `run_began_ns` may not leave."""
        if self._began is None:
            self._began = run_began_ns

    def worker(self) -> Raw:
        return self._worker.raw(LogScope.WORKER)

    def job(self, job: str | None) -> Raw | None:
        """What this job printed, None where it printed nothing that could be tied to it."""
        kept = self._jobs.get(job) if job is not None else None
        return None if kept is None else kept.raw(LogScope.JOB)

    def forget(self, job: str) -> None:
        self._jobs.pop(job, None)

    @property
    def seen(self) -> bool:
        return self._worker.seen > 0


class _Kept:
    """The newest pieces of one text, bounded."""

    def __init__(self) -> None:
        self.seen = self.withheld = 0
        self._size = 0
        self._pieces: deque[bytes] = deque()

    def withhold(self, count: int) -> None:
        self.seen += count
        self.withheld += count

    def add(self, data: bytes, keep_bytes: int, *, closed: bool) -> None:
        if closed:
            self.withhold(len(data))
            return
        self.seen += len(data)
        data = data[-keep_bytes:] if keep_bytes else b""
        self._pieces.append(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= keep_bytes and len(self._pieces) > 1:
            self._size -= len(self._pieces.popleft())

    def raw(self, scope: LogScope) -> Raw:
        return Raw(b"".join(self._pieces), self.seen, self.withheld, scope, LogStream.COMBINED, False, True)


def keep_bytes(tail_bytes: int) -> int:
    """Raw bytes to take for a tail of so many: the root of a failure stands far before its end, and the overlap lets a
    secret be whole when it is looked for."""
    return min(_LOOK_BACK_TIMES * tail_bytes, _LOOK_BACK_BYTES) + LOG_OVERLAP_BYTES if tail_bytes else 0


def attributes_of(raw: Raw, cleaner: Cleaner, limit_bytes: int, *, ship: bool) -> dict[str, Any]:
    """The attributes `stallscope.log.*`; without a text where it may not leave. Raises RedactionFailed."""
    facts: dict[str, Any] = {
        Key.LOG_STREAM: str(raw.stream),
        Key.LOG_SCOPE: str(raw.scope),
        Key.LOG_BYTES_SEEN: raw.seen,
        Key.LOG_BYTES_WITHHELD: raw.withheld if ship else raw.seen,
    }
    if not ship or limit_bytes <= 0 or (raw.withheld and not raw.data):
        # Missing is not empty: without a text the key is absent.
        return {**facts, Key.LOG_COMPLETE: False}
    text, redactions, cut = cleaner.tail(raw, limit_bytes)
    dropped = max(0, raw.seen - raw.withheld - len(text.encode())) if cut else raw.left_out
    complete = raw.exact and not (cut or raw.withheld or raw.left_out)
    return {
        **facts,
        Key.LOG_TAIL: text,
        Key.LOG_BYTES_DROPPED: dropped,
        Key.LOG_REDACTIONS: redactions,
        Key.LOG_COMPLETE: complete,
    }
