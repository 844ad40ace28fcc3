"""Joins the same failure across requests: a versioned hash of what stays when ids, paths, sizes and times change."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from collector.diagnosis.answer import Verdict
from collector.diagnosis.evidence import Evidence

VERSION: Final = 1
"""Grows when the recipe changes, so that old and new fingerprints never mix."""
LINE_CHARACTERS: Final = 300
"""What of a line counts; the rest of a very long one is data."""

_NORMAL: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]"), ""),  # colours
    # What a log puts before its message: process names with pids, levels, dates.
    (re.compile(r"^\s*(?:\([^()]{1,60}\)\s+|\[[^\[\]]{1,60}\]\s*)+"), ""),
    (re.compile(r"\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b[ :|-]*"), ""),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    # Paths: the directories go, the file's own name stays, without its line number.
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@+~-]+)*[\\/]([\w.@+~-]+)(?::\d+)?"), r"\1"),
    (re.compile(r"\b([\w-]+\.(?:py|cpp|cu|cc|h|c|rs|go|js)):\d+\b"), r"\1"),
    (re.compile(r"\bline \d+\b"), "line"),
    (re.compile(r"\b(?=[0-9a-z_-]*\d)(?=[0-9a-z_-]*[a-z])[0-9a-z_-]{12,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[0-9a-f]{12,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\d+(?:[.,]\d+)*\s*(?:[KMGT]i?B|bytes?|[kmgt]b)\b", re.IGNORECASE), "<size>"),
    (re.compile(r"(?<![A-Za-z])\d+(?:[.,]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def normal(line: str) -> str:
    """`line` without what differs from one request to the next."""
    text = line[: 4 * LINE_CHARACTERS]
    for pattern, put in _NORMAL:
        text = pattern.sub(put, text)
    return text.strip()[:LINE_CHARACTERS].lower()


def fingerprint(verdict: Verdict, evidence: Evidence | None = None) -> str:
    """`1:` and 16 hex digits. The same failure of another request has the same; another cause never has.

    Only the verdict counts; `evidence` is taken so that a later version may look further.
    """
    del evidence
    line = next((item.text for item in verdict.evidence if item.what == "log_line"), "")
    error = next((item.text for item in verdict.evidence if item.what == "exception"), "")
    kind, _, message = error.partition(":")
    exit_text = next((item.text for item in verdict.evidence if item.what == "exit"), "")
    root = normal(line) if line else normal(message)
    # A known cause without any text: how the process ended still tells two failures apart.
    parts = (verdict.code, verdict.cause, kind.strip().rpartition(".")[2], root, "" if root else exit_text)
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return f"{VERSION}:{digest[:16]}"
