"""What one stored record is. Field order is column order (`migrations/`), and a test compares the two.

Values stay typed all the way: 64-bit integers exact, arrays as lists. Times are integer Unix nanoseconds, ids are
lower-case hex.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

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
