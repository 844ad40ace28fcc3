"""Joins the same failure across requests: a versioned hash of what stays when ids, paths, sizes and times change."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from collector.diagnosis.answer import Verdict
from collector.diagnosis.evidence import Evidence

VERSION: Final = 2
"""Grows when the recipe changes, so that old and new fingerprints never mix."""
LINE_CHARACTERS: Final = 300
"""What of a line counts; the rest of a very long one is data."""

_TIME: Final = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_MONTHS: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# In this order: a date is no number, a size no id, and a number with a fraction neither.
_NORMAL: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]"), ""),  # colours
    # What a log puts before its message: process names with pids, levels, dates.
    (re.compile(r"^\s*(?:\([^()]{1,60}\)\s+|\[[^\[\]]{1,60}\]:?\s*)+"), ""),
    (re.compile(r"\b(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b[ :|-]*"), ""),
    (re.compile(rf"\d{{4}}[-/]\d\d[-/]\d\d[T ]?{_TIME}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"), "<time>"),
    (re.compile(rf"\b(?:{_MONTHS}) {{1,2}}\d{{1,2}} {_TIME}"), "<time>"),
    (re.compile(rf"\b\d\d-\d\d {_TIME}"), "<time>"),
    (re.compile(rf"\b{_TIME}\b"), "<time>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"), "<mail>"),
    (
        re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:-\w{1,4})?\b", re.IGNORECASE),
        "<id>",
    ),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\[(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}\](?::\d+)?", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[\w-]{1,63}(?:\.[\w-]{1,63})*\.(?:internal|local|lan|svc)\b(?::\d+)?"), "<host>"),
    # Paths: the directories go, the file's own name stays, without its line number.
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@+~-]+)*[\\/]([\w.@+~-]+)(?::\d+)?"), r"\1"),
    (re.compile(r"\b([\w-]+\.(?:py|cpp|cu|cc|h|c|rs|go|js)):\d+\b"), r"\1"),
    (re.compile(r"\bline \d+\b"), "line"),
    (re.compile(r"\b\d+(?:[.,]\d+)*\s*(?:[KMGT]i?B|bytes?|[kmgt]b)\b", re.IGNORECASE), "<size>"),
    (re.compile(r"\b\d+(?:x\d+)+\b"), "<n>"),
    (re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[-+]?\d+)?(?![\w.])", re.IGNORECASE), "<n>"),
    (re.compile(r"\b(?=[0-9a-z_-]*\d)(?=[0-9a-z_-]*[a-z])[0-9a-z_-]{12,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(rank|gpu|device|worker|node|stage|replica|shard)([ _-]?)\d+\b", re.IGNORECASE), r"\1\2<n>"),
    (re.compile(r"(?:(?<=[\s(\[=:,])-)?(?<![A-Za-z0-9])\d+(?:[.,]\d+)*(?:e[-+]?\d+)?"), "<n>"),
    (re.compile(r"<n>(?:, ?<n>)+"), "<n>"),  # a shape, a list of devices
    (re.compile(r"\s+"), " "),
)
_TYPE: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:error|exception|exit|interrupt|timeout))(?:: *|$)")
"""The type that a line or an exception begins with, once it is `normal`."""


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
    exit_text = next((item.text for item in verdict.evidence if item.what == "exit"), "")
    # A worker whose output came and one whose output was withheld tell the same failure in two ways.
    kind, root = _split(line or error)
    if not kind and line:
        kind, _ = _split(error)
    # A known cause without any text: how the process ended still tells two failures apart.
    parts = (verdict.code, verdict.cause, kind, root, "" if root else exit_text)
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return f"{VERSION}:{digest[:16]}"


def _split(text: str) -> tuple[str, str]:
    """The type that it begins with, without its module, and the rest as it is compared."""
    plain = normal(text)
    found = _TYPE.match(plain)
    return (found.group(1), plain[found.end() :]) if found else ("", plain)
