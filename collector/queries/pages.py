"""A page of a list: bounded, newest first, with the place where the next begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from collector.errors import BadInput
from collector.queries import cursor as cursors

Item = TypeVar("Item")

IDS_BYTES: Final = 30 << 10
"""Most bytes of the ids in one question: the server takes 128 KiB of a bound value, in which a byte can become four."""
LIMIT_MAX: Final = 200
LIMIT_DEFAULT: Final = 50


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Items of a list. `next_cursor` is None on the last page."""

    items: list[Item]
    next_cursor: str | None


def in_questions(ids: Sequence[str], most: int) -> Iterator[list[str]]:
    """The ids in lists that fit into one question each: at most `most`, and fewer where they are long."""
    asked: list[str] = []
    size = 0
    for one in ids:
        size += len(one.encode("utf-8", "replace"))
        if asked and (len(asked) == most or size > IDS_BYTES):
            yield asked
            asked, size = [], len(one.encode("utf-8", "replace"))
        asked.append(one)
    if asked:
        yield asked


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
