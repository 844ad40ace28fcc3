"""DURATION as the command line reads it."""

from __future__ import annotations

import pytest

from collector.cli.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("3s", 3.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h0m1s", 3601.0),
        ("90", 90.0),
        ("0", 0.0),
        ("0.25", 0.25),
        ("1.5m", 90.0),
        (" 3S ", 3.0),
        ("2m500ms", 120.5),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "3x", "-1s", "1m1h", "1s1s", "1h 30m", "nan", "inf", "1e3", "1..5s", "3s!"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


def test_a_duration_is_bounded() -> None:
    with pytest.raises(ValueError, match="longer than a week"):
        parse_duration("169h")
