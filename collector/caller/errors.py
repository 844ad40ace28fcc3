"""What can go wrong on the caller's side. Codes and `retryable` are for programs and stay as they are.

    CallerError               code            retryable: the same thing may be asked again, safely and with hope
    ├── WrongInput            usage_error     no
    ├── WaitSpent             timeout         no: the request goes on by itself. Yes once it was cancelled
    ├── CallTimedOut          call_timeout    yes; no where a request may have been queued by it
    ├── Unreachable           network_error   yes; no where a request may have been queued by it
    ├── JobFailed             job_failed      no
    ├── ApiFailed             api_error       yes for HTTP 429 and 5xx
    ├── NotFound              not_found       no
    └── NotAllowed            auth_error      no

Whatever the code: once a request has an id, running it again would be a second request, so an error that ends a
`run` after its submission is never retryable.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

Code = Literal[
    "usage_error", "timeout", "call_timeout", "job_failed", "api_error", "not_found", "network_error", "auth_error"
]
EXCERPT_POINTS: Final = 200
"""Code points shown of a text that somebody else wrote."""


class CallerError(Exception):
    """The call did not do what was asked. `str()` is the sentence for people.

    `body`: the last answer of the platform about the request, byte for byte; None where there was none.
    `job_id`: None where no id is known.
    """

    code: ClassVar[Code] = "api_error"
    by_default_retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, retryable: bool | None = None, body: bytes | None = None, job_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = self.by_default_retryable if retryable is None else retryable
        self.body = body
        self.job_id = job_id


class WrongInput(CallerError):
    """What was given cannot be sent: nothing was."""

    code = "usage_error"


class WaitSpent(CallerError):
    """The total wait, or the time allowed in the queue, is over. The request goes on unless it says otherwise."""

    code = "timeout"


class CallTimedOut(CallerError):
    """One HTTP call had no answer in its time."""

    code = "call_timeout"
    by_default_retryable = True


class Unreachable(CallerError):
    """No connection, or one that broke."""

    code = "network_error"
    by_default_retryable = True


class JobFailed(CallerError):
    """The request ended as FAILED, CANCELLED or TIMED_OUT; `status` says which."""

    code = "job_failed"

    def __init__(self, message: str, *, status: str, body: bytes, job_id: str | None) -> None:
        super().__init__(message, body=body, job_id=job_id)
        self.status = status


class ApiFailed(CallerError):
    """The platform answered with an error, or with what is no answer. `status`: the HTTP status."""

    code = "api_error"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        retryable: bool = False,
        body: bytes | None = None,
        job_id: str | None = None,
    ) -> None:
        super().__init__(message, retryable=retryable, body=body, job_id=job_id)
        self.status = status


class NotFound(CallerError):
    """HTTP 404: no such endpoint, or a request that the platform no longer knows."""

    code = "not_found"


class NotAllowed(CallerError):
    """HTTP 401 or 403."""

    code = "auth_error"


def excerpt(text: str, points: int = EXCERPT_POINTS) -> str:
    """The beginning of a foreign text, safe to show: at most `points` code points, no control characters."""
    flat = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text[:points])
    return flat.strip() + ("…" if len(text) > points else "")
