"""A long output within a small bound."""

from __future__ import annotations

import random
import string
import time
from pathlib import Path

import pytest

from sdk_exporter import bounds
from sdk_exporter.contract import LogScope, LogStream
from sdk_exporter.recorder.condense import condense
from sdk_exporter.recorder.shared import Shared, StreamField
from sdk_exporter.recorder.tail import Cleaner, PipeOutput, Raw, plain

LIMIT = 16_384
ROOT = "ValueError: To serve at least one request, 8.0 GiB KV cache is needed, 3.2 GiB is available"


def engine_log() -> str:
    """An engine with worker processes: root, the child's traceback, the parent's, a restart's lines."""
    lines = [f"INFO 11-29 10:00:{second:02} loading shard {second} of 60" for second in range(60)] * 8
    frames = [f'  File "/usr/lib/python3/vllm/v1/engine/core_{at}.py", line {at}, in step_{at * 7}' for at in range(45)]
    lines += ["Traceback (most recent call last):", *frames, ROOT]
    for process in range(6):
        lines += ["Traceback (most recent call last):"]
        lines += [
            f'  File "/opt/serve/launcher_{process}.py", line {at * process}, in call_{at**2}' for at in range(50)
        ]
        lines += [f"RuntimeError: engine process {process} failed, see the root cause above"]
    return "\n".join([*lines, "INFO the end"]) + "\n"


def test_what_fits_is_left_alone() -> None:
    text = "same\n" * 100 + "x" * 5000 + "\n"
    assert condense(text, LIMIT) == (text, False)


def test_first_error_block_and_the_end_are_both_kept() -> None:
    log = engine_log()
    assert ROOT not in bounds.tail(log, LIMIT)
    text, cut = condense(log, LIMIT)
    assert cut
    assert ROOT in text.split("\n")
    assert text.endswith("INFO the end\n")
    assert "bytes left out] …" in text
    assert bounds.json_bytes(text) <= LIMIT


def test_repeats_are_folded_and_counted() -> None:
    block = [f"frame {letter}" for letter in string.ascii_letters[:20]]
    log = "\n".join(["start", *block * 500, "the end", ""])
    text, cut = condense(log, LIMIT)
    assert cut
    assert text.startswith("start\nframe a\n")
    assert "[the 20 lines above 499 more times, " in text
    assert text.endswith("\nthe end\n")


def test_numbers_of_single_lines_stay() -> None:
    log = "".join(f"step {number} loss {number / 7}\n" for number in range(3000))
    text, _ = condense(log, LIMIT)
    assert text.endswith("".join(f"step {number} loss {number / 7}\n" for number in range(2900, 3000)))


def test_progress_lines_keep_the_first_and_the_last() -> None:
    log = "begin\n" + "".join(
        f"Loading shards: {percent / 20}%| | {percent}/2000 [3.1it/s]\n" for percent in range(2000)
    )
    text, _ = condense(log + "after\n", LIMIT)
    assert text.startswith("begin\nLoading shards: 0.0%| | 0/2000 [3.1it/s]\n… [the line above 1998 more times, ")
    assert text.endswith("bytes left out] …\nLoading shards: 99.95%| | 1999/2000 [3.1it/s]\nafter\n")


def test_very_long_line_is_shortened_and_its_size_told() -> None:
    text, cut = condense("before\n" + "x" * 100_000 + "\nRuntimeError: after\n", LIMIT)
    assert cut
    assert text.startswith("before\nxxx")
    assert "… [98400 bytes left out] …" in text
    assert text.endswith("xxx\nRuntimeError: after\n")


@pytest.mark.parametrize("limit", [0, 1, 10, 100, 1000, 16_384])
def test_bounds_hold_for_any_text(limit: int) -> None:
    dice = random.Random(limit)  # noqa: S311 - the same in every run
    for _ in range(30):
        words = ["é" * 50, '"quoted"', "Error: no", "\n", "\n\n", "\t", "😀", "a" * 3000, "\\", "\ud800", "line\n" * 40]
        text = "".join(dice.choices(words, k=dice.randrange(200)))
        kept, cut = condense(text, limit)
        assert bounds.json_bytes(kept) <= limit
        assert len(kept.encode()) <= limit
        assert cut or kept == bounds.valid(text)


def test_condensing_megabytes_takes_linear_time() -> None:
    """Folding looks back: neither one line for ever nor no line twice may make it quadratic."""
    words = ["".join(pair) for pair in zip(string.ascii_letters, string.ascii_letters[7:], strict=False)]
    for line in ("same\n", "a\nb\n", "{}\n", "x\n{}{}\n", "{}\nx\nx\n{}\n"):
        text = "".join(line.format(words[number**3 % 41], words[number % 43]) for number in range(20_000))
        kept, _ = condense(text, LIMIT)
        assert bounds.json_bytes(kept) <= LIMIT


def test_progress_bar_becomes_its_last_state() -> None:
    assert plain("\r  0%|   |\r 50%|#  |\r100%|###|\n\x1b[31mred\x1b[0m\x07\r\n") == "100%|###|\nred\n"


def raw(data: bytes, seen: int) -> Raw:
    return Raw(data, seen, 0, LogScope.WORKER, LogStream.COMBINED, True, True)


def test_recorder_without_a_snapshot_does_not_open_the_gate_again() -> None:
    shared = Shared()

    def write(text: bytes) -> None:
        head = shared.field(0, StreamField.HEAD)
        shared.rings[0][head : head + len(text)] = text
        shared.push(0, len(text), head)
        shared.set_field(0, StreamField.HEAD, head + len(text))

    write(b"before")
    began = time.time_ns()
    write(b"of the handler")
    first = PipeOutput(shared)
    assert first.worker(1000).data == b"beforeof the handler"
    first.close_at(began, 1000)
    write(b" and more")
    assert first.worker(1000) == Raw(b"before", 29, 23, LogScope.WORKER, LogStream.COMBINED, True, True)
    after = PipeOutput(shared)
    assert after.worker(1000) == Raw(b"", 29, 23, LogScope.WORKER, LogStream.COMBINED, True, True)
    after.restore(first.to_json())
    assert after.worker(1000).data == b"before"


def test_head_of_a_cut_stream_may_be_half_a_secret_and_goes() -> None:
    secret = "".join(random.SystemRandom().choices(string.ascii_letters + string.digits, k=300))
    for separator in ("\n", "\r"):
        data = f"{secret}{separator}99%{separator}kept\n".encode()
        text, _, cut = Cleaner({}).tail(raw(data, len(data) + 1), LIMIT)
        assert cut
        assert secret[:8] not in text
        assert text.endswith("kept\n")


def test_output_that_never_was_is_an_empty_tail() -> None:
    assert Cleaner({}).tail(raw(b"", 0), LIMIT) == ("", 0, False)


def test_known_secret_is_masked_however_it_is_wrapped(tmp_path: Path) -> None:
    secret = "".join(random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=30))
    data = f"value {secret} and \x1b[1m{secret[:15]}\x1b[0m{secret[15:]}\n".encode()
    text, redactions, _ = Cleaner({"DB_PASSWORD": secret}).tail(raw(data, len(data)), LIMIT)
    assert secret not in text
    assert redactions == 2
