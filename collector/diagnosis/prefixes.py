"""What stands before a message in a line of a log, by its own form or because every line has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

# What stands before a message: container, time, process, level, source place. Each alternative begins with something
# that no message begins with, so that "[Errno 28] …" stays whole.
_ALTERNATIVES = (
    # (EngineCore_0 pid=123) · (MapWorker(MapBatches(Actor)) pid=1458, ip=10.0.0.1)
    r"\s{0,2}\(\s*[A-Za-z][^()\n]{0,60}(?:\([^()\n]{0,60}(?:\([^()\n]{0,60}\)[^()\n]{0,20})?\)[^()\n]{0,40})?"
    r"pid=[^()\n]{0,60}\) ?",
    r"\[rank\d+\]: ?",
    # 2025-10-17T18:26:00.123Z · [2025-10-17 18:26:00 TP0] · 2025-10-17 18:26:00,123 -
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,:]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?"
    r"(?: (?:TP|DP|PP|EP|Rank)\d*[^\]\n]{0,20})?\]?(?: -|:)?[ \t]?",
    r"\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?[ ]",
    # Mar 11 04:33:08 host unit[123]:
    r"[A-Z][a-z]{2} [\d ]\d \d\d:\d\d:\d\dZ? \S{1,60} [\w./-]{1,40}(?:\[\d+\])?:?[ ]",
    # ERROR 11-02 10:00:00 [core.py:708] · [ERROR] · ERROR | · ERROR:
    r"\[?(?:ERROR|INFO|WARN|WARNING|CRITICAL|FATAL|DEBUG|TRACE|Error|Info|Warning|error|info|warn)\]?"
    r"(?: \d\d-\d\d \d\d:\d\d:\d\d(?: \[[\w.]{1,60}:\d+\]| [\w.]{1,60}:\d+\])?| *\||: ?| +-| (?=\[)|\t|(?<=\])"
    r"| +(?=[a-z_-]+:)) ?",
    # E0705 08:07:40.219789 79386 main.cc:245] · [E813 02:01:56.118212730 ProcessGroupNCCL.cpp:1896]
    r"[IWEF]\d{4} [\d:.]{8,18} +\d+ (?:[\w/.-]{1,80}:\d+\] )",
    r"\[[EWI]\d{3,6} [\d:.]{8,24} [\w./]{1,80}:\d+\][ ]",
    # qwen35-4b  |
    r"\w[\w.-]{0,60} {1,16}\|[ ]",
    r"\| *(?:ERROR|INFO|WARNING|DEBUG|CRITICAL) *\| *(?:std(?:err|out) *\| )?",
    r"std(?:err|out) [FP] |\[std(?:err|out)\]:? |std(?:err|out):[ ]",
    r"\[[\w./-]{1,40}/(?:STDERR|STDOUT|stderr|stdout)\][ ]",
    r"\[\d+(?:\.\d+)?\]:? (?=[A-Z])",
    # ERROR:root: · ERROR    xinference.api 1 ERROR
    r"(?<=:)(?:__main__|[a-z_]{2,30}(?:\.[a-z_]{2,30}){0,6}): ?(?=\S)",
    r"[a-z_]{2,20}(?:\.[a-z_]{2,30}){1,6} \d+ (?:ERROR|INFO|WARNING|CRITICAL) +",
    r"\[address=[^\]\n]{1,60}\][ ]",
    r"[a-z-]{2,30}: (?=text_generation_launcher)|text_generation_launcher:[ ]",
    r" {0,12}[|+] (?=[ A-Za-z])",
    r'\{"log": ?"',
    r"!!! Exception during processing ?!!![ ]",
)
_PREFIX = re.compile("|".join(f"(?:{one})" for one in _ALTERNATIVES))
_PREFIX_DEPTH = 7  # a compose name, two times, two processes, a level and a place


def core_of(text: str) -> str:
    """The message alone: no time, process name, level or source place."""
    at = 0
    for _ in range(_PREFIX_DEPTH):
        found = _PREFIX.match(text, at)
        if not found or found.end() == at:
            break
        at = found.end()
    return text[at:]


_SHARED_LINES = 4  # fewer tell of no habit
_SHARED_SHARE = 0.75  # of the lines; the first may be cut, and a shell writes between
_SHARED_LENGTH = 120  # characters
_DIGITS = re.compile(r"\d+")
_BOUNDARY = re.compile(r"[ \t:\]|>](?=[^ \t:\]|>]|\s{2,}\S|$)")
# What a prefix does not hold: an exception's name, or two words of a sentence.
_NO_PREFIX = re.compile(
    r"(?:Error|Exception|Warning)\b|\bFile \"|(?<![\w'/.-])[A-Za-z]{2,} (?!output:)[a-z]{2,} |^\W*$"
)
_TRACEBACK = "Traceback (most recent call last)"


def shared_prefix(cores: Sequence[str]) -> re.Pattern[str] | None:
    """What nearly all of these messages begin with though it is no part of them, numbers aside. None where nothing."""
    indent = min((len(core) - len(core.lstrip(" ")) for core in cores), default=0)
    if indent:
        return re.compile(" " * indent)
    heads = [_DIGITS.sub("0", core[:_SHARED_LENGTH]) for core in cores]
    shared = _before_traceback(heads) or _habit(heads)
    return re.compile(re.escape(shared).replace("0", r"\d+")) if shared else None


def _before_traceback(heads: Sequence[str]) -> str:
    """What stands before a traceback's first line, where the line behind it begins the same way."""
    for head, after in pairwise(heads):
        at = head.find(_TRACEBACK)
        if at > 0 and after.startswith(head[:at]):
            return head[:at]
    return ""


def _habit(heads: Sequence[str]) -> str:
    if len(heads) < _SHARED_LINES:
        return ""
    needed = _SHARED_SHARE * len(heads)
    return _longest(heads[len(heads) // 2], heads, needed) or _longest(heads[-1], heads, needed)


def _longest(sample: str, heads: Sequence[str], needed: float) -> str:
    """The longest beginning of the sample, up to a boundary, that so many lines share; "" where none is a prefix."""
    longest = ""
    for end in [found.end() for found in _BOUNDARY.finditer(sample)]:
        if sum(head.startswith(sample[:end]) for head in heads) < needed:
            break
        if not sample[:end].endswith(("  ", "\t\t")):  # the message's own indentation
            longest = sample[:end]
    return "" if _NO_PREFIX.search(longest) else longest
