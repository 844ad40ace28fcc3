"""What one stored record is. Field order is column order (`migrations/`), and a test compares the two.

Values stay typed all the way: 64-bit integers exact, arrays as lists. Times are integer Unix nanoseconds, ids are
lower-case hex.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, Union

AttributeValue = Union[str, bool, int, float, "list[AttributeValue]", "dict[str, AttributeValue]", None]
Attributes = dict[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event on a span, such as `exception`."""

    name: str
    at_ns: int
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A link to a span in this or another trace."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One span as stored. The id columns are taken out of resource and attributes, where they also stay."""

    tenant: str
    arrived_ms: int
    start_ns: int
    end_ns: int
    trace_id: str
    span_id: str
    parent_id: str
    job_id: str
    endpoint_id: str
    worker_id: str
    boot_id: str
    name: str
    kind: int
    status: str  # unset | ok | error
    status_message: str
    attributes: Attributes = field(default_factory=dict)
    resource: Attributes = field(default_factory=dict)
    events: list[SpanEvent] = field(default_factory=list)
    links: list[SpanLink] = field(default_factory=list)
    scope: str = ""


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
"""Made once: `json.dumps` with these arguments would make an encoder for each call."""


def json_text(value: object) -> str:
    """A value as the JSON text that a column holds. 64-bit integers stay exact, non-ASCII stays readable."""
    return _encode(value)


def span_row(record: Mapping[str, Any]) -> SpanRow:
    """A SpanRow from a record of `SELECT {SPAN_COLUMNS} FROM spans`, equal to the one that was stored."""
    return SpanRow(
        **{
            **{name: record[name] for name in _SPAN_FIELDS},
            "attributes": json.loads(record["attributes"]),
            "resource": json.loads(record["resource"]),
            "events": [SpanEvent(**event) for event in json.loads(record["events"])],
            "links": [SpanLink(**link) for link in json.loads(record["links"])],
        }
    )


_SPAN_FIELDS = tuple(field.name for field in fields(SpanRow))
SPAN_COLUMNS = ", ".join(_SPAN_FIELDS)
"""The columns that `span_row` reads, for a SELECT."""
