"""Literal texts that every match of a pattern must contain: a cheap look that spares hundreds of patterns per tail.

Understands what the rules use: literals, escapes, classes, groups, alternatives, quantifiers. Look-arounds and
back-references count as unknown text.
"""

from __future__ import annotations

SHORTEST = 3  # bytes; anything shorter is found nearly everywhere and spares nothing
_ESCAPED_CLASSES = "dDwWsSbBAZ"


def needles_of(pattern: str) -> tuple[str, ...]:
    """Lower-case texts, one of which is in each match. Raises ValueError where the pattern promises none."""
    found, end = _alternatives(pattern, 0)
    if end != len(pattern):
        raise ValueError(f"unbalanced pattern: {pattern}")
    if not found or min(len(needle.encode()) for needle in found) < SHORTEST:
        raise ValueError(f"no literal text of {SHORTEST} bytes in each alternative: {pattern}")
    return tuple(sorted({needle.lower() for needle in found}))


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
    """The best needles of one alternative: the set whose shortest member is longest."""
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
    return max((one for one in sets if one and all(one)), key=lambda one: min(map(len, one)), default=()), at


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
