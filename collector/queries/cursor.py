"""The place in a list where the next page begins: opaque to clients, checked on its way back."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Final

from collector.errors import BadInput
from collector.queries.stored import INT64_MAX
from sdk_exporter.bounds import valid

CURSOR_CHARACTERS: Final = 8_192
"""A job id of 1 KiB, each byte escaped in JSON and then in base64, fits."""


@dataclass(frozen=True, slots=True)
class Place:
    """The last row of a page: its time in Unix nanoseconds, and its id where times are equal."""

    first_ns: int
    job_id: str


START: Final = Place(INT64_MAX, "")
"""Before the newest row: stored times stay below it."""


def written(place: Place) -> str:
    """`place` as text for `next_cursor`."""
    return base64.urlsafe_b64encode(json.dumps([place.first_ns, place.job_id]).encode()).decode().rstrip("=")


def read(cursor: str | None) -> Place:
    """The place that a client names. Raises BadInput naming `cursor` for anything that `written` did not write."""
    if cursor is None:
        return START
    try:
        padded = cursor[:CURSOR_CHARACTERS].encode("ascii") + b"=" * (-len(cursor) % 4)
        first_ns, job_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise BadInput("cursor: not a cursor of this API; leave it out to begin with the newest") from None
    if type(first_ns) is not int or abs(first_ns) > INT64_MAX or not isinstance(job_id, str) or valid(job_id) != job_id:
        raise BadInput("cursor: not a cursor of this API; leave it out to begin with the newest")
    return Place(first_ns, job_id)
