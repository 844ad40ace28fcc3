"""A page of a list: bounded, newest first, with the place where the next begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from collector.errors import BadInput
from collector.queries import cursor as cursors

Item = TypeVar("Item")

LIMIT_MAX: Final = 200
LIMIT_DEFAULT: Final = 50


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Items of a list. `next_cursor` is None on the last page."""

    items: list[Item]
    next_cursor: str | None


def checked_limit(limit: int) -> int:
    """`limit`, or BadInput naming it."""
    if not 1 <= limit <= LIMIT_MAX:
        raise BadInput(f"limit: {limit} is not between 1 and {LIMIT_MAX}")
    return limit


def page_of(
    rows: Sequence[dict[str, Any]],
    limit: int,
    item: Callable[[dict[str, Any]], Item],
    place: Callable[[dict[str, Any]], tuple[int, str]],
) -> Page[Item]:
    """The page of `rows`, of which one more than `limit` was asked: it tells whether another page follows."""
    return Page([item(row) for row in rows[:limit]], next_cursor_of(rows, limit, place))


def next_cursor_of(
    rows: Sequence[dict[str, Any]], limit: int, place: Callable[[dict[str, Any]], tuple[int, str]]
) -> str | None:
    """Where the next page begins: after the last row of this one."""
    if len(rows) <= limit:
        return None
    return cursors.written(cursors.Place(*place(rows[limit - 1])))
