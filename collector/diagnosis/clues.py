"""What a cause can be read from, and the cause that was read: the border between lifecycle rules and tail reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collector.diagnosis.answer import Confidence, Fault, Missing, Retry

CluePhase = Literal["boot", "prestart", "queue", "handler", "stop", "shutdown"]


@dataclass(frozen=True, slots=True)
class ExceptionClue:
    """An exception as the worker saw it, redacted. `stacktrace` may be empty."""

    type: str
    message: str
    stacktrace: str = ""


@dataclass(frozen=True, slots=True)
class Clues:
    """Everything that can tell why. None means "not known", never "no"."""

    text: str = ""  # the log tail, at most 16 KiB, its first line may be cut
    exception: ExceptionClue | None = None
    phase: CluePhase | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom_kill: bool | None = None


@dataclass(frozen=True, slots=True)
class Cause:
    """Why, as a taxonomy code (`docs/verdicts.md`). `unknown` says what was looked for in `explanation`.

    `line` is the root-cause line of `Clues.text`, verbatim, and `line_number` its place counted from 1; both None
    where the text does not hold it. `explanation` is a clause that fits after "because".
    """

    code: str
    confidence: Confidence
    fault: Fault
    retry: Retry
    explanation: str
    line: str | None = None
    line_number: int | None = None
    advice: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()
