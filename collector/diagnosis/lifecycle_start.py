"""Rules about the worker's start: fitness checks, initializer and prestart hooks that themselves failed."""

from __future__ import annotations

from typing import Final

from collector.diagnosis.answer import EvidenceItem
from collector.diagnosis.evidence import BootEvidence
from collector.diagnosis.lifecycle_case import (
    LOG_CAPTURE,
    SETTLED_SECONDS,
    Case,
    Reading,
    Ruling,
    because,
    claim_item,
    death_item,
    event,
    given,
    read,
    refused_for_good,
    ruling,
)
from collector.diagnosis.lifecycle_words import between, duration, name
from collector.diagnosis.records import Record, moment
from sdk_exporter.contract import Key, PrestartKind

_TIMEOUTS: Final = frozenset({"prestarttimeout", "initializertimeout", "inittimeout"})
"""Types that only the supervisor itself raises: a TimeoutError of the user's own is an ordinary failure."""


def fitness_failed(case: Case) -> Ruling | None:
    """A check of the worker's own found it unfit while the request was in its hands."""
    check = failed_check(case.attempt.worker)
    if check is None or case.attempt.run is not None:
        return None
    return fitness_ruling(check, case.after_claim(check.last), claim_item(case), final=case.settled)


def failed_check(boot: BootEvidence) -> Record | None:
    """The fitness check that failed, or None."""
    return next((check for check in boot.fitness if check.failed), None)


def fitness_ruling(check: Record, when: str, items: tuple[EvidenceItem, ...], *, final: bool) -> Ruling:
    """`fitness_failed` for a claimed or a waiting request."""
    reading = read(check, phase="boot")
    subject = f"the fitness check {name(check.text(Key.CHECK_NAME))}"
    sentence = f"This request failed because {because(subject, reading, when)}; the worker left."
    return ruling(
        "fitness_failed", sentence, reading, (event(check, "the fitness check failed"), *items), state="failed",
        final=final,
    )  # fmt: skip


def prestart_failed(case: Case) -> Ruling | None:
    """A prestart hook or the initializer failed, or ran out of its bound: so does every request in hand."""
    failing = failed_start(case.attempt.worker)
    if failing is None or case.attempt.run is not None:
        return None
    delivered, refused = case.attempt.delivered, refused_for_good(case)
    if interrupted(failing, case.attempt.worker) and delivered is None:
        return None  # a shutdown ended it: that is no failure of its own, and the request is stranded
    done = delivered or refused
    items = [*claim_item(case)]
    if delivered is not None:
        items.append(event(delivered, "the failure was handed to the platform"))
    if case.attempt.death is not None:
        items.append(death_item(case.attempt.death))
    when = case.after_claim(failing.last)
    final = done is not None or case.settled or case.since(failing.last) >= SETTLED_SECONDS
    return start_ruling(case.attempt.worker, failing, when, tuple(items), final=final)


def interrupted(failing: Record, boot: BootEvidence) -> bool:
    """Whether a shutdown of the worker ended the phase, not the phase itself."""
    return failing.error_type == "PrestartInterrupted" or (
        failing.error_type == "CancelledError" and bool(boot.shutdowns)
    )


def failed_start(boot: BootEvidence) -> Record | None:
    """The failed prestart phase, or its failed hook where the phase's own end is missing; None where none failed."""
    phase = boot.prestart
    if phase is not None and phase.failed:
        return phase
    return next((hook for hook in boot.hooks if hook.failed), None) if phase is None or not phase.ended else None


def start_ruling(
    boot: BootEvidence,
    failing: Record,
    when: str,
    items: tuple[EvidenceItem, ...],
    *,
    final: bool,
) -> Ruling:
    """`prestart_*` or `init_*` for a claimed or a waiting request."""
    hook = boot.hook_of_failure()
    kind = "init" if PrestartKind.INITIALIZER in (_kind(failing), _kind(hook)) else "prestart"
    timed_out = _is_timeout(failing) or (hook is not None and _is_timeout(hook))
    hook_name = (hook.text(Key.PRESTART_HOOK) if hook else "") or failing.text(Key.PRESTART_HOOK)
    subject = _subject(kind, hook_name)
    # The hook has the exception as it was raised; the phase has the tail.
    # How the process ended afterwards is a consequence, never the cause.
    reading = read(
        hook,
        failing,
        phase="prestart",
        fallback=given("timeout", fault="model_config") if timed_out else None,
        own_limit=timed_out,
    )
    if interrupted(failing, boot):
        reading = Reading(given("terminated_by_platform"), reading.record, reading.tail, reading.exception)
        sentence = (
            f"This request failed because the worker was told to shut down while {subject} was"
            f" running,{when or ' before it was ready'}."
        )
    elif timed_out:
        sentence = _timeout_sentence(failing, subject, when, reading.cause.code, because("it", reading, ""))
    else:
        sentence = f"This request failed because {because(subject, reading, when)}."
    what = "ran out of its time bound" if timed_out else "failed"
    if interrupted(failing, boot):
        what = "was interrupted by the shutdown"
    record = hook if hook is not None and hook.failed else failing
    ran = f" after {duration(between(record.start, record.last))}" if record.ended else ""
    missing = () if reading.tail else (LOG_CAPTURE,)
    return ruling(
        f"{kind}_timeout" if timed_out else f"{kind}_failed",
        sentence,
        reading,
        (event(record, f"{subject} {what}{ran}"), *items),
        state="failed",
        final=final,
        missing=missing,
    )


def _kind(record: Record | None) -> str:
    return record.text(Key.PRESTART_KIND) if record else ""


def _is_timeout(record: Record) -> bool:
    return record.error_type.replace("_", "").lower() in _TIMEOUTS


def _subject(kind: str, hook_name: str) -> str:
    what = "the initializer" if kind == "init" else "the prestart hook"
    if hook_name:
        return f"{what} {name(hook_name)}"
    return what if kind == "init" else "a prestart hook"


def _timeout_sentence(failing: Record, subject: str, when: str, cause: str, why: str) -> str:
    bound = failing.number(Key.PRESTART_TIMEOUT_SECONDS)
    limit = f" of {duration(bound)}" if bound is not None else ""
    start = failing.start
    spent = duration(between(start, failing.last))
    told = "" if cause == "timeout" else f"; {why}"
    return (
        f"This request failed because {subject} did not finish within its time bound{limit}: it was still running"
        f" {spent} after the phase had begun{f',{when}' if when else ''}{told}."
    )


def waiting_on(case: Case) -> tuple[Record, str] | None:
    """The prestart phase that the request waits for, and the words for what runs in it; None where none is open."""
    phase = case.attempt.worker.prestart
    if phase is None or phase.ended or case.attempt.run is not None:
        return None
    hook = case.attempt.worker.hook_of_failure()
    running = hook if hook is not None and not hook.ended else None
    kind = "init" if PrestartKind.INITIALIZER in (_kind(phase), _kind(running)) else "prestart"
    hook_name = (running.text(Key.PRESTART_HOOK) if running else "") or phase.text(Key.PRESTART_HOOK)
    return phase, _subject(kind, hook_name)


def has_no_bound(phase: Record) -> bool:
    """Whether nothing ends the phase: absent is unbounded, 0 is a bound."""
    return phase.number(Key.PRESTART_TIMEOUT_SECONDS) is None


def began(record: Record) -> str:
    """When a record began, for evidence."""
    return f"began at {moment(record.start_ns):%H:%M:%S}Z"
