"""The cause of a failure: right on the public cases, on our own variants, and from the exit alone; else unknown."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tails import HERE, Tail, Told, plain, public_cases, told, variants, vocabulary

from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Cause, Clues, ExceptionClue
from collector.diagnosis.reading import read
from collector.diagnosis.rules import RULES, SIGNALS
from collector.diagnosis.rules.needles import grams_of
from collector.diagnosis.rules.shape import CompiledSignal, fill

# What the public cases must score (right cause, right line, right among those answered firmly).
CAUSE, LINE, PRECISION = 0.97, 0.95, 0.98
TAXONOMY = (
    "cuda_oom kv_cache_no_room cuda_error gpu_arch_unsupported gpu_driver_mismatch gpu_unavailable gpu_hardware_fault"
    " nccl_error host_oom shm_exhausted disk_full native_crash port_in_use gated_model_auth model_not_found"
    " hub_unavailable network_unreachable model_corrupt model_unsupported import_error native_lib_error"
    " missing_component config_invalid image_start_failed handler_exception input_invalid payload_too_large"
    " output_not_serializable sidecar_unreachable storage_upload_failed timeout request_cancelled"
    " capacity_unavailable terminated_by_platform platform_api_error"
)
CODES = frozenset(TAXONOMY.split())


def missed(answers: list[Told]) -> str:
    wrong = [answer for answer in answers if not (answer.right and answer.line_right)]
    return "\n".join(
        f"{answer.tail.name}: {answer.cause.code} ({answer.cause.confidence}), {plain(answer.cause.line or '')[:120]}"
        for answer in wrong
    )


def share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def test_public_cases_are_read_right() -> None:
    answers = [told(case) for case in public_cases() if not case.composed]
    with_line = [answer for answer in answers if answer.tail.root]
    firm = [answer for answer in answers if answer.firm]

    assert len(answers) == 86
    assert share(sum(answer.right for answer in answers), len(answers)) >= CAUSE, missed(answers)
    assert share(sum(answer.line_right for answer in with_line), len(with_line)) >= LINE, missed(answers)
    assert share(sum(answer.right for answer in firm), len(firm)) >= PRECISION, missed(firm)
    assert len(firm) >= 0.85 * len(answers)


def test_composed_public_cases_are_read_right() -> None:
    answers = [told(case) for case in public_cases() if case.composed]

    assert len(answers) == 18
    assert share(sum(answer.right for answer in answers), len(answers)) >= CAUSE, missed(answers)


@pytest.mark.parametrize("stem", [path.stem for path in sorted((HERE / "variants").glob("*.txt"))])
def test_variants_are_read_right(stem: str) -> None:
    answers = [told(tail) for tail in variants() if tail.name.startswith(f"{stem}-")]

    assert answers
    assert missed(answers) == ""


def test_what_many_programs_print_is_understood() -> None:
    told_of = [(codes, line, find_cause(Clues(text=line + "\n"))) for codes, line in vocabulary()]
    wrong = [f"{line}: {cause.code} ({cause.confidence})" for codes, line, cause in told_of if cause.code not in codes]

    assert len(told_of) > 700
    assert {codes[0] for codes, _, _ in told_of} == CODES - {"handler_exception"}
    assert wrong == []


ECHOES = (
    'INFO request body: {{"messages": [{{"role": "user", "content": "{}"}}]}}',
    "user message: {} what does it mean",
    "INFO received input: {{'text': '{}'}}",
    "config: {{'restart_on': ['{}']}}",
    "  --retry-on TEXT   what to retry, like {}",
    "+ echo '{}'",
    "INFO prompt: {}",
)


@pytest.mark.parametrize("echo", ECHOES)
def test_what_is_only_repeated_is_no_cause(echo: str) -> None:
    """Callers ask about errors, help pages and settings name them: none of that happened."""
    firm = []
    for codes, line in vocabulary():
        cause = find_cause(Clues(text=f"{echo.format(line)}\nINFO generating\n", phase="handler"))
        if cause.confidence in ("certain", "likely") and cause.code in codes:
            firm.append(line)

    assert firm == []


def test_confidence_is_calibrated() -> None:
    """Right and wrong by confidence word, over all tails: what is said firmly is right, what is a guess says so."""
    answers = [told(tail) for tail in [*public_cases(), *variants()]]
    table = Counter((answer.cause.confidence, answer.right) for answer in answers)
    print({word: (table[word, True], table[word, False]) for word in ("certain", "likely", "possible", "unknown")})

    assert table["certain", False] == 0
    assert share(table["likely", False], table["likely", True] + table["likely", False]) <= 1 - PRECISION
    assert table["certain", True] > table["possible", True]


def test_each_variant_stands_for_a_kind_of_its_own() -> None:
    tails = variants()

    assert len(tails) >= 150
    assert len({tail.clues for tail in tails}) == len(tails)
    assert {code for tail in tails for code in tail.codes} == CODES | {"unknown", "no_failure"}


def test_each_cause_of_the_taxonomy_has_a_rule() -> None:
    assert {rule.code for rule in RULES} == CODES
    assert len(RULES) == len(CODES)


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda found: f"{found.rule.code}: {found.signal.why[:50]}")
def test_examples_of_a_signal_are_found(signal: CompiledSignal) -> None:
    assert signal.signal.examples
    for example in signal.signal.examples:
        text = read(example).statements[0].core if signal.at_start else example
        assert signal.pattern.search(text), example
        assert not (signal.unless and signal.unless.search(example)), example
        assert any(needle in example.lower() for needle in signal.needles), example


@pytest.mark.parametrize("tail", [*public_cases(), *variants()], ids=lambda tail: tail.name)
def test_what_is_said_about_a_tail_can_be_used(tail: Tail) -> None:
    """A clause for after "because", no template left unfilled, advice as orders, the line verbatim at its number."""
    cause, lines = told(tail).cause, tail.clues.text.split("\n")

    assert cause.explanation
    assert not re.search(r"[{}\[\]]\w+[}\]]|(?<!\w)\(\)|  |[.,;:]$", cause.explanation), cause.explanation
    assert cause.line is None or lines[(cause.line_number or 0) - 1] == cause.line
    assert (cause.line is None) == (cause.line_number is None)
    assert all(advice[0].isupper() and advice.endswith(".") for advice in cause.advice), cause.advice
    assert cause.advice or cause.code in ("unknown", "no_failure")
    assert cause.missing or cause.code != "unknown"


def said(**clues: object) -> Cause:
    return find_cause(Clues(**clues))  # type: ignore[arg-type]


def test_details_are_repeated_where_the_text_holds_them() -> None:
    memory = said(
        text="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of"
        " 23.69 GiB of which 1.20 GiB is free."
    )
    cache = said(
        text="ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be"
        " stored in KV cache (17744)."
    )

    assert memory.explanation == (
        "the GPU ran out of memory: tried to allocate 2.50 GiB on GPU 0, 1.20 GiB free of 23.69 GiB"
    )
    assert cache.explanation == "the key/value cache does not fit: 32768 tokens asked for, room for 17744"
    assert cache.advice[0] == "Set --max-model-len 17744 or lower."


def test_a_template_drops_the_parts_that_lack_a_value() -> None:
    assert fill("no room[: {size} asked][, {free} free]", {"size": "1 GiB"}) == "no room: 1 GiB asked"
    assert fill("set {name}", {}) is None


@pytest.mark.parametrize(
    ("clues", "code", "confidence"),
    [
        ({"signal": 9, "oom_kill": True}, "host_oom", "certain"),
        ({"exit_code": 137, "oom_kill": True}, "host_oom", "certain"),
        ({"exit_code": 137}, "host_oom", "possible"),
        ({"signal": 9, "oom_kill": False}, "terminated_by_platform", "possible"),
        ({"signal": 9, "phase": "stop"}, "terminated_by_platform", "likely"),
        ({"exit_code": 139}, "native_crash", "likely"),
        ({"signal": 6}, "native_crash", "possible"),
        ({"signal": 4}, "native_crash", "likely"),
        ({"exit_code": 143}, "terminated_by_platform", "likely"),
        ({"signal": 2}, "request_cancelled", "likely"),
        ({"exit_code": 127, "phase": "boot"}, "image_start_failed", "possible"),
        ({"exit_code": 124}, "timeout", "possible"),
        ({"exit_code": 1}, "unknown", "unknown"),
        ({"exit_code": 2, "phase": "handler"}, "unknown", "unknown"),
        ({}, "unknown", "unknown"),
        ({"oom_kill": True}, "host_oom", "certain"),
    ],
)
def test_an_exit_alone_tells_a_cause(clues: dict[str, object], code: str, confidence: str) -> None:
    cause = said(**clues)

    assert (cause.code, cause.confidence, cause.line) == (code, confidence, None)


def test_the_exception_record_may_be_the_only_text() -> None:
    exception = ExceptionClue(
        "torch.OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 2.50 GiB.",
        'Traceback (most recent call last):\n  File "/handler.py", line 3, in handler\n    model(x)\n',
    )

    cause = said(exception=exception, phase="handler")

    assert (cause.code, cause.confidence, cause.line) == ("cuda_oom", "certain", None)


def test_a_plain_exception_record_is_the_handlers_own() -> None:
    trace = 'Traceback (most recent call last):\n  File "/handler.py", line 3, in handler\n    return job["seed"]\n'

    cause = said(exception=ExceptionClue("KeyError", "'seed'", trace), phase="handler")

    assert (cause.code, cause.confidence, cause.fault) == ("handler_exception", "likely", "user_code")
    assert cause.explanation == "the code raised KeyError: 'seed'"


def test_the_log_line_is_quoted_where_log_and_record_tell_the_same() -> None:
    line = "OSError: [Errno 28] No space left on device"

    cause = said(text=f"writing\n{line}\n", exception=ExceptionClue("OSError", "[Errno 28] No space left on device"))

    assert (cause.code, cause.line, cause.line_number) == ("disk_full", line, 2)


def test_a_broken_card_beats_whatever_came_first() -> None:
    text = (
        "RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.\n"
    )

    cause = said(text=text, signal=9, oom_kill=True)

    assert (cause.code, cause.line_number) == ("gpu_hardware_fault", 2)


def test_a_kill_that_was_counted_beats_what_the_text_says() -> None:
    cause = said(text="ValueError: something else\n", exit_code=137, oom_kill=True)

    assert (cause.code, cause.confidence) == ("host_oom", "certain")


def test_nothing_at_all_is_unknown_and_says_what_would_help() -> None:
    cause = said()

    assert cause.code == cause.confidence == cause.fault == "unknown"
    assert any("STALLSCOPE_" in missing.how for missing in cause.missing)
    assert any("sdk_exporter" in missing.how for missing in cause.missing)


def test_a_wrapper_is_never_the_cause() -> None:
    text = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"

    cause = said(text=text, phase="prestart", exit_code=1)

    assert cause.code == "unknown"
    assert "something else failed" in cause.explanation


@pytest.mark.parametrize(
    "text",
    ["\x00" * 200, "\x1b[" * 5000, "\r" * 16384, "{" * 16384, "\\n" * 8000, "Traceback (most recent call last)\n" * 400,
     "\udcff\udcfe error \u0130\n" * 300, "(" * 16384, "\n" * 16384],
)  # fmt: skip
def test_hostile_text_gets_an_answer(text: str) -> None:
    assert said(text=text).code


def test_the_answer_is_the_same_each_time() -> None:
    for tail in public_cases():
        assert told(tail).cause == told(tail).cause


def test_grams_find_every_needle() -> None:
    for signal in SIGNALS:
        for needle in signal.needles:
            assert grams_of(needle) <= grams_of(f"x {needle} y")


def tail_of(name: str) -> Tail:
    return next(case for case in public_cases() if case.name == name)


def test_the_root_is_found_far_above_the_end() -> None:
    """An engine's child says it, then its own copy, the parent's traceback and a restart follow."""
    answer = told(tail_of("kv-qwen35-compose-restart-16k"))

    assert answer.right
    assert answer.line_right
    assert answer.cause.line_number is not None
    assert answer.cause.line_number < 40
