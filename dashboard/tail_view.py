"""A log tail → numbered lines with the root-cause line marked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from collector.diagnosis.answer import EvidenceItem, LogTail, Verdict
from dashboard.contexts import Run, TailLine, TailView
from sdk_exporter.contract import REDACTED

# Colours and styles only (SGR): they carry no text. Every other escape sequence stays, made visible when printed.
_COLOUR: Final = re.compile(r"(?:\x1b\[|\x9b)([0-9;:]*)m")
_NAMES: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_PARTS: Final = re.compile(f"({re.escape(REDACTED)})")


def tail_view(tail: LogTail, verdict: Verdict) -> TailView:
    """What the page shows of a tail. The line that the verdict names is marked, once."""
    written = tail.text.removesuffix("\n").split("\n") if tail.text else []
    root = root_cause(verdict)
    marked = _find(written, root)
    colours = Colours()
    lines = tuple(
        TailLine(number, _COLOUR.sub("", line), tuple(colours.runs(line)), number == marked)
        for number, line in enumerate((line.removesuffix("\r") for line in written), start=1)
    )
    return TailView(
        lines=lines,
        scope=tail.scope,
        bytes=tail.bytes,
        bytes_dropped=tail.bytes_dropped,
        bytes_withheld=tail.bytes_withheld,
        redactions=tail.redactions,
        complete=tail.complete,
        coloured=_COLOUR.search(tail.text) is not None,
        root_cause_elsewhere=root.text if root is not None and marked is None else None,
    )


class Colours:
    """The colours of a terminal, as far as they were set: they last over the ends of lines until they are reset."""

    def __init__(self) -> None:
        self._colour, self._bold = "", False

    def runs(self, line: str) -> Iterator[Run]:
        """The line in parts that look the same. Backgrounds and fine shades are left out: text must stay readable."""
        place = 0
        for code in _COLOUR.finditer(line):
            yield from self._run(line[place : code.start()])
            self._apply(code[1])
            place = code.end()
        yield from self._run(line[place:])

    def _run(self, text: str) -> Iterator[Run]:
        style = " ".join(filter(None, (f"c-{self._colour}" if self._colour else "", "c-bold" if self._bold else "")))
        for part in filter(None, _PARTS.split(text)):
            yield Run("redacted" if part == REDACTED else style, part)

    def _apply(self, codes: str) -> None:
        numbers = [int(part) if part.isdigit() and len(part) < 4 else 0 for part in re.split("[;:]", codes)]
        place = 0
        while place < len(numbers):
            number = numbers[place]
            if number in (38, 48):  # a colour by number, or by red, green and blue
                by_number = numbers[place + 1 : place + 2] == [5]
                index = numbers[place + 2] if by_number and place + 2 < len(numbers) else None
                if number == 38:
                    self._colour = _NAMES[index % 8] if index is not None and index < 16 else ""
                place += 3 if by_number else 5
                continue
            if number == 0:
                self._colour, self._bold = "", False
            elif number in (1, 22):
                self._bold = number == 1
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self._colour = _NAMES[number % 10]
            elif number == 39:
                self._colour = ""
            place += 1


def root_cause(verdict: Verdict) -> EvidenceItem | None:
    """The evidence that holds the root-cause line: the first of a log, as the contract has it."""
    return next((item for item in verdict.evidence if item.what == "log_line"), None)


def _find(lines: Sequence[str], root: EvidenceItem | None) -> int | None:
    """The number of the root-cause line. Its text decides; its number only between equal lines."""
    if root is None:
        return None
    wanted = root.text.strip()
    if root.line is not None and 1 <= root.line <= len(lines) and lines[root.line - 1].strip() == wanted:
        return root.line
    bare = [_COLOUR.sub("", line).strip() for line in lines]
    for candidate in (wanted, _COLOUR.sub("", wanted)):
        if candidate in bare:
            return bare.index(candidate) + 1
    return next((number for number, line in enumerate(bare, start=1) if wanted and wanted in line), None)
