"""How verdicts speak: durations, names and clauses in plain words."""

from __future__ import annotations

import re
import signal
from datetime import datetime
from typing import Final

from collector.diagnosis.clues import ExceptionClue
from sdk_exporter.bounds import clip

NAME_BYTES: Final = 80
"""Most bytes of a name (hook, worker) inside a sentence; names come from outside."""
MESSAGE_BYTES: Final = 240
"""Most bytes of an exception's message inside a sentence."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f`\u2028\u2029]+")


def name(text: str) -> str:
    """A name from outside, quoted, on one line and bounded."""
    return f"`{clip(_CONTROL.sub(' ', text).strip() or '?', NAME_BYTES)}`"


def one_line(text: str, limit_bytes: int = MESSAGE_BYTES) -> str:
    """The first line of `text` that says something, bounded."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return clip(_CONTROL.sub(" ", first).strip(), limit_bytes)


def flat(text: str, limit_bytes: int) -> str:
    """All lines of `text` as one, bounded."""
    return clip(" ".join(_CONTROL.sub(" ", text).split()), limit_bytes)


def duration(seconds: float) -> str:
    """Seconds in plain words: `12 ms`, `3.1 s`, `45 s`, `2 min 5 s`, `1 h 3 min`."""
    seconds = abs(seconds)
    if seconds < 0.0005:
        return "under 1 ms"
    if seconds < 0.0995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def clock(at: datetime) -> str:
    """Time of day, UTC: `12:00:03.1Z`. The date is beside it wherever this is read."""
    return f"{at:%H:%M:%S}.{at.microsecond // 100_000}Z"


def between(earlier: datetime, later: datetime) -> float:
    """Seconds from `earlier` to `later`; negative where clocks or order say so."""
    return (later - earlier).total_seconds()


def raised(exception: ExceptionClue | None) -> str:
    """`KeyError: 'prompt'`, quoted; "" where no exception is known."""
    if exception is None or not (exception.type or exception.message):
        return ""
    kind = exception.type.rpartition(".")[2]
    message = one_line(exception.message)
    return f"`{clip(_CONTROL.sub(' ', ': '.join(part for part in (kind, message) if part)), MESSAGE_BYTES)}`"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; a number that is no signal here stays a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_number(text: str) -> int | None:
    """9 for `SIGKILL`, or None for what is no signal's name."""
    try:
        return int(signal.Signals[text.strip().upper()])
    except KeyError:
        return None
