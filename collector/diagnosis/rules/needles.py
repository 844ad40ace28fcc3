"""Literal texts that every match of a pattern must contain: a cheap look that spares hundreds of patterns per tail.

Understands what the rules use: literals, escapes, classes, groups, alternatives, quantifiers. Look-arounds and
back-references count as unknown text.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST = 3  # bytes; anything shorter is found nearly everywhere and spares nothing
_WORD = 5  # letters: a shorter plain word stands in many lines
GRAM = 4  # characters: a text that holds a needle holds all the needle's runs of this length
_ESCAPED_CLASSES = "dDwWsSbBAZ"


def needles_of(pattern: str) -> tuple[str, ...]:
    """Lower-case texts, one of which is in each match. Raises ValueError where the pattern promises none."""
    found, end = _alternatives(pattern, 0)
    if end != len(pattern):
        raise ValueError(f"unbalanced pattern: {pattern}")
    if not found or min(len(needle.encode()) for needle in found) < SHORTEST:
        raise ValueError(f"no literal text of {SHORTEST} bytes in each alternative: {pattern}")
    return tuple(sorted({needle.lower() for needle in found}))


def grams_of(text: str) -> frozenset[str]:
    """All runs of GRAM characters in a text."""
    return frozenset(map("".join, zip(*(text[start:] for start in range(GRAM)), strict=False)))


class NeedleIndex:
    """Which of many patterns are worth a look in a text: one set operation instead of a search per needle."""

    def __init__(self, patterns: Iterable[Iterable[str]]) -> None:
        self._by_gram: dict[str, list[tuple[int, str, frozenset[str]]]] = {}
        self._short: list[tuple[int, str]] = []
        for number, needles in enumerate(patterns):
            for needle in needles:
                if len(needle) < GRAM:
                    self._short.append((number, needle))
                else:
                    self._by_gram.setdefault(_rarest(needle), []).append((number, needle, grams_of(needle)))

    def worth(self, grams: frozenset[str]) -> list[tuple[int, list[str]]]:
        """Pattern numbers, in order, with those of their needles that a text of these grams may hold."""
        found: dict[int, list[str]] = {}
        for gram in self._by_gram.keys() & grams:
            for number, needle, every in self._by_gram[gram]:
                if every <= grams:
                    found.setdefault(number, []).append(needle)
        for number, needle in self._short:
            found.setdefault(number, []).append(needle)
        return sorted((number, sorted(needles)) for number, needles in found.items())


def _rarest(needle: str) -> str:
    """The run that plain English and log lines hold least often: the one with the least common letters."""
    return min(grams_of(needle), key=lambda gram: (sum(_COMMON.get(char, 0) for char in gram), gram))


# Letters of log text by rough share, in percent; what is not here is rarer.
_COMMON = dict(
    zip(" eatoinrslcdmpuf_.g/0", (14, 9, 7, 7, 6, 6, 6, 6, 5, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2), strict=True)
)


def _alternatives(pattern: str, at: int) -> tuple[tuple[str, ...], int]:
    """The needles of `a|b|c` up to the closing bracket or the end; empty where one alternative has none."""
    every: list[tuple[str, ...]] = []
    while True:
        one, at = _sequence(pattern, at)
        every.append(one)
        if at >= len(pattern) or pattern[at] != "|":
            break
        at += 1
    return (tuple(needle for one in every for needle in one) if all(every) else ()), at


def _sequence(pattern: str, at: int) -> tuple[tuple[str, ...], int]:
    """The best needles of one alternative: the set whose least worthy member is worthiest."""
    sets: list[tuple[str, ...]] = []
    run = ""
    while at < len(pattern) and pattern[at] not in "|)":
        literal, group, at = _item(pattern, at)
        optional, counted, at = _quantifier(pattern, at)
        if literal and not optional:
            run += literal
        if not literal or optional or counted:
            sets.append((run,))
            run = ""
        if group and not optional:
            sets.append(group)
    sets.append((run,))
    return max((one for one in sets if one and all(one)), key=lambda one: min(map(_worth, one)), default=()), at


def _worth(needle: str) -> float:
    """How much a needle spares: rare characters more than common ones, a word of every log next to nothing."""
    if len(needle.encode()) < SHORTEST:
        return 0.0
    if needle.strip(" :.,").isalpha() and needle.isascii() and len(needle) < _WORD:
        return 1.0
    if needle.strip(" :.,").lower() in _EVERYWHERE:
        return 2.0
    return sum(1.0 if char.lower() in _COMMON else 1.8 for char in needle)


_WORDS = (
    "available code config configuration could disk error exception exit exited failed file host image input job killed"
    " load memory model open path process prompt request returned server service shared signal size status success"
    " supported system task timeout token unknown value valueerror version worker backend runner attempt"
)
_EVERYWHERE = frozenset(_WORDS.split()) | {"failed to", "not found", "unable to", "no such file", "is not"}


def _item(pattern: str, at: int) -> tuple[str, tuple[str, ...], int]:
    """One item: its literal character ("" where it has none), the needles of a group, and where it ends."""
    char = pattern[at]
    if char == "\\":
        escaped = pattern[at + 1]
        return ("" if escaped in _ESCAPED_CLASSES or escaped.isdigit() else escaped), (), at + 2
    if char == "[":
        end = pattern.index("]", at + (3 if pattern.startswith("[^", at) else 2))
        while pattern[end - 1] == "\\":
            end = pattern.index("]", end + 1)
        return "", (), end + 1
    if char == "(":
        inner, lookaround = _group_start(pattern, at)
        group, end = _alternatives(pattern, inner)
        return "", (() if lookaround else group), end + 1
    return ("" if char in ".^$" else char), (), at + 1


def _group_start(pattern: str, at: int) -> tuple[int, bool]:
    if pattern.startswith(("(?=", "(?!"), at):
        return at + 3, True
    if pattern.startswith(("(?<=", "(?<!"), at):
        return at + 4, True
    if pattern.startswith("(?P<", at):
        return pattern.index(">", at) + 1, False
    if pattern.startswith("(?", at):
        return pattern.index(":", at) + 1, False
    return at + 1, False


def _quantifier(pattern: str, at: int) -> tuple[bool, bool, int]:
    """Whether what stands before may be absent, whether it may repeat, and where the quantifier ends."""
    if at >= len(pattern) or pattern[at] not in "?*+{":
        return False, False, at
    optional, end = pattern[at] in "?*" or pattern.startswith("{0", at), at + 1
    if pattern[at] == "{":
        end = pattern.index("}", at) + 1
    if end < len(pattern) and pattern[end] == "?":
        end += 1
    return optional, True, end
