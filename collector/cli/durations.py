"""A DURATION of the command line: `500ms`, `3s`, `5m`, `1h30m`, or plain seconds."""

from __future__ import annotations

import itertools
import re
from typing import Final

import click

_UNIT_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PLAIN: Final = re.compile(r"\d+(\.\d+)?")
_PARTS: Final = re.compile(r"(?:(\d+(?:\.\d+)?)(h|ms|m|s))")
MOST_SECONDS: Final = 7 * 24 * 3600.0


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError saying what is accepted."""
    given = text.strip().lower()
    if _PLAIN.fullmatch(given):
        seconds = float(given)
    else:
        parts = _PARTS.findall(given)
        if not parts or "".join(number + unit for number, unit in parts) != given or not _falling(parts):
            raise ValueError(f"{text!r} is no duration; write 500ms, 3s, 5m, 1h30m or plain seconds")
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if seconds > MOST_SECONDS:
        raise ValueError(f"{text!r} is longer than a week")
    return seconds


def _falling(parts: list[tuple[str, str]]) -> bool:
    """Whether each unit is smaller than the one before, so that none is named twice."""
    sizes = [_UNIT_SECONDS[unit] for _, unit in parts]
    return all(before > after for before, after in itertools.pairwise(sizes))


def duration_option(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """The callback of a click option that takes a DURATION: seconds, or None where it was not given."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None
