"""The errors of the server, drawn once. Each knows its code, its HTTP status and whether a retry can help.

StallscopeError
├── BadInput            400  what was sent cannot be read; names the field or the limit
│   └── BadContentType  415
├── TooLarge            413  a named limit was passed
├── NotSignedIn         401
├── NotAllowed          403
├── NotFound            404  code never_seen | past_retention | not_found
├── RateLimited         429  a token over its rate
├── StoreUnavailable    503  the store did not answer; nothing was acknowledged
├── StoreRefused        500  the store answered that a statement is wrong: a bug of ours
└── Overloaded          503
"""

from __future__ import annotations

from typing import ClassVar


class StallscopeError(Exception):
    """Something that a client is told about. `str()` is the sentence for people."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    retry_after_seconds: float | None = None


class BadInput(StallscopeError):
    """What was sent cannot be read."""

    code, status, title = "bad_input", 400, "Bad input"


class BadContentType(BadInput):
    """A media type or encoding that is not spoken here."""

    code, status, title = "bad_content_type", 415, "Unsupported content type"


class TooLarge(StallscopeError):
    """A named limit was passed."""

    code, status, title = "too_large", 413, "Too large"

    def __init__(self, limit_name: str, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{limit_name} is {limit} {unit}; what was sent is larger")
        self.limit_name, self.limit = limit_name, limit


class NotSignedIn(StallscopeError):
    """No token, or one that is not known."""

    code, status, title = "auth_error", 401, "Not signed in"


class NotAllowed(StallscopeError):
    """A known token that may not do this."""

    code, status, title = "auth_error", 403, "Not allowed"


class NotFound(StallscopeError):
    """Nothing by this id. `reason`: never_seen, past_retention or not_found."""

    status, title = 404, "Not found"

    def __init__(self, message: str, reason: str = "not_found") -> None:
        super().__init__(message)
        self.reason = reason


class RateLimited(StallscopeError):
    """A token over its rate."""

    code, status, title, retryable = "rate_limited", 429, "Too many requests", True

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class StoreUnavailable(StallscopeError):
    """The store did not answer, or cannot take more now. Nothing was acknowledged."""

    code, status, title, retryable = "store_unavailable", 503, "The store does not answer", True

    def __init__(self, message: str, retry_after_seconds: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class StoreRefused(StallscopeError):
    """The store answered that a statement is wrong: a bug of ours, never the client's."""

    code, title = "store_refused", "The store refused a statement"


class Overloaded(StallscopeError):
    """More is in flight than memory allows."""

    code, status, title, retryable = "overloaded", 503, "Overloaded", True

    def __init__(self, message: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
