"""A bound is of bytes, and a cut never splits a character."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sdk_exporter import bounds

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)


@given(ANY_TEXT, st.integers(0, 400))
def test_clip_keeps_the_head_within_the_bound(text: str, limit: int) -> None:
    out = bounds.clip(text, limit)
    assert len(out.encode()) <= limit
    kept = out.removesuffix(bounds.CUT_MARK)
    assert bounds.valid(text).startswith(kept)


@given(ANY_TEXT, st.integers(0, 400))
def test_tail_keeps_the_end_within_both_bounds(text: str, limit: int) -> None:  # A8
    out = bounds.tail(text, limit)
    assert len(out.encode()) <= limit
    assert len(json.dumps(out, ensure_ascii=False).encode()) - 2 <= limit
    assert bounds.valid(text).endswith(out)


@given(ANY_TEXT)
def test_json_bytes_is_what_json_costs(text: str) -> None:
    clean = bounds.valid(text)
    assert bounds.json_bytes(clean) == len(json.dumps(clean, ensure_ascii=False).encode()) - 2


def test_a_cut_is_marked_and_a_short_text_is_not_touched() -> None:  # A9
    assert bounds.clip("a" * 100, 50).endswith(bounds.CUT_MARK)
    assert bounds.clip("déjà vu", 50) == "déjà vu"
    assert bounds.tail("x\n" * 20_000, 16_384).count("\n") == 5461


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert bounds.clip("a\ud800b", 10) == "a�b"
