"""A log tail as lines that can be judged: what each says, who said it, and whether it is code, noise or a message.

One physical line may hold several statements (a progress bar overwritten with `\\r`, a traceback inside a JSON string,
two glued records), and a statement always knows the physical line it stands on: evidence quotes that one, verbatim.
Everything here takes time in proportion to the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from collector.diagnosis.prefixes import core_of, shared_prefix

Level = Literal["debug", "info", "warning", "error", ""]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])?")
_BARE_COLOUR = re.compile(r"\[(?:\d{1,3};){0,4}\d{1,3}m")  # the escape character was lost on the way
_ESCAPED_BREAK = re.compile(r"(?:\\r)?\\n")
_GLUED = re.compile(r"(?<=\})(?=\{\")")
_PROGRESS = re.compile(r"\d{1,3}%[ |\u2500-\u25ff]|\d(?:it/s|s/it|[kKMG]i?B/s)")

_LEVEL = re.compile(r"\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|Error|Warning|Info)\b")
_LEVELS: dict[str, Level] = {
    "DEBUG": "debug", "INFO": "info", "Info": "info", "WARN": "warning", "WARNING": "warning", "Warning": "warning",
    "ERROR": "error", "Error": "error", "CRITICAL": "error", "FATAL": "error",
}  # fmt: skip
_GLOG_LEVEL: dict[str, Level] = {"I": "info", "W": "warning", "E": "error", "F": "error"}
_GLOG = re.compile(r"(?:\[rank\d+\]:)?\[?([IWEF])\d{3,6} [\d:.]{8,24}")
_PROCESS = re.compile(r"pid=(\d+)|\[(rank\d+)\]|\b(TP\d+)\b|^(\S{1,60}) {1,16}\| ")

_FRAME = re.compile(
    r'^\s*(?:\|\s*)*File "[^"\n]{1,300}"(?:, line \d+|\Z)|^\s*File \S{1,300}:\d+, in |^File ~?/\S{1,300}\.py[:,]'
)
_IPYTHON_CODE = re.compile(r"^(?:-+> ?\d+ |\s{1,5}\d{1,5} )")
_CARETS = re.compile(r"^\s*[~^]{2,}[~^ ]*$|^\s+\^\s*$")
_CHAINED = re.compile(r"During handling of the above exception|direct cause of the following exception")
_RAISE = re.compile(r"^\s*(?:raise|assert|except|if|elif|logger\.|log\.|warnings\.warn)\b")

# `Type: message` at the start of a message. Types end in a known word, or are dotted and stand behind a traceback.
_EXCEPTION = re.compile(
    r"^\s{0,2}(?P<type>(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Za-z_]\w{0,60}(?:Error|Exception|Interrupt|Exit|Timeout"
    r"|Group|Fault"
    r"|NotFound|Invalid|Refused|Denied|Required|Failure|Failed|Died|Killed|Timedout|Unavailable|Exceeded|Aborted"
    r"|Cancelled|Unauthorized|Forbidden)|Exception))(?:\([A-Za-z_.]{1,80}\))?(?::\s(?P<message>.*)|:?$)",
    re.DOTALL,
)
_DOTTED = re.compile(r"^(?P<type>[A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}){0,8})(?::\s(?P<message>.*)|$)", re.DOTALL)
# The platform's SDK prints an exception as a JSON object.
_JSON_EXCEPTION = re.compile(
    r""""error_type": ?"<class '(?P<type>[\w.]{1,120})'>", ?"error_message": ?"(?P<message>.{0,2000}?)(?:"[,}]|$)"""
)
_KEYWORDS = frozenset({"else", "try", "finally", "return", "pass", "raise", "yield", "lambda", "break", "continue"})


_AROUND = 6000  # characters on each side at most, where lines are long


@dataclass(slots=True)
class Statement:
    """One thing said. `line` counts physical lines from 1; 0 is the exception record, which has no line."""

    line: int
    text: str  # without colours
    core: str  # the message alone: no time, process name, level
    process: str
    level: Level
    code: bool = False  # a source line shown by a traceback
    frame: bool = False
    traceback: int = -1  # which traceback it belongs to
    chain: int = -1  # tracebacks joined by "During handling …" or "direct cause …" are one chain
    exception: str = ""  # the type, where it is an exception's own line
    message: str = ""
    harmless: bool = False
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A whole tail. `blob` is every statement's text, lower case, joined by line feeds; `starts` their offsets."""

    lines: tuple[str, ...]  # physical lines, verbatim
    statements: tuple[Statement, ...]
    blob: str
    starts: tuple[int, ...]

    def at(self, offset: int) -> int:
        """The index of the statement that holds this offset of the blob."""
        return bisect_right(self.starts, offset) - 1

    def around(self, index: int, before: int, after: int) -> str:
        """The lower-case text of the statements from `before` in front of this one to `after` behind it."""
        first, last = max(0, index - before), min(len(self.starts) - 1, index + after)
        here, end = self.starts[index], self.starts[last] + len(self.statements[last].text)
        return self.blob[max(self.starts[first], here - _AROUND) : min(end, here + _AROUND)]


def read(text: str, stacktrace: str = "") -> Reading:
    """The tail, then the exception record (as lines numbered 0)."""
    lines = tuple(text.split("\n"))
    statements = [said for number, line in enumerate(lines, 1) for said in _statements(number, line)]
    statements += [said for line in stacktrace.split("\n") for said in _statements(0, line)]
    _strip_shared(statements)
    _mark(statements)
    starts, at = [], 0
    for said in statements:
        starts.append(at)
        at += len(said.text) + 1
    reading = Reading(lines, tuple(statements), _lower("\n".join(said.text for said in statements)), tuple(starts))
    _mark_noise(reading)
    return reading


# What healthy processes print too, some of it at level error; lower case.
_NOISE = (
    "unable to register cudnn factory",
    "unable to register cublas factory",
    "unable to register cufft factory",
    "computation placer already registered",
    "destroy_process_group() was not called",
    "leaked semaphore",
    "leaked shared_memory",
    "cannot be preloaded",
    "failed to load image python extension",
    "tf-trt warning",
    "failed to send telemetry",
    "encountered while exporting",
    "failed to export metrics",
    "failed to export traces",
    "failed to export logs",
    "unclosed client session",
    "unclosed connector",
    "sudo: unable to resolve host",
    "setting locale failed",
    "negative value (-1), but there must be at least one numa node",
    "pthread_setaffinity_np failed",
    "sched_setaffinity failed",
    "address family not supported by protocol",
    "delaying package configuration",
    "unable to initialize frontend",
    "running pip as the 'root' user",
    "requires the dev libaio",
    "mesg: ttyname failed",
    "unable to find cutlass",
)


def _mark_noise(reading: Reading) -> None:
    for text in _NOISE:
        at = reading.blob.find(text)
        while at >= 0:
            said = reading.statements[reading.at(at)]
            said.harmless = said.harmless or not said.exception
            at = reading.blob.find(text, at + len(text))


def _lower(text: str) -> str:
    """Lower case of the same length: the one letter whose lower case is two characters is replaced first."""
    return text.replace("\u0130", "I").lower()


def _statements(number: int, line: str) -> list[Statement]:
    if not line.strip():
        return [Statement(number, "", "", "", "")]
    plain = _BARE_COLOUR.sub("", _ANSI.sub("", line) if "\x1b" in line else line)
    pieces = _overwritten(plain) if "\r" in plain else [plain]
    said = [piece for shown in pieces for piece in _unescaped(shown)]
    level, process = _level(plain), _process(plain)
    statements = [Statement(number, piece, core_of(piece), process, level) for piece in said]
    if plain.startswith("{"):
        _open_record(statements)
    return statements


# A log record as one line of JSON: its message, and what stands behind that.
_RECORD = re.compile(r'\{[^\n]{0,400}?"(?:message|msg|log|textPayload|event|body|line)": ?"(?!\{)')
_RECORD_LEVEL = re.compile(r'"(?:level|severity|levelname|lvl)": ?"(\w{1,10})",? ?')
_RECORD_END = re.compile(r'"(?:, ?"[\w.@-]{1,40}": ?[^\n]*)?\}{1,3}\s*$')


def _open_record(statements: list[Statement]) -> None:
    """The message alone where the line is a record; the text stays whole, for its other fields tell too."""
    first, last = statements[0], statements[-1]
    if '"error_' in first.text[:200] or not (found := _RECORD.match(first.text)):
        return
    first.core = core_of(first.text[found.end() :])
    level = _RECORD_LEVEL.search(first.text) or _RECORD_LEVEL.search(last.text)
    for said in statements if level else ():
        said.level = _LEVELS.get(level[1].upper(), "") if level else ""
    first.text = _RECORD_LEVEL.sub("", first.text)
    end = _RECORD_END.search(last.core)
    if end:
        last.core = last.core[: end.start()]


def _overwritten(line: str) -> list[str]:
    """What `\\r` wrote over itself; of a run of progress bars the last state only."""
    pieces = [piece for piece in line.split("\r") if piece.strip()]
    kept = [
        piece
        for piece, later in zip(pieces, [*pieces[1:], ""], strict=True)
        if not (_PROGRESS.search(piece[:400]) and _PROGRESS.search(later[:400]) and len(piece) < 200)
    ]
    return kept or pieces[-1:]


def _unescaped(line: str) -> list[str]:
    """A line feed written as `\\n` (JSON strings, C++ loggers that quote) is a line feed; glued records part."""
    if "\\n" in line:
        line = line.replace('\\"', '"').replace("\\t", "\t").replace("\\u001b", "")
        return [piece for piece in _ESCAPED_BREAK.split(line) if piece.strip()] or [line]
    if '}{"' in line:
        return _GLUED.split(line)
    return [line.replace('\\"', '"')] if '\\"' in line else [line]


def _level(line: str) -> Level:
    glog = _GLOG.match(line)
    if glog:
        return _GLOG_LEVEL[glog[1]]
    if line.lstrip().startswith("Warning  "):  # a container event: the word says "not normal", and it has no stronger
        return "error"
    found = _LEVEL.search(line[:160])
    return _LEVELS[found[1]] if found else ""


def _process(line: str) -> str:
    head = line[:160]
    if "pid=" not in head and "[rank" not in head and "TP" not in head and " | " not in head:
        return ""
    return "/".join(found[0] for found in islice(_PROCESS.finditer(head), 3))


# --- what stands before every line --------------------------------------------------------------------------------


def _strip_shared(statements: list[Statement]) -> None:
    """What a collector of logs put before every line is no part of any message, and a level there tells of no line."""
    firsts = [
        said
        for before, said in zip([None, *statements], statements, strict=False)
        if said.core.strip() and (before is None or said.line != before.line or said.line == 0)
    ]
    prefix = shared_prefix([said.core for said in firsts])
    for said in firsts if prefix else ():
        found = prefix.match(said.core) if prefix else None
        if found:
            said.core = core_of(said.core[found.end() :])
    if len(firsts) < _LEVELLED:
        return
    for level in (_MILD_LEVEL, _ERROR_LEVEL):
        if sum(level.search(_before(said)) is not None for said in firsts) >= _STREAM_SHARE * len(firsts):
            for said in firsts:
                said.text, said.level = said.core, _level(said.core)
            return


_LEVELLED, _STREAM_SHARE = 4, 0.9  # lines, and the share of them that bear one level: then it is the stream's
_MILD_LEVEL = re.compile(r"\b(?:info|debug|stdout)\b", re.IGNORECASE)
_ERROR_LEVEL = re.compile(r"\b(?:error|stderr)\b", re.IGNORECASE)


def _before(said: Statement) -> str:
    return said.text[: len(said.text) - len(said.core)]


# --- what belongs to what ---------------------------------------------------------------------------------------

# A traceback behind one of these words tells of nothing that failed.
_HARMLESS_HEAD = re.compile(
    r"Exception ignored in|Error in atexit|Error in sys\.excepthook|--- Logging error ---"
    r"|A matching Triton is not available|Exception while exporting|Failed to export (?:span|metric|batch)"
    r"|resource_tracker: (?:'|There appear)|Unclosed (?:client session|connector)"
    r"|(?:falling back|fallback) to|proceeding without|continuing without|(?:is )?optional|skipping",
    re.IGNORECASE,
)
_HARMLESS_REACH = 60  # lines that a harmless traceback may take


def _mark(statements: list[Statement]) -> None:
    """One pass: code under frames, exceptions and the tracebacks they end, harmless stretches, repeats."""
    open_traceback: dict[str, int] = {}
    after_frame: dict[str, bool] = {}
    harmless_until: dict[str, int] = {}
    seen: dict[str, int] = {}
    joined: dict[str, bool] = {}
    chain_of: dict[str, int] = {}
    tracebacks = 0
    for index, said in enumerate(statements):
        core, process = said.core, said.process
        if not core.strip():
            continue
        if "exception" in core and _CHAINED.search(core):
            joined[process] = True
        if _opens_traceback(core):
            tracebacks += 1
            chain_of[process] = chain_of[process] if joined.pop(process, False) and process in chain_of else tracebacks
            open_traceback[process] = tracebacks
            after_frame[process] = False
            if _opens_harmless(statements, index):
                harmless_until[process] = index + _HARMLESS_REACH
        elif _HARMLESS_IGNORED.match(core):
            harmless_until[process] = index + _HARMLESS_REACH
        said.traceback = open_traceback.get(process, -1)
        said.harmless = harmless_until.get(process, -1) >= index
        said.frame = "File " in core and _FRAME.match(core) is not None
        if said.frame:
            after_frame[process] = True
            if process not in open_traceback:
                tracebacks += 1
                open_traceback[process] = said.traceback = tracebacks
                chain_of[process] = (
                    chain_of[process] if joined.pop(process, False) and process in chain_of else tracebacks
                )
            continue
        if after_frame.get(process) and _is_code(core):
            said.code = True
            continue
        if _IPYTHON_CODE.match(core) and process in open_traceback:
            said.code = True
            continue
        after_frame[process] = False
        found = (
            (_JSON_EXCEPTION.search(core[:600]) if "error_type" in core[:600] else None)
            or _EXCEPTION.match(core)
            or (_DOTTED.match(core) if process in open_traceback else None)
        )
        if found and _is_type(found["type"]) and not core.startswith("  "):
            said.exception, said.message = found["type"], (found["message"] or "").strip()
            if process not in open_traceback and not joined.pop(process, False):
                tracebacks += 1
                chain_of[process] = tracebacks
            said.chain = chain_of.setdefault(process, tracebacks)
            open_traceback.pop(process, None)
            harmless_until.pop(process, None)
        key = core[:400]
        said.repeat = seen.get(key, 0) >= 2
        seen[key] = seen.get(key, 0) + 1


_HARMLESS_IGNORED = re.compile(r".{0,80}?(?:Exception ignored in|--- Logging error ---|Error in atexit)", re.IGNORECASE)


def _opens_harmless(statements: list[Statement], index: int) -> bool:
    """Whether the line before this traceback (blank lines aside) says that it tells of nothing that failed."""
    looked = 0
    for before in range(index - 1, max(-1, index - 5), -1):
        core = statements[before].core
        if not core.strip():
            continue
        if _HARMLESS_HEAD.search(core) or (statements[before].harmless and not statements[before].exception):
            return True
        looked += 1
        if looked == 2 or statements[before].level == "info":  # the program has gone on to something else
            return False
    return False


def _is_type(name: str) -> bool:
    """Whether this reads as the name of an exception's class: dotted or with a capital, and no word of the language."""
    return name not in _KEYWORDS and not name.endswith("Warning") and ("." in name or name[0].isupper())


def _opens_traceback(core: str) -> bool:
    return "Traceback (most recent call last)" in core or core.startswith("Error in sys.excepthook")


def _is_code(core: str) -> bool:
    """A line right behind a frame: carets, deeper indentation, or (indentation lost) anything but an exception."""
    if _CARETS.match(core) or core.startswith("    "):
        return True
    return not _EXCEPTION.match(core) and not _DOTTED.match(core) and not _opens_traceback(core)


def is_raise(said: Statement) -> bool:
    """Whether this source line is the one that raises, whose text is then the message's."""
    return said.code and _RAISE.match(said.core) is not None and said.core.lstrip().startswith(("raise", "assert"))
