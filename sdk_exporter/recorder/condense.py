"""A long output within a small bound: the first error block as well as the end, repeats folded, gaps told.

Engines with worker processes print the root in the child, then repeat it as a traceback of several KB, then add the
parent's own: the root stands 9 to 12 KB before the end, and a restart adds as much again. The last 16 KiB alone can
lose it. Works on text that is redacted already; what fits is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from sdk_exporter import bounds

_BLOCK_SHARE: Final = 0.4
"""Of the bound, for the first error block; the end gets the rest."""
_BEFORE_LINES: Final = 3
_LEAST_FOR_BOTH_BYTES: Final = 1024
_LONG_LINE_BYTES: Final = 2048
_LONG_HEAD_BYTES, _LONG_TAIL_BYTES = 1200, 400
_LEAST_FOLD_LINES: Final = 3
_BLOCK_LINES: Final = 3
_LONGEST_PERIOD_LINES: Final = 64
_MOST_CANDIDATES: Final = 8

_STRONG: Final = re.compile(
    r"Traceback \(most recent call last\)|\b[A-Za-z_.]*(?:Error|Exception)\b: |out of memory|\bFATAL\b|\bCRITICAL\b"
    r"|Segmentation fault|core dumped|terminate called|\bpanicked at\b|No space left on device|^Killed\b"
)
_WEAK: Final = re.compile(r"\bERROR\b|\b[Ee]rror:|\bfailed\b|\bE\d{4} ")
_PROGRESS: Final = re.compile(r"%\||\d+%|it/s|[kMG]i?B/s")
_CHANGING: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")
_IGNORED: Final = re.compile(r"ignor|retry|\bwarn", re.IGNORECASE)


def condense(text: str, limit_bytes: int) -> tuple[str, bool]:
    """(text of at most `limit_bytes`, whether anything was left out). The measure is `bounds.json_bytes`."""
    text = bounds.valid(text)
    if bounds.json_bytes(text) <= limit_bytes:
        return text, False
    lines = list(_folded([_shortened(line) for line in text.split("\n")]))
    text = "\n".join(lines)
    if bounds.json_bytes(text) <= limit_bytes:
        return text, True
    first = _first_error(lines) if limit_bytes >= _LEAST_FOR_BOTH_BYTES else None
    if first is not None:
        both = _block_and_end(lines, max(0, first - _BEFORE_LINES), limit_bytes)
        if both is not None:
            return both, True
    return _end(text, limit_bytes), True


def _shortened(line: str) -> str:
    encoded = line.encode()
    if len(encoded) <= _LONG_LINE_BYTES:
        return line
    head = encoded[:_LONG_HEAD_BYTES].decode(errors="ignore")
    tail = encoded[-_LONG_TAIL_BYTES:].decode(errors="ignore")
    return f"{head}{_gap(len(encoded) - len(head.encode()) - len(tail.encode()))}{tail}"


def _gap(count: int) -> str:
    return f"… [{count} bytes left out] …"


def _folded(lines: Sequence[str]) -> Iterator[str]:
    """Runs of lines that come again at once are told once, with how often they came.

    Whole blocks (tracebacks) and progress bars count as the same when only numbers differ; then the last one stays too.
    """
    shapes = [_CHANGING.sub("0", line) for line in lines]
    following: list[int] = [0] * len(lines)
    last: dict[str, int] = {}
    for at in reversed(range(len(lines))):
        following[at] = last.get(shapes[at], len(lines))
        last[shapes[at]] = at
    position = 0
    while position < len(lines):
        period, times = _repeat_at(lines, shapes, following, position)
        if not period:
            yield lines[position]
            position += 1
            continue
        yield from lines[position : position + period]
        end = position + period * times
        last_differs = lines[end - period : end] != lines[position : position + period]
        times -= last_differs
        left_out = lines[position + period : position + period * times]
        size = sum(len(line.encode()) + 1 for line in left_out)
        what = "line" if period == 1 else f"{period} lines"
        yield f"… [the {what} above {times - 1} more times, {size} bytes left out] …"
        if last_differs:
            yield from lines[end - period : end]
        position = end


def _repeat_at(lines: Sequence[str], shapes: Sequence[str], following: Sequence[int], position: int) -> tuple[int, int]:
    """(lines in the period, how often it comes) of a repeat that begins here; period 0: none worth it."""
    again = following[position]
    for _ in range(_MOST_CANDIDATES):
        period = again - position
        if again >= len(lines) or period > _LONGEST_PERIOD_LINES:
            break
        block = shapes[position:again]
        # Numbers in single lines may be what the reader wants: there only what is equal letter by letter counts.
        loose = len(set(block)) >= _BLOCK_LINES or _PROGRESS.search(lines[position]) is not None
        given = shapes if loose else lines
        times = _times(given, position, period)
        if period * (times - 2) >= _LEAST_FOLD_LINES:
            return period, times
        again = following[again]
    return 0, 0


def _times(lines: Sequence[str], position: int, period: int) -> int:
    """How often the block of `period` lines at `position` comes in a row."""
    block, times = lines[position : position + period], 1
    while lines[position + period * times : position + period * (times + 1)] == block:
        times += 1
    return times


def _first_error(lines: Sequence[str]) -> int | None:
    """Of the lines that look like an error: the first that means it, else the first at all."""
    for pattern in (_STRONG, _WEAK):
        for number, line in enumerate(lines):
            if pattern.search(line) and not _IGNORED.search(line):
                return number
    return None


def _block_and_end(lines: Sequence[str], first: int, limit_bytes: int) -> str | None:
    """None where the end alone holds the block already."""
    if sum(bounds.json_bytes(line) + 2 for line in lines[first:]) <= limit_bytes:
        return None
    budget = int(limit_bytes * _BLOCK_SHARE)
    block: list[str] = []
    for line in lines[first:]:
        cost = bounds.json_bytes(line) + 2  # a newline is two bytes in JSON
        if budget < cost:
            break
        budget -= cost
        block.append(line)
    before = sum(len(line.encode()) + 1 for line in lines[:first])
    head = "".join([*([_gap(before), "\n"] if before else []), *(f"{line}\n" for line in block)])
    rest = "\n".join(lines[first + len(block) :])
    room = limit_bytes - bounds.json_bytes(head) - len(_gap(10**9).encode()) - 2
    end = _end(rest, room)
    if not block:
        return None
    left_out = len(rest.encode()) - len(end.encode())
    return f"{head}{_gap(left_out)}\n{end}" if left_out else head + end


def _end(text: str, limit_bytes: int, within: int = 256) -> str:
    """The end, from the beginning of a line on when one is near."""
    kept = bounds.tail(text, limit_bytes)
    at = kept.find("\n", 0, within)
    return kept[at + 1 :] if len(kept) < len(text) and at >= 0 else kept
