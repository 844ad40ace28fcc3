"""The rule about a request that a worker was handed and never read: only its worker's last report tells of it."""

from __future__ import annotations

from typing import Final

from collector.diagnosis.evidence import BootEvidence
from collector.diagnosis.lifecycle_case import (
    NOT_READ,
    SILENCE_FINAL_SECONDS,
    Reading,
    Ruling,
    absence,
    event,
    given,
    read,
    ruling,
)
from collector.diagnosis.lifecycle_queue import Waiting
from collector.diagnosis.lifecycle_start import failed_start
from collector.diagnosis.lifecycle_words import between, clock, name
from collector.diagnosis.records import Record
from sdk_exporter.contract import Key

_ADVICE: Final = (
    "Send the request again.",
    "Keep what blocks out of async prestart hooks: a plain function gets a thread of its own.",
)


def claim_left_unread(case: Waiting) -> Ruling | None:
    """The platform says that somebody holds it, and a worker ended with an answer to its poll unread meanwhile."""
    told = max((*case.evidence.requests, *case.evidence.polls), key=lambda r: (r.last_ns, r.span_id), default=None)
    found = _unread(case)
    if told is None or found is None or told.text(Key.CALLER_STATUS).upper() != "IN_PROGRESS":
        return None
    boot, unread = found
    failing = failed_start(boot)
    hook = failing.text(Key.PRESTART_HOOK) if failing is not None else ""
    after = f", after its prestart hook {name(hook)} had failed" if hook else ""
    sentence = (
        f"This request was probably lost on intake: the platform had handed it out (IN_PROGRESS at {clock(told.last)}),"
        f" and worker {name(unread.worker_id)} ended at {clock(unread.last)} with an answer to its poll for requests"
        f" unread{after}."
    )
    items = (
        event(unread, "the worker ended with an answer to its poll for requests unread"),
        event(told, "the caller saw the status IN_PROGRESS"),
        absence("no claim of the request by any worker was told"),
    )
    return ruling(
        "claim_lost_on_intake", sentence, _reading(boot, failing), items, state="lost",
        final=case.since(told.last) >= SILENCE_FINAL_SECONDS, confidence="likely", inferred=True, retry="yes",
        usual_advice=_ADVICE,
    )  # fmt: skip


def _unread(case: Waiting) -> tuple[BootEvidence, Record] | None:
    told = [(boot, r) for boot in case.boots() for r in boot.job_take if r.flag(Key.CLAIM_UNREAD)]
    since = [(boot, r) for boot, r in told if case.queued is not None and between(case.queued, r.last) >= 0]
    return since[0] if since else None


def _reading(boot: BootEvidence, failing: Record | None) -> Reading:
    """Why the worker ended is why nobody read it."""
    if failing is None:
        return NOT_READ
    ran_out = failing.error_type in ("PrestartTimeout", "InitializerTimeout")
    fallback = given("timeout", fault="model_config") if ran_out else None
    return read(boot.hook_of_failure(), failing, phase="prestart", fallback=fallback, own_limit=ran_out)
