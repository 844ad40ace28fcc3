"""What is said of a pasted log: what the log shows, with the numbers of the line, and no advice twice."""

from __future__ import annotations

import pytest
from tails import public_cases, told, variants

from collector.diagnosis import diagnose_tail
from collector.diagnosis.clues import Clues


@pytest.mark.parametrize(
    ("text", "phase", "sentence"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of"
            " 23.69 GiB of which 1.20 GiB is free.",
            "handler",
            "The log shows that the handler failed because the GPU ran out of memory: tried to allocate 2.50 GiB on"
            " GPU 0, 1.20 GiB free of 23.69 GiB.",
        ),
        (
            "llama_model_load: error loading model: missing tensor 'blk.0.attn_k.weight'",
            "prestart",
            "The log shows that the worker's prestart failed because this version of the software cannot load the"
            " model: llama_model_load: error loading model: missing tensor 'blk.0.attn_k.weight'.",
        ),
        (
            "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
            None,
            "The log allows no more than a guess: possibly the worker failed because a GPU library could not start,"
            " which mostly means that the card is full.",
        ),
    ],
)
def test_the_sentence_says_what_the_log_shows(text: str, phase: str | None, sentence: str) -> None:
    assert diagnose_tail(Clues(text=text + "\n", phase=phase)).sentence == sentence  # type: ignore[arg-type]


def test_no_sentence_speaks_of_a_request_and_no_advice_is_given_twice() -> None:
    for tail in [*public_cases(), *variants()[::4]]:
        verdict = diagnose_tail(tail.clues)

        assert not verdict.sentence.startswith("This request"), tail.name
        assert verdict.sentence.endswith(".")
        assert not verdict.sentence.endswith((". .", "..", ":.")), verdict.sentence
        assert len(set(verdict.advice)) == len(verdict.advice)


def test_what_is_possible_or_unknown_says_what_would_have_told_more() -> None:
    """As something to paste: a setting with its value, or a command."""
    unsure = [cause for cause in (told(tail).cause for tail in variants()[::2]) if cause.confidence == "possible"]
    sure = [cause for cause in (told(tail).cause for tail in variants()[::2]) if cause.confidence == "certain"]

    assert len(unsure) > 20
    assert all(
        missing.how.split("=")[0].isupper() or "python -m" in missing.how for c in unsure for missing in c.missing
    )
    assert all(cause.missing for cause in unsure)
    assert not any(cause.missing for cause in sure)
