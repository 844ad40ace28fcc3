"""Answers and summaries as the JSON of the API: times RFC 3339 UTC, 64-bit integers exact, tuples as arrays.

What JSON cannot carry is told as text, never dropped: a double that is no number as `"NaN"`, `"Infinity"` or
`"-Infinity"` (the form of OTLP JSON), a lone surrogate as U+FFFD.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from typing import Any, Final

from collector.diagnosis.answer import Answer, Verdict
from sdk_exporter.bounds import valid

ITEM_OMITS: Final = ("spans", "phases", "log_tail")
"""What an item of a list leaves out of the whole answer."""


def answer_json(answer: Answer) -> dict[str, Any]:
    """The body of `GET /api/v1/jobs/{job_id}`."""
    return _object(answer)


def item_json(answer: Answer) -> dict[str, Any]:
    """One item of `GET /api/v1/jobs`: the answer without spans, phases and log tail."""
    return {name: value for name, value in answer_json(answer).items() if name not in ITEM_OMITS}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """The bare verdict object of `POST /api/v1/diagnose`."""
    return _object(verdict)


def object_json(value: Any) -> dict[str, Any]:
    """Any frozen dataclass of answers (a summary, a finding) as a JSON object."""
    return _object(value)


def time_text(at: datetime) -> str:
    """RFC 3339 in UTC with microseconds and `Z`. Raises ValueError for a time without a zone."""
    if at.tzinfo is None:
        raise ValueError("a time without a zone has no place on the wire")
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def json_bytes(value: Any) -> bytes:
    """`value`, already in JSON form, as UTF-8 with non-ASCII left as it is."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _object(value: Any) -> dict[str, Any]:
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return valid(str(value))  # str(): a word of the contract is an Enum that prints as its text
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, dict):
        return {valid(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return _object(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")
