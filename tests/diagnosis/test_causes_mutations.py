"""What a verdict does when its tail changes: evidence gone, noise added, cut short. Rates are printed (`pytest -s`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tails import HERE, Tail, Told, public_cases, told, variants, vocabulary

from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Clues

HARMLESS = """\
Exception ignored in: <function Server.__del__ at 0x7f2c1c0d3a60>
Traceback (most recent call last):
  File "/usr/local/lib/python3.11/site-packages/grpc/aio/_server.py", line 194, in __del__
    cygrpc.schedule_coro_threadsafe(
AttributeError: 'NoneType' object has no attribute 'POLLER'
"""
OTHER_JOB = (
    "INFO   | other-job-u1 | Started.",
    "INFO   | other-job-u1 | Progress 50 %",
    'INFO:     10.0.0.9:41244 - "POST /v1/completions HTTP/1.1" 200 OK',
    "INFO   | other-job-u1 | Finished.",
)
MOST_EVIDENCE = 16  # lines of one tail that may name its cause; 15 device assertions are the most


def with_text(tail: Tail, text: str) -> Tail:
    return replace(tail, clues=replace(tail.clues, text=text))


def without_line(tail: Tail, number: int) -> Tail:
    lines = tail.clues.text.split("\n")
    return with_text(tail, "\n".join(lines[: number - 1] + lines[number:]))


def firmly_wrong(answer: Told) -> bool:
    return answer.firm and not answer.right


def test_a_verdict_goes_with_its_evidence() -> None:
    """Every line that it rests on is taken away in turn: it must not outlive them, nor turn firm and wrong."""
    kept, turned, cases = [], [], [case for case in public_cases() if case.root]
    for case in cases:
        first, tail = told(case), case
        for _ in range(MOST_EVIDENCE):
            answer = told(tail)
            if answer.cause.code != first.cause.code or answer.cause.line_number is None:
                break
            tail = without_line(tail, answer.cause.line_number)
        last = told(tail)
        by_exit = last.cause.line is None and (case.clues.signal or case.clues.exit_code)
        if last.firm and last.cause.code == first.cause.code and not by_exit:
            kept.append(case.name)
        if firmly_wrong(last):
            turned.append(f"{case.name}: {last.cause.code}")
    print(f"evidence removed: of {len(cases)} kept {len(kept)} {kept}, firm and wrong {len(turned)} {turned}")

    assert kept == []
    assert len(turned) <= 0.04 * len(cases), turned


def test_a_verdict_without_its_root_line_is_weaker_or_rests_on_another_line_that_names_it() -> None:
    turned, cases = [], [case for case in public_cases() if case.root]
    for case in cases:
        first = told(case)
        assert first.cause.line_number is not None
        answer = told(without_line(case, first.cause.line_number))
        if firmly_wrong(answer):
            turned.append(f"{case.name}: {answer.cause.code}")
    print(f"root line removed: of {len(cases)} firm and wrong {len(turned)} {turned}")

    assert len(turned) <= 0.02 * len(cases), turned


def appended(text: str) -> str:
    return text.rstrip("\n") + "\n" + HARMLESS


def followed_by_another_job(text: str) -> str:
    return text.rstrip("\n") + "\n" + "\n".join(OTHER_JOB) + "\n"


def mixed_with_another_job(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        line if number % 3 else f"{line}\n{OTHER_JOB[number // 3 % len(OTHER_JOB)]}"
        for number, line in enumerate(lines)
    )


@pytest.mark.parametrize("change", [appended, followed_by_another_job, mixed_with_another_job])
def test_a_verdict_stands_in_spite_of_noise(change: Callable[[str], str]) -> None:
    changed = []
    for case in public_cases():
        before, after = told(case).cause, told(with_text(case, change(case.clues.text))).cause
        if (before.code, before.line) != (after.code, after.line):
            changed.append(f"{case.name}: {before.code} -> {after.code}")

    assert changed == []


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_cut_tail_is_never_read_firmly_wrong(side: str) -> None:
    """Cut at each KiB (short ones in the middle), as a byte bound does it."""
    wrong, cuts = [], 0
    for case in public_cases():
        raw = case.clues.text.encode()
        places = range(1024, len(raw), 1024) if len(raw) > 1024 else [len(raw) // 2]
        for place in places:
            part = raw[place:] if side == "left" else raw[:place]
            answer = told(with_text(case, part.decode(errors="ignore")))
            cuts += 1
            if firmly_wrong(answer):
                wrong.append(f"{case.name} at {place}: {answer.cause.code}")
    print(f"cut from the {side}: {len(wrong)} of {cuts} firm and wrong {wrong}")

    assert len(wrong) <= 0.01 * cuts, wrong


def caused(tails: list[Tail]) -> list[Tail]:
    """Those with a cause and a line that names it: the others are about what is *not* in a tail."""
    return [tail for tail in tails if tail.root and told(tail).firm]


@pytest.mark.parametrize("noise", sorted((HERE / "noise").glob("*.txt")), ids=lambda path: path.stem)
def test_noise_of_healthy_starts_and_of_dying_is_no_cause(noise: Path) -> None:
    """Real workers print pages of warnings, falling-backs and settings first, and wrappers and leaks last."""
    changed, tails = [], caused(public_cases() + variants()[::6])
    for tail in tails:
        text = tail.clues.text
        noisy = noise.read_text() + text if noise.stem.startswith("before") else f"{text.rstrip()}\n{noise.read_text()}"
        before, after = told(tail).cause, told(with_text(tail, noisy)).cause
        if (before.code, before.line) != (after.code, after.line):
            changed.append(f"{tail.name}: {after.code} ({after.confidence}), {after.line}")
    print(f"{noise.stem}: changed {len(changed)} of {len(tails)}")

    assert len(tails) > 150
    assert changed == []


FAILS = """\
Traceback (most recent call last):
  File "/app/handler.py", line 30, in handler
    seed = params["seed"]
KeyError: 'seed'
"""
SURVIVED = {
    "tried again": "{}\nWARNING retrying in 2s (attempt 2/5)\nINFO:     Application startup complete.\n" + FAILS,
    "a server came up": "{}\nINFO:     Uvicorn running on http://0.0.0.0:8000\nINFO request 7 started\n" + FAILS,
    "fell back": "WARNING {}, falling back to the default\nINFO loaded in 3.1 s\n" + FAILS,
    "went on without": "WARNING no fast path: {}; continuing without it\nINFO step 1/20\n" + FAILS,
    "the job before failed": (
        "INFO   | a-1 | Started.\nERROR  | a-1 | {}\nINFO   | a-1 | Finished.\nINFO   | b-2 | Started.\n" + FAILS
    ),
}
LASTING = ("gpu_hardware_fault", "gpu_driver_mismatch")  # a server that comes up, or a job that ends, mends neither


@pytest.mark.parametrize("form", SURVIVED)
def test_what_was_survived_is_no_cause(form: str) -> None:
    told_of = [
        (codes, line, find_cause(Clues(text=SURVIVED[form].format(line), phase="handler")))
        for codes, line in vocabulary()
        if not set(codes) & set(LASTING)
    ]
    wrong = [
        f"{line}: {cause.code}"
        for _, line, cause in told_of
        if cause.confidence in ("certain", "likely") and cause.code != "handler_exception"
    ]
    print(f"{form}: {len(wrong)} of {len(told_of)} firm and wrong")

    assert len(told_of) > 600
    assert len(wrong) <= 0.002 * len(told_of), wrong
