"""Where the signals of all rules are found in a reading. One look per literal text, patterns only where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from collector.diagnosis.clues import CluePhase
from collector.diagnosis.reading import Reading, Statement, is_raise
from collector.diagnosis.rules.shape import CompiledSignal, Rule, Strength, Tier

# A literal text may stand on every line of a tail; what the first two dozen different lines do not tell, more do not.
_LOOKS = 24
_HITS = 6
_WINDOW_BEFORE, _WINDOW_AFTER = 400, 700  # characters around the literal text in a line longer than both
_WINDOWS = 2  # of one line; what its first few thousand characters do not tell, a line of many more is not asked
# What such words say is a guess of the program, not an observation.
_HEDGE = re.compile(
    r"It might have run out of memory\?|There are some potential root causes\..*"
    r"|[Pp]ossible (?:root )?(?:reasons|causes)(?: include)?[ :].*"
    r"|System call \(e\.g\. socket, malloc\) or external library call failed or device error"
    r"|(?:This|It) (?:may|might|could|can) (?:also )?be (?:due to|caused by"
    r"|because of)(?! insufficient shared)[^\n.]*|This typically happens when[^\n]*"
    r"|(?:usually|often|typically) (?:means|caused by|indicates)[^\n.]*|such as [^\n.]*"
    # what callers wrote is not what happened
    r"|\b(?:prompt|query)['\"]?\s?[:=]\s?(?:'[^'\n]*'|\"[^\"\n]*\")"
    r"|CUDA kernel errors might be asynchronously.*"
    r"|If reserved (?:but unallocated )?memory is .*|[Ii]f you (?:are|see|get|encounter|run|have"
    r"|want|experience|need)\b[^\n.]*|\bto avoid [^\n.,]*"
    r"|\b(?:may|might|could) (?:run out|fail|happen|occur)\b[^\n.]*"
    # nor is a value that could not be read (one without a space may be a setting's)
    r"|(?:\bliteral|to float)\b[^'\"\n]{0,30}'[^'\n ]* [^'\n]*'"
    r"|(?:\bpars(?:e|ing)|\btoken|of the model|\brepl(?:y|ied)|\banswer(?:ed)?|model output)\b"
    r"[^'\"\n]{0,30}(?:'[^'\n]*'|\"[^\"\n]*\")"
    r"|\binput_value=[^\n]*?(?=, input_type=|$)"
    r"|['\"]role['\"]: ?['\"]\w{1,20}['\"], ?['\"]content['\"]: ?(?:'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\")",
    re.DOTALL,
)
# Lines that repeat what callers sent, what the program was told, or what it can be told: no reports of what happened.
_ECHO = re.compile(
    r"^(?:(?:INFO|DEBUG|TRACE)\b[ :|]{1,4})?(?:"
    r"[^:={\n]{0,60}?\b(?:request|input|payload|messages?|job|event|body|data|params"
    r"|parameters)s? ?[:=]? ?[\[{]\s?['\"]"
    r"(?!error|detail|message['\"]|status|code)\w"
    r"|(?:(?:user|received|incoming|new|got|processing) ){0,2}(?:user message|prompt|question|query|user input"
    r"|user text|chat message|instruction|transcript(?:ion)?|caption|completion|generated text)s? ?[:=]"
    r"|[^:={\n]{0,40}?\b(?:config|configuration|settings|args|arguments|options|env|environment|kwargs|policy"
    r"|defaults) ?[:=] ?[\[{(]\s?['\"\w]"
    r"|[^:={\n]{0,40}?\b(?:Namespace|\w{1,30}Args|\w{1,30}Config)\(\w+=|non-default args"
    r"|\s*(?:-\w,? )?--[a-z][\w-]{1,60}(?:[ =,\[]|$)|(?:\++ )?(?:echo|printf) ['\"$]"
    r"|\[(?:user|assistant|human|bot|ai)\] |(?:user|assistant|human) ?[>:] "
    r"|> (?!\S*error|[^\n]{0,40}(?:error|fail))[a-z])",
    re.IGNORECASE,
)
_HEDGE_HINT = re.compile(
    r"might|potential|ossible|e\.g\.|may |could |can |ypically|sually|often|such as|f reserved|f you |o avoid "
    r"|prompt|query|pars[ei]|literal|to float|token|of the model|repl[yi]|answer|model output|input_value|role"
)
# What stands in quotes on a line that itself complains of nothing: a text that is dealt with, not one that is told.
_QUOTED = re.compile(r"(?<![\w=])(?:'[^'\n]{1,400}'|\"[^\"\n]{1,400}\")(?!\w)")
_FIELDS = re.compile(r"= ?['\"]|\{")  # a record: its values are the report
_SPEAKER = re.compile(r"\W{0,3}(?:user|assistant|human) \| ", re.IGNORECASE)
_TELLS = re.compile(
    r"error|warn|fatal|crit|fail|invalid|refus|reject|exceed|unable|cannot|could|can't|\bnot?\b|n't|missing|denied"
    r"|exception|abort|killed|died|exit|out of|insufficient|panic|raise|unknown|signal|back-?off|reason|status|level",
    re.IGNORECASE,
)
_COMPLAINS = re.compile(
    r"error|warn|fatal|crit|fail|invalid|refuse|reject|exceed|\bbad\b|unable|cannot|respon|repl(?:y|ied)|answer"
    r"|returned",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Hit:
    """A signal found in a statement, and how much it is worth there."""

    found: CompiledSignal
    index: int  # of the statement
    values: dict[str, str]
    tier: Tier
    strength: Strength

    @property
    def rule(self) -> Rule:
        return self.found.rule


def hits_of(
    reading: Reading, signals: Sequence[CompiledSignal], worth: Iterable[tuple[int, list[str]]], phase: CluePhase | None
) -> list[Hit]:
    """All hits, in the order of the tail. `worth`: which signals to look at, from `NeedleIndex.worth`."""
    observed: dict[int, str] = {}
    hits = [
        hit
        for number, needles in worth
        if _fits(signals[number], phase)
        for hit in _hits(reading, signals[number], needles, observed)
    ]
    return sorted(hits, key=lambda hit: (hit.index, -hit.tier))


def _fits(found: CompiledSignal, phase: CluePhase | None) -> bool:
    signal = found.signal
    return (not signal.phases or phase in signal.phases) and phase not in signal.not_phases


def _hits(reading: Reading, found: CompiledSignal, needles: Sequence[str], observed: dict[int, str]) -> list[Hit]:
    hits: list[Hit] = []
    seen_index, seen_offset, windows = -1, 0, 0
    for index, offset in places_of(reading, needles):
        if index == seen_index and offset <= seen_offset + _WINDOW_AFTER // 2:
            continue  # the window that was looked at holds it
        windows = windows + 1 if index == seen_index else 1
        seen_index, seen_offset = index, offset
        if windows > _WINDOWS:
            continue
        said = reading.statements[index]
        if said.repeat or said.harmless or said.frame or (said.code and not is_raise(said)):
            continue
        if found.signal.errors_only and not _speaks(said):
            continue
        if index not in observed:
            observed[index] = "" if _is_echo(said) else _observed(said)
        if not observed[index]:
            continue
        match = _search(found, said, observed[index], offset)
        if match is None or _countered(reading, found, said, index):
            continue
        values = {name: value for name, value in match.groupdict().items() if value}
        tier, strength = found.signal.tier, found.signal.strength
        hits.append(Hit(found, index, values, *((Tier.LAST_RESORT, "possible") if said.code else (tier, strength))))
        if len(hits) == _HITS:
            break
    return hits


def places_of(reading: Reading, needles: Sequence[str], most: int = _LOOKS) -> Iterator[tuple[int, int]]:
    """Statements that hold one of the texts, and where in them it stands; each statement once per text."""
    places: list[tuple[int, int]] = []
    for needle in needles:
        at, looks = reading.blob.find(needle), 0
        while at >= 0 and looks < most:
            index = reading.at(at)
            places.append((index, at - reading.starts[index]))
            looks += 1
            at = reading.blob.find(needle, reading.starts[index] + len(reading.statements[index].text))
    return iter(sorted(places) if len(needles) > 1 else places)


# Exceptions whose message is made by the interpreter: it names no cause beyond the slip itself.
_SLIPS = re.compile(
    r"(?:Key|Type|Attribute|Index|Name|UnboundLocal|ZeroDivision|Assertion|Indentation|Syntax|Recursion)Error$"
)


def is_slip(said: Statement) -> bool:
    """Whether this exception is a plain programming error."""
    return _SLIPS.search(said.exception) is not None


def _speaks(said: Statement) -> bool:
    """Whether the line is an error that somebody put into words."""
    return not is_slip(said) if said.exception else said.level == "error"


def _is_echo(said: Statement) -> bool:
    """Whether the line repeats what somebody sent or set; what is told at level error, or names a failure, does not."""
    if said.exception or said.code:
        return False
    if _SPEAKER.match(said.text):
        return True
    found = _ECHO.match(said.core)
    return found is not None and not _COMPLAINS.search(said.text[: len(said.text) - len(said.core)] + found[0])


def _observed(said: Statement) -> str:
    """What the statement says without its guesses and what it only quotes, in the same places."""
    text = said.text
    if _HEDGE_HINT.search(text):
        text = _HEDGE.sub(_blank, text)
    if _only_quotes(said):
        text = _QUOTED.sub(_blank, text)
    return text


def _only_quotes(said: Statement) -> bool:
    """Whether no word outside the quotes of this line, which is no error and no record, tells of a failure."""
    if said.exception or said.code or said.level in ("warning", "error") or said.core[:1] in ("{", "[", "'", '"', ""):
        return False
    if len(said.text) > 2000 or _FIELDS.search(said.text) or not _QUOTED.search(said.text):
        return False
    return not _TELLS.search(_QUOTED.sub("", said.text))


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _search(found: CompiledSignal, said: Statement, text: str, offset: int) -> re.Match[str] | None:
    if found.at_start:
        return found.pattern.search(said.core[: _WINDOW_BEFORE + _WINDOW_AFTER])
    return found.pattern.search(text[max(0, offset - _WINDOW_BEFORE) : offset + _WINDOW_AFTER])


def _countered(reading: Reading, found: CompiledSignal, said: Statement, index: int) -> bool:
    if found.unless and found.unless.search(said.text[:2000]):
        return True
    if not (found.near or found.unless_near):
        return False
    around = reading.around(index, found.signal.near_lines, found.signal.near_lines // 2)
    if found.near and not found.near.search(around):
        return True
    return bool(found.unless_near and found.unless_near.search(around))
