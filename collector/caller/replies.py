"""What an answer of the invoke API says of a request. Its bytes are kept; only a few keys are read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class JobStatus(str, Enum):
    """The six words of the platform. Any other is kept verbatim, and means that the request goes on."""

    IN_QUEUE = "IN_QUEUE"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"


TERMINAL: Final = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer about a request. `None`: the answer did not say. `body` is the answer, byte for byte."""

    body: bytes
    id: str | None = None
    status: str | None = None
    queue_seconds: float | None = None
    run_seconds: float | None = None
    worker: str | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_completed(self) -> bool:
        return self.status == JobStatus.COMPLETED


def read_seen(body: bytes) -> Seen | None:
    """What the answer says, or None where it is no JSON object."""
    said = read_object(body)
    if said is None:
        return None
    return Seen(
        body=body,
        id=_text(said.get("id")),
        status=_text(said.get("status")),
        queue_seconds=_seconds(said.get("delayTime")),
        run_seconds=_seconds(said.get("executionTime")),
        worker=_text(said.get("workerId")),
        error=_error(said.get("error")),
    )


def read_object(body: bytes) -> dict[str, Any] | None:
    """A JSON object, or None. Numbers come as floats: only times are read, and a number of 5,000 digits is no error."""
    try:
        said = json.loads(body, parse_int=float, parse_float=float)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _seconds(value: Any) -> float | None:
    return value / 1000 if isinstance(value, float) and 0 <= value < 1e15 else None


def _error(value: Any) -> str | None:
    """The error for people. Workers hand in a JSON text with `error_type` and `error_message`."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    said = read_object(text.encode("utf-8", "surrogatepass"))
    if said is None or not isinstance(said.get("error_message"), str):
        return text
    kind = str(said.get("error_type", "")).removeprefix("<class '").removesuffix("'>")
    return f"{kind}: {said['error_message']}" if kind else str(said["error_message"])
