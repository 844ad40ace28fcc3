"""Context managers by which user code says what it is doing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sdk_exporter import events, ledger, tee
from sdk_exporter.contract import HandlerKind, Key, SpanName

PHASE_PREFIX: Final = "phase."
"""Keeps a user's name apart from the contract's span names."""


@contextmanager
def job(job_id: str) -> Generator[None]:
    """A run of `job_id`, unless the SDK's hooks tell that run already: then only the context is set."""
    text = _text(job_id)
    watched = ledger.in_hand.get(text)
    if watched is not None:
        token = events.current.set(watched)
        try:
            yield
        finally:
            events.current.reset(token)
        return
    events.end_boot({Key.COLDSTART: True})  # nothing else tells that a plain loop has come up
    attempt = ledger.attempt_of(text)
    tee.run_begins()
    # The kind says that no platform takes a result: the end of the block is the outcome.
    kind = {Key.HANDLER_KIND: HandlerKind.BLOCK.value}
    run = attempt.run = events.begin(SpanName.JOB_RUN, kind, attempt=attempt)
    token = events.current.set(attempt)
    events.progress()
    try:
        yield
    except BaseException as error:
        run.end(error=error)
        ledger.release(attempt, "failed")
        raise
    else:
        run.end()
        ledger.release(attempt, "delivered")
    finally:
        events.current.reset(token)


@contextmanager
def phase(name: str) -> Generator[None]:
    """A span `phase.<name>` under the running job, or the boot."""
    attempt = events.current.get()
    span = events.begin(PHASE_PREFIX + _text(name), attempt=attempt)
    events.progress()
    try:
        yield
    except BaseException as error:
        span.end(error=error)
        raise
    else:
        span.end()
    finally:
        events.progress()


def _text(given: object) -> str:
    try:
        return events.job_id_text(given)
    except Exception:  # noqa: BLE001 - an object of the user's, whose `__str__` may do anything
        return "unknown"
