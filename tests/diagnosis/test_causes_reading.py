"""How a tail is taken apart: statements, their physical lines, code under frames, harmless stretches; and its cost."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Clues
from collector.diagnosis.reading import read
from collector.diagnosis.rules.needles import needles_of


def cores(text: str) -> list[str]:
    return [said.core for said in read(text).statements if said.core]


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: no",
        "\x1b[0;36m(EngineCore_0 pid=123)\x1b[0;0m ERROR 11-02 10:00:00 [core.py:708] ValueError: no",
        "[0;36m(APIServer pid=7)[0;0m ValueError: no",
        "(MapWorker(MapBatches(Actor)) pid=8, ip=10.0.0.1) (Core pid=2) ERROR 01-01 00:00:00 a.py:3] ValueError: no",
        "2024-02-03T00:24:24.162636590Z ValueError: no",
        "2023-09-23 11:52:26 | ERROR | stderr | ValueError: no",
        "[2025-10-17 18:26:00 TP0] ValueError: no",
        "qwen35-4b  | (EngineCore_DP0 pid=132) ERROR 03-09 12:56:44 [core.py:1100] ValueError: no",
        "[rank1]: ValueError: no",
        "ERROR:root:ValueError: no",
        "ERROR 01-01 00:00:00 engine.py:366] ValueError: no",
        "E0705 08:07:40.219789 79386 main.cc:245] ValueError: no",
        "2024-08-29 19:10:33,179 - ERROR - ValueError: no",
        "  | ValueError: no",
        "Mar 11 04:33:08 gpu-worker-1 worker[31]: ValueError: no",
    ],
)
def test_a_message_is_found_behind_its_prefixes(line: str) -> None:
    said = read(line).statements[0]

    assert said.core == "ValueError: no"
    assert (said.exception, said.message) == ("ValueError", "no")


def test_what_belongs_to_a_message_stays() -> None:
    assert cores("[Errno 28] No space left on device") == ["[Errno 28] No space left on device"]
    assert cores("[FATAL tini (7)] exec FROM failed") == ["[FATAL tini (7)] exec FROM failed"]
    assert cores("socket.gaierror: [Errno -3] x") == ["socket.gaierror: [Errno -3] x"]


def test_a_statement_knows_its_physical_line() -> None:
    text = 'first\n{"level": "ERROR", "message": "Traceback\\n  File \\"a.py\\", line 1\\nKeyError: \'x\'"}\nlast\n'

    reading = read(text)

    assert [(said.line, said.core) for said in reading.statements if said.exception] == [(2, "KeyError: 'x'")]
    assert reading.lines[1].startswith('{"level"')


def test_an_overwritten_progress_bar_leaves_its_last_state_and_the_error() -> None:
    line = " 10%|# | 1/10 [00:01]\r 20%|## | 2/10 [00:02]\r 30%|### | 3/10 [00:03]\rRuntimeError: stop"

    assert cores(line) == ["30%|### | 3/10 [00:03]", "RuntimeError: stop"]


def test_glued_records_part() -> None:
    assert cores('{"a": 1}{"b": 2}') == ['{"a": 1}', '{"b": 2}']


def test_source_lines_of_a_traceback_are_no_messages() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in f\n'
        '    raise ValueError("No available memory for the cache blocks.")\n'
        "    ~~~~~^^^^^^\n"
        "KeyError: 'x'\n"
    )

    said = read(text).statements

    assert [one.code for one in said[:5]] == [False, False, True, True, False]
    assert (
        find_cause(Clues(text=text)).code != "kv_cache_no_room" or find_cause(Clues(text=text)).confidence == "possible"
    )


def test_source_lines_that_lost_their_indentation_are_no_messages() -> None:
    said = read('File "x.py", line 1791, in whoami\nraise HTTPError(message)\nrequests.HTTPError: no\n').statements

    assert [one.code for one in said[:3]] == [False, True, False]


def test_interleaved_processes_keep_their_own_tracebacks() -> None:
    text = (
        "(A pid=1) Traceback (most recent call last):\n"
        "(B pid=2) Traceback (most recent call last):\n"
        '(A pid=1)   File "a.py", line 1, in f\n'
        '(B pid=2)   File "b.py", line 1, in g\n'
        "(A pid=1)     one()\n"
        "(B pid=2)     two()\n"
        "(A pid=1) KeyError: 'a'\n"
        "(B pid=2) KeyError: 'b'\n"
    )

    said = [one for one in read(text).statements if one.exception]

    assert [one.message for one in said] == ["'a'", "'b'"]
    assert len({one.traceback for one in said}) == 2


def test_chained_tracebacks_are_one_chain() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x()\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "a.py", line 2, in f\n    y()\nValueError: 2\n\n'
        'Traceback (most recent call last):\n  File "b.py", line 2, in f\n    z()\nOSError: 3\n'
    )

    chains = [one.chain for one in read(text).statements if one.exception]

    assert chains[0] == chains[1] != chains[2]


def test_an_ignored_exception_is_harmless() -> None:
    text = (
        "Exception ignored in: <function F.__del__ at 0x7f>\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in __del__\n    x()\n'
        "OSError: [Errno 28] No space left\n"
    )

    assert find_cause(Clues(text=text)).code == "unknown"


def test_letters_whose_lower_case_is_longer_do_not_shift_places() -> None:
    text = "\u0130" * 50 + "\nOSError: [Errno 28] No space left on device\n"

    assert find_cause(Clues(text=text)).line_number == 2


@pytest.mark.parametrize(
    ("pattern", "needles"),
    [
        (r"CUDA out of memory", ("cuda out of memory",)),
        (r"(?:one thing|another) x?\d+", ("another", "one thing")),
        (r"a\[b\]c \d+ [^\n]{0,9}long enough", ("long enough",)),
        (r"(?P<name>\w+) is missing(?: here)?", (" is missing",)),
    ],
)
def test_needles_of_a_pattern(pattern: str, needles: tuple[str, ...]) -> None:
    assert needles_of(pattern) == needles


@pytest.mark.parametrize("pattern", [r"\d+|abc", r"x?y?", r"(?:abc)?", r"[abc]+"])
def test_a_pattern_without_needles_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no literal text"):
        needles_of(pattern)


def calls(text: str) -> int:
    """How many calls an answer takes: a measure of work that no busy machine disturbs."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    clues = Clues(text=text)
    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        find_cause(clues)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    "unit",
    [
        "\n",
        "a\n",
        "x 50%|\r",
        "(a ",
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'x'\n",
        "RuntimeError: CUDA out of memory. Connection refused. timed out. No space left. Killed\n",
        "ERROR 01-01 00:00:00 [core.py:1] EngineCore failed to start. error: retrying\n",
    ],
)
def test_work_grows_with_the_text_and_no_faster(unit: str) -> None:
    small, large = 1024 // len(unit), 16 * 1024 // len(unit)

    assert calls(unit * large) <= 16 * 1.25 * calls(unit * small) + 5000
