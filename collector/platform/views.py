"""What a platform answers, read without trust in its shape. What is not told, or not as it should be, is None or ""."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

READY: Final = frozenset({"IDLE", "RUNNING"})
WORKERS_MAX: Final = 1_000
"""Most workers of one answer that are looked at."""
FIELDS_MAX: Final = 50
_STATUSES: Final = ("RUNNING", "IDLE", "INITIALIZING", "THROTTLED", "UNHEALTHY")


class PlatformError(Exception):
    """The platform could not be asked, or its answer not be read. `kind` is one word for metrics and `error.type`."""

    def __init__(self, kind: str, text: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(text)
        self.kind, self.retry_after_seconds = kind, retry_after_seconds


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint's settings."""

    id: str
    name: str = ""
    workers_min: int | None = None
    workers_max: int | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that the platform counts. `status` is its own word."""

    id: str
    status: str
    is_stale: bool | None = None
    version: int | None = None
    image: str = ""
    gpu: str = ""
    data_center: str = ""
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All workers of an endpoint, and the newest version of its configuration."""

    workers: tuple[Worker, ...]
    version: int | None = None

    def counts(self) -> Mapping[str, int]:
        """How many workers there are of each known status."""
        found = Counter(worker.status for worker in self.workers)
        return {status: found[status] for status in _STATUSES}


@dataclass(frozen=True, slots=True)
class Queue:
    """How many requests wait and run."""

    queued: int | None
    running: int | None


@dataclass(frozen=True, slots=True)
class Release:
    """The newest release. `fields` are the names of what it changed: their values may be secrets."""

    id: str
    at: str
    fields: tuple[str, ...]
    paused_by: str = ""
    """The newest release that changed the maximum of workers, where it set it to zero."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a worker's log. `cursor` resumes after it."""

    cursor: str
    source: str
    text: str
    at_ns: int | None


def endpoints_of(answer: object) -> tuple[Endpoint, ...]:
    """Of a list of endpoints. Raises PlatformError for another shape."""
    found = [one for one in _list(answer, "endpoints") if _text(one.get("id"))]
    return tuple(
        Endpoint(
            _text(one.get("id")),
            _text(one.get("name")),
            _whole(_object(one.get("workers")).get("min")),
            _whole(_object(one.get("workers")).get("max")),
        )
        for one in found
    )


def fleet_of(answer: object) -> Fleet:
    """Of a list of workers; one without an id is left out. Raises PlatformError for another shape."""
    workers = tuple(
        Worker(
            id=_text(one.get("id")),
            status=_text(one.get("status")).upper(),
            is_stale=one["isStale"] if isinstance(one.get("isStale"), bool) else None,
            version=_whole(one.get("version")),
            image=_text(one.get("image")),
            gpu=_text(one.get("gpuTypeId")),
            data_center=_text(one.get("dataCenterId")),
            started_at=_text(one.get("startedAt")),
        )
        for one in _list(answer, "workers")[:WORKERS_MAX]
        if _text(one.get("id"))
    )
    return Fleet(workers, _whole(_object(answer).get("endpointVersion")))


def queue_of(answer: object) -> Queue:
    """Of `/health`. Raises PlatformError for another shape."""
    jobs = _object(answer).get("jobs")
    if not isinstance(jobs, dict):
        raise PlatformError("shape", "the answer has no object `jobs`")
    return Queue(_whole(jobs.get("inQueue")), _whole(jobs.get("inProgress")))


def release_of(answer: object) -> Release | None:
    """The newest of a list of releases, newest first; None where there is none. Raises PlatformError."""
    found = [one for one in _list(answer, "releases") if _text(one.get("id"))]
    if not found:
        return None
    scaled = next(((one, diff) for one in found for diff in _diffs(one) if diff.get("field") == "workers.max"), None)
    paused = scaled is not None and _whole(scaled[1].get("new")) == 0
    return Release(
        id=_text(found[0].get("id")),
        at=_text(found[0].get("createdAt")),
        fields=tuple(_text(diff.get("field")) for diff in _diffs(found[0]))[:FIELDS_MAX],
        paused_by=_text(scaled[0].get("id")) if scaled is not None and paused else "",
    )


def log_line_of(cursor: str, data: str) -> LogLine | None:
    """Of one event of a log stream; None where it is no line."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("line"), str):
        return None
    return LogLine(cursor, _text(told.get("source")), told["line"], ns_of_text(_text(told.get("ts"))))


def ns_of_text(text: str) -> int | None:
    """An RFC 3339 time as Unix nanoseconds (exact to the microsecond); None where it is none."""
    whole, dot, rest = text.replace("Z", "+00:00").partition(".")
    if dot:  # Python 3.10 reads 3 or 6 digits only
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        whole += f".{digits[:6]:0<6}" + rest[len(digits) :]
    try:
        at = datetime.fromisoformat(whole)
        at = at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at
        seconds = int(at.timestamp())
    except (ValueError, OverflowError):
        return None
    return (seconds * 1_000_000 + at.microsecond) * 1000 if seconds >= 0 else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(answer: object, key: str) -> list[dict[str, Any]]:
    found = _object(answer).get(key)
    if not isinstance(found, list):
        raise PlatformError("shape", f"the answer has no list `{key}`")
    return [one for one in found if isinstance(one, dict)]


def _diffs(release: Mapping[str, Any]) -> list[dict[str, Any]]:
    diffs = release.get("diff")
    return [one for one in diffs if isinstance(one, dict)] if isinstance(diffs, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None
