"""Failure tails with a known cause: the public cases (`cases/*.json`) and our own variants (`variants/*.txt`).

A variant begins with `### code[,code] | phase or - [| exit=N] [| signal=N]`; `>> ` marks its root-cause line, or a line
`=root= …` repeats it where it stands among others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Cause, Clues

HERE = Path(__file__).parent
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HEAD = re.compile(r"^### ", re.MULTILINE)


@dataclass(frozen=True)
class Tail:
    """One tail, what may be said about it, and its root-cause line where it holds one."""

    name: str
    clues: Clues
    codes: tuple[str, ...]  # the first is the best
    root: str | None
    composed: bool = False  # written around a known wording rather than seen


@dataclass(frozen=True)
class Told:
    """What was said about a tail."""

    tail: Tail
    cause: Cause

    @property
    def right(self) -> bool:
        return self.cause.code in self.tail.codes

    @property
    def firm(self) -> bool:
        return self.cause.code != "unknown" and self.cause.confidence in ("certain", "likely")

    @property
    def line_right(self) -> bool:
        return self.tail.root is None or plain(self.tail.root) in plain(self.cause.line or "")


def plain(line: str) -> str:
    return _ANSI.sub("", line).strip()


def told(tail: Tail) -> Told:
    return Told(tail, find_cause(tail.clues))


def public_cases() -> list[Tail]:
    return [_case(json.loads(path.read_text())) for path in sorted((HERE / "cases").glob("*.json"))]


def _case(case: dict[str, Any]) -> Tail:
    truth = case["truth"]
    code = case["exit"] if isinstance(case["exit"], int) and "inferred" not in case["exit_note"] else None
    clues = Clues(
        text=case["log_tail"],
        phase=case["phase"],
        exit_code=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
    )
    codes = (truth["code"], *truth["also_accept"])
    return Tail(case["id"], clues, codes, truth["root_cause_line"], composed=case["basis"] == "reconstructed")


def variants() -> list[Tail]:
    return [tail for path in sorted((HERE / "variants").glob("*.txt")) for tail in _variants(path)]


def _variants(path: Path) -> Iterator[Tail]:
    for number, block in enumerate(_HEAD.split(path.read_text())[1:], 1):
        head, _, body = block.partition("\n")
        codes, phase, *ends = (part.strip() for part in head.split("|"))
        end = {key: int(value) for key, value in (part.split("=") for part in ends)}
        lines, root = [], None
        for line in body.rstrip("\n").split("\n"):
            if line.startswith("=root= "):
                root = line[len("=root= ") :]
                continue
            root = line[len(">> ") :] if line.startswith(">> ") else root
            lines.append(line.removeprefix(">> "))
        clues = Clues(
            text="\n".join(lines) + "\n",
            phase=None if phase == "-" else phase,  # type: ignore[arg-type]
            exit_code=end.get("exit"),
            signal=end.get("signal"),
        )
        yield Tail(f"{path.stem}-{number}-{codes}", clues, tuple(codes.split(",")), root)


def vocabulary() -> list[tuple[tuple[str, ...], str]]:
    """Lines of many programs, each with the causes that may be named for it."""
    lines, codes = [], ("",)
    for line in (HERE / "vocabulary.txt").read_text().splitlines()[1:]:
        if line.startswith("## "):
            codes = tuple(line.removeprefix("## ").split(","))
        elif line:
            lines.append((codes, line))
    return lines
