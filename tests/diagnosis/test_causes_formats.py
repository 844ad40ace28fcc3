"""The same tail as other collectors of logs print it: what they put before each line changes no cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tails import Told, public_cases, told

from collector.diagnosis.causes import find_cause
from collector.diagnosis.prefixes import core_of, shared_prefix

# Of the public cases that are read right as they are, with at least so many lines.
LINES = 5
SAME_CAUSE, SAME_LINE = 0.95, 0.95

FORMATS: dict[str, Callable[[str, int], str]] = {
    "compose": lambda line, _: f"worker-1  | {line}",
    "container runtime": lambda line, at: f"2026-01-01T10:00:{at % 60:02d}.123456789Z stdout F {line}",
    "pod and container": lambda line, _: f"[pod/worker-7f9c5-abcde/worker] {line}",
    "names without brackets": lambda line, _: f"pod/worker-7f9c5-abcde worker {line}",
    "milliseconds": lambda line, at: f"17672600{at:05d} {line}",
    "time, level, worker": lambda line, at: f"2026-01-01 10:00:{at % 60:02d}.123 | info | abcd1234 | {line}",
    "supervisor": lambda line, _: f"2026-01-01 10:00:00,123 DEBG 'worker' stderr output: {line}",
    "rank and stream": lambda line, _: f"[1,mpirank:0,algo-1]<stderr>:{line}",
    "torchrun": lambda line, _: f"[default0]:{line}",
    "process manager": lambda line, _: f"0|worker   | {line}",
    "platform router": lambda line, at: f"2026-01-01T10:00:{at % 60:02d}.123456+00:00 app[worker.1]: {line}",
    "indented": lambda line, _: f"    {line}",
    "carriage returns": lambda line, _: f"{line}\r",
    "record, log": lambda line, _: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T10:00:00Z"}),
    "record, message": lambda line, _: json.dumps({"ts": 1767260000.1, "severity": "INFO", "message": line}),
}


def formatted(answer: Told, form: Callable[[str, int], str]) -> Told:
    lines = answer.tail.clues.text.split("\n")
    text = "\n".join(form(line, at) if line.strip() else line for at, line in enumerate(lines))
    return Told(answer.tail, find_cause(replace(answer.tail.clues, text=text)))


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_of_lines_changes_no_cause(name: str) -> None:
    plain = [
        answer
        for answer in (told(case) for case in public_cases())
        if answer.right and answer.tail.clues.text.count("\n") >= LINES and "\x1b" not in answer.tail.clues.text
    ]
    again = [formatted(answer, FORMATS[name]) for answer in plain]
    causes = sum(answer.right for answer in again) / len(again)
    lines = [
        (before, after)
        for before, after in zip(plain, again, strict=True)
        if before.cause.line_number is not None and after.right
    ]
    same = sum(before.cause.line_number == after.cause.line_number for before, after in lines) / len(lines)
    print(f"{name}: cause {causes:.3f}, line {same:.3f} of {len(again)}")

    assert causes >= SAME_CAUSE, [answer.tail.name for answer in again if not answer.right]
    assert same >= SAME_LINE, [after.tail.name for before, after in lines if before.cause.line != after.cause.line]


def test_what_nearly_all_lines_begin_with_is_a_prefix() -> None:
    prefix = shared_prefix(
        [f"unit-7 up {at}s> {word}" for at, word in enumerate(("boot", "load", "ready", "Error: x"))]
    )

    assert prefix is not None
    assert prefix.sub("", "unit-7 up 31s> done", count=1) == "done"


@pytest.mark.parametrize(
    "lines",
    [
        ["RuntimeError: CUDA error: one", "RuntimeError: CUDA error: two"] * 3,
        ["Failed to load a", "Failed to load b", "Failed to load c", "Failed to load d"],
        ["a", "b"],
        [],
    ],
)
def test_what_is_said_again_and_again_is_no_prefix(lines: list[str]) -> None:
    assert shared_prefix(lines) is None


def test_a_prefix_is_read_off_the_first_line_of_a_traceback() -> None:
    prefix = shared_prefix(
        ["gpu/3> Traceback (most recent call last):", 'gpu/3>   File "a.py", line 1', "gpu/3> KeyError"]
    )

    assert prefix is not None
    assert core_of(prefix.sub("", 'gpu/3>   File "a.py", line 1', count=1)) == '  File "a.py", line 1'
