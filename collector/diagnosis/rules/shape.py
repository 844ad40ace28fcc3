"""What a rule is made of: one cause, the texts that tell it, what speaks against them, and what to say about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from collector.diagnosis.answer import Fault, Missing, Retry
from collector.diagnosis.clues import CluePhase
from collector.diagnosis.rules.needles import needles_of


class Tier(IntEnum):
    """How specific a text is. A higher tier wins wherever it stands; within one tier the earliest line wins."""

    HARDWARE = 6  # a broken card explains whatever else went wrong (taxonomy, boundary rule 2)
    RESOURCE = 5  # what ran out beats the library that noticed (rule 3)
    SPECIFIC = 4  # names the cause
    HINT = 3  # names a cause that often is itself a consequence, or has two readings
    LAST_RESORT = 2  # true, but only where nothing names why (rule 14)
    CRASH = 1  # the process died or raised, and that is all; here the earliest wins too
    REPORT = 0  # says that something failed, not what; an exception that nothing explains says more


Strength = Literal["certain", "likely", "possible"]

# Lines on each side that `near` looks at: a traceback of usual depth, printed with code lines and carets.
NEAR_LINES = 40


@dataclass(frozen=True, slots=True)
class Signal:
    """One text that tells a cause.

    `pattern` is searched in one line, letter case aside; one with an alternative that begins with `^` is searched in
    the message alone, behind timestamps and process names. `unless` is a counter-signal in the same line, `near` and
    `unless_near` are looked for in the lines around. `says` is a clause for after "because" (see `fill`).
    """

    pattern: str
    why: str
    examples: tuple[str, ...]
    tier: Tier = Tier.SPECIFIC
    strength: Strength = "certain"
    unless: str | None = None
    near: str | None = None
    unless_near: str | None = None
    near_lines: int = NEAR_LINES  # before; half as many behind
    phases: tuple[CluePhase, ...] = ()  # empty: any phase, known or not
    not_phases: tuple[CluePhase, ...] = ()
    errors_only: bool = False  # only in an exception's or error's own line, and not in a plain programming error
    lead: str | None = None  # a line just before that opens the same message, and is the better one to show
    says: str = ""
    fault: Fault | None = None
    retry: Retry | None = None
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Detail:
    """A value worth repeating, looked for in the root-cause line and the lines behind it."""

    name: str
    pattern: str  # one group


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause. `because` and `advice` are templates for `fill`; `missing` is what would settle a possible one."""

    code: str
    fault: Fault
    retry: Retry
    because: str
    advice: tuple[str, ...]
    signals: tuple[Signal, ...]
    details: tuple[Detail, ...] = ()
    missing: tuple[Missing, ...] = ()
    quotes: bool = False  # where no detail is found, the line's own message completes the sentence


@dataclass(frozen=True, slots=True)
class CompiledSignal:
    """A signal made ready: its patterns compiled, and the literal texts one of which each match contains."""

    rule: Rule
    signal: Signal
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    at_start: bool
    unless: re.Pattern[str] | None
    near: re.Pattern[str] | None
    unless_near: re.Pattern[str] | None
    lead: re.Pattern[str] | None


# "INFO" in a counter-signal is the level that a line is told at, not the word.
_LEVEL_INFO = r"(?-i:(?<!NCCL_DEBUG=)\bINFO\b)"


def compile_signal(rule: Rule, signal: Signal) -> CompiledSignal:
    """Raises ValueError where no literal text can be found that every match contains (see `needles`)."""
    return CompiledSignal(
        rule=rule,
        signal=signal,
        needles=needles_of(signal.pattern),
        pattern=re.compile(signal.pattern, re.IGNORECASE),
        at_start=signal.pattern.startswith("^") or "|^" in signal.pattern,
        unless=_compiled(None if signal.unless is None else signal.unless.replace(r"\bINFO\b", _LEVEL_INFO)),
        near=_compiled(signal.near),
        unless_near=_compiled(signal.unless_near),
        lead=_compiled(signal.lead),
    )


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern, re.IGNORECASE)


_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_FIELD = re.compile(r"\{(\w+)\}")


def fill(template: str, values: dict[str, str]) -> str | None:
    """The template with `{name}` replaced; a part in [brackets] goes where a value in it is missing.

    None where a value outside brackets is missing. Brackets do not nest.
    """
    kept = _OPTIONAL.sub(lambda part: part[1] if _has_all(part[1], values) else "", template)
    if not _has_all(kept, values):
        return None
    return _FIELD.sub(lambda found: values[found[1]], kept)


def _has_all(part: str, values: dict[str, str]) -> bool:
    return all(values.get(name) for name in _FIELD.findall(part))


__all__ = [
    "NEAR_LINES",
    "CompiledSignal",
    "Detail",
    "Missing",
    "Rule",
    "Signal",
    "Strength",
    "Tier",
    "compile_signal",
    "fill",
]
