"""The caller's side of an invoke API, as a library: submit, wait with an explicit total, cancel, typed errors.

Needs no Stallscope server. `stallscope run`, `status`, `health` and `cancel` are thin users of it.
"""

from collector.caller.errors import (
    ApiFailed,
    CallerError,
    CallTimedOut,
    JobFailed,
    NotAllowed,
    NotFound,
    Unreachable,
    WaitSpent,
    WrongInput,
)
from collector.caller.invoke import Endpoint, Request, Watcher
from collector.caller.replies import TERMINAL, JobStatus, Seen
from collector.caller.timing import Timing

__all__ = [
    "TERMINAL",
    "ApiFailed",
    "CallTimedOut",
    "CallerError",
    "Endpoint",
    "JobFailed",
    "JobStatus",
    "NotAllowed",
    "NotFound",
    "Request",
    "Seen",
    "Timing",
    "Unreachable",
    "WaitSpent",
    "Watcher",
    "WrongInput",
]
