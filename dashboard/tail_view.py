"""A log tail → numbered lines with the root-cause line marked. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from collector.diagnosis.answer import EvidenceItem, LogTail, Verdict
from dashboard.contexts import TailLine, TailView

# Colours and styles only (SGR): they carry no text. Every other escape sequence stays, made visible when printed.
_COLOUR: Final = re.compile(r"(?:\x1b\[|\x9b)[0-9;:]*m")


def tail_view(tail: LogTail, verdict: Verdict) -> TailView:
    """What the page shows of a tail. The line that the verdict names is marked, once."""
    written = tail.text.removesuffix("\n").split("\n") if tail.text else []
    root = root_cause(verdict)
    marked = _find(written, root)
    lines = tuple(
        TailLine(number, _COLOUR.sub("", line.removesuffix("\r")), number == marked)
        for number, line in enumerate(written, start=1)
    )
    return TailView(
        lines=lines,
        scope=tail.scope,
        bytes=tail.bytes,
        bytes_dropped=tail.bytes_dropped,
        bytes_withheld=tail.bytes_withheld,
        redactions=tail.redactions,
        complete=tail.complete,
        colour_codes=len(_COLOUR.findall(tail.text)),
        root_cause_elsewhere=root.text if root is not None and marked is None else None,
    )


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
