"""What the worker's side could not tell, by reason; `events` reports the counts with its next record."""

from __future__ import annotations

from sdk_exporter.contract import Loss

_pending: dict[str, int] = {}


def record(reason: Loss, count: int = 1) -> None:
    """Remember a loss. No lock: a count lost to a race between threads costs less than a lock on the job's path."""
    key = reason.value
    _pending[key] = _pending.get(key, 0) + count


def take() -> dict[str, int]:
    """The counts since the last call."""
    taken: dict[str, int] = {}
    while _pending:
        reason, count = _pending.popitem()
        taken[reason] = taken.get(reason, 0) + count
    return taken
