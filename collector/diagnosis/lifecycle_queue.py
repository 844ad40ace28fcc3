"""Rules about requests that no worker has claimed, as far as is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from collector.diagnosis.answer import Confidence, EvidenceItem
from collector.diagnosis.evidence import BootEvidence, Evidence
from collector.diagnosis.lifecycle_case import (
    LAUNCHER,
    LOG_CAPTURE,
    NO_FAILURE,
    NOT_READ,
    SIGKILL,
    SIGTERM,
    SILENCE_FINAL_SECONDS,
    SILENCE_LIKELY_SECONDS,
    Reading,
    Ruling,
    absence,
    because,
    death_item,
    ending_of,
    event,
    given,
    last_line,
    read,
    read_stall,
    ruling,
    why_in_brackets,
)
from collector.diagnosis.lifecycle_start import failed_check, failed_start, fitness_ruling, start_ruling
from collector.diagnosis.lifecycle_words import between, clock, duration, name
from collector.diagnosis.platform_view import PlatformView
from collector.diagnosis.records import Record, moment
from sdk_exporter.contract import Key, SpanName

BOOT_SLOW_SECONDS: Final = 120.0
BOOT_HUNG_SECONDS: Final = 600.0
_BEFORE_QUEUED_SECONDS: Final = 300.0
"""A boot that began this long before the request may still be what the request waits for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The evidence of a request that nobody has claimed."""

    evidence: Evidence

    @property
    def now(self) -> datetime:
        """The time of the diagnosis."""
        return self.evidence.now

    @property
    def queued(self) -> datetime | None:
        """When the caller sent the request."""
        return None if self.evidence.queued_ns is None else moment(self.evidence.queued_ns)

    @property
    def seconds(self) -> float:
        """How long it has waited, 0 where that is not known."""
        return max(between(self.queued, self.now), 0.0) if self.queued else 0.0

    def status(self, *words: str) -> Record | None:
        """The caller's last record with one of these statuses."""
        told = [
            r for r in (*self.evidence.requests, *self.evidence.polls) if r.text(Key.CALLER_STATUS).upper() in words
        ]
        return max(told, key=lambda r: (r.last_ns, r.span_id)) if told else None

    def boots(self) -> tuple[BootEvidence, ...]:
        """Boots of the endpoint that may be what the request waits for, oldest first."""
        if self.queued is None:
            return ()
        made = [b for b in self.evidence.boots if self._concerns(b)]
        return tuple(sorted(made, key=_boot_order))

    def _concerns(self, boot: BootEvidence) -> bool:
        endpoint = self.evidence.endpoint_id
        if endpoint and boot.endpoint_id and boot.endpoint_id != endpoint:
            return False
        newest = max((r.last_ns for r in boot.records), default=0)
        if self.queued is None or between(self.queued, moment(newest)) < 0:
            return boot.boot is not None and not boot.boot.ended and boot.death is None and self._recent(boot.boot)
        return True

    def _recent(self, record: Record) -> bool:
        return self.queued is not None and between(record.start, self.queued) <= _BEFORE_QUEUED_SECONDS

    def since(self, at: datetime) -> float:
        """Seconds since `at`."""
        return max(between(at, self.now), 0.0)

    def sent(self) -> tuple[EvidenceItem, ...]:
        """The request itself, as evidence."""
        return tuple(event(r, "the caller sent the request", at=r.start) for r in self.evidence.requests[:1])

    def waited(self) -> str:
        """`waits in the queue for 3 s so far`, where that is known."""
        return f"{duration(self.seconds)} so far" if self.queued else "since when is not known"


WaitingRule = Callable[[Waiting], "Ruling | None"]
NO_CLAIM: Final = "no claim of the request by any worker was told"


def _boot_order(boot: BootEvidence) -> tuple[int, str]:
    return (min((r.start_ns for r in boot.records), default=0), boot.boot_id)


# ------------------------------------------------------------------------------------------------- caller's word


def cancelled_in_queue(case: Waiting) -> Ruling | None:
    """Cancelled before anybody had claimed it."""
    told = case.status("CANCELLED")
    if told is None:
        return None
    sentence = f"This request was cancelled at {clock(told.last)} while it waited in the queue; no worker claimed it."
    items = (event(told, "the caller saw the request cancelled"), absence(NO_CLAIM))
    reading = Reading(given("request_cancelled"))
    return ruling(
        "cancelled_in_queue", sentence, reading, items, state="stopped", final=True, confidence="likely", inferred=True
    )


def completed_unseen(case: Waiting) -> Ruling | None:
    """The caller has its result, and no worker told anything."""
    told = case.status("COMPLETED")
    if told is None:
        return None
    sentence = f"This request completed: the caller saw it at {clock(told.last)}. No worker told anything of it."
    items = (event(told, "the caller saw the status COMPLETED"), absence(NO_CLAIM))
    return ruling("completed", sentence, NO_FAILURE, items, state="completed", final=True, missing=(LAUNCHER,))


def expired(case: Waiting) -> Ruling | None:
    """Its time ran out in the queue."""
    told = case.status("TIMED_OUT")
    if told is None:
        return None
    sentence = f"This request expired in the queue: the caller saw TIMED_OUT at {clock(told.last)}, and no worker had"
    sentence += " claimed it."
    items = (event(told, "the caller saw the status TIMED_OUT"), absence(NO_CLAIM))
    return ruling("expired", sentence, NOT_READ, items, state="failed", final=True, confidence="likely", inferred=True)


def failed_unseen(case: Waiting) -> Ruling | None:
    """The caller saw it fail, and no worker told anything."""
    told = case.status("FAILED")
    if told is None:
        return None
    reading = read(told, phase="handler")
    sentence = (
        f"This request failed at {clock(told.last)}, as the caller saw; what became of it is not known, since no worker"
        " told anything of it."
    )
    items = (event(told, "the caller saw the status FAILED"), absence(NO_CLAIM))
    return ruling(
        "unknown", sentence, reading, items, state="failed", final=True, confidence="unknown", missing=(LAUNCHER,)
    )


# ---------------------------------------------------------------------------------------------- workers that died


def boot_crashed(case: Waiting) -> Ruling | None:
    """Workers of the endpoint ended before they asked for work."""
    ended = [boot for boot in case.boots() if crashed(boot)]
    if not ended or _served_since(case, ended[-1]):
        return None
    boot = ended[-1]
    if _looks_hung(boot):
        return _hung_and_ended(case, boot)
    return _boot_crashed(case, boot, len(ended))


def crashed(boot: BootEvidence) -> bool:
    """Whether it ended before it asked for work."""
    start = boot.boot
    if start is not None and start.failed:
        return True
    # Without a record of its start, a worker that ended may as well have served for hours.
    return boot.death is not None and start is not None and not start.ended and not boot.prestarts


def _served_since(case: Waiting, crashed: BootEvidence) -> bool:
    """Whether a later worker of the endpoint did start and lives: then the request waits for something else."""
    later = [b for b in case.boots() if _boot_order(b) > _boot_order(crashed)]
    return any(b.boot is not None and b.boot.ended and not b.boot.failed and b.death is None for b in later)


def _looks_hung(boot: BootEvidence) -> bool:
    """Ended from outside while it was starting, and no error told: it had hung."""
    ending = ending_of(boot.death)
    failed = boot.boot is not None and boot.boot.failed
    return ending.signal == SIGTERM and not failed


def _boot_crashed(case: Waiting, boot: BootEvidence, count: int) -> Ruling:
    reading = read(boot.boot, phase="boot", death=boot.death)
    start, end = boot.boot, boot.death or boot.boot
    took = f" {duration(between(start.start, end.last))} after its start" if start and end else ""
    ending = ending_of(boot.death)
    worker = f"worker {name(boot.worker_id)}" if boot.worker_id else "the worker"
    failed = "crashed while it was starting" + (f" ({ending.words()})" if boot.death else "")
    again = f" {count} workers of the endpoint have ended so since it was sent." if count > 1 else ""
    memory = ending.signal == SIGKILL and not reading.known
    sentence = f"This request waits because {because(worker, reading, took, failed=failed)}"
    sentence += f", before it asked for work; no worker has claimed the request.{again}"
    items = [death_item(boot.death)] if boot.death else []
    if start is not None:
        items.append(event(start, "the worker began to start", at=start.start))
    items += [absence("the worker never called start()"), absence(NO_CLAIM)]
    missing = () if reading.tail or memory else (LOG_CAPTURE,)
    return ruling(
        "boot_crashed", sentence, reading, (*items, *case.sent()), state="stalled",
        final=case.seconds >= SILENCE_FINAL_SECONDS, missing=missing,
    )  # fmt: skip


def _hung_and_ended(case: Waiting, boot: BootEvidence) -> Ruling:
    reading = read(boot.boot, phase="boot", death=boot.death)
    last: tuple[EvidenceItem, ...] = ()
    if not reading.known or reading.cause.line is None:
        reading, last = last_line(reading)
    start = boot.boot
    ran = f" for {duration(between(start.start, boot.death.last))}" if start and boot.death else ""
    worker = f"worker {name(boot.worker_id)}" if boot.worker_id else "the worker"
    sentence = (
        f"This request waits because {worker} hung while it was starting{ran}, until it was ended from outside"
        " (SIGTERM); it never asked for work."
    )
    items = (*((death_item(boot.death),) if boot.death else ()), absence("the worker never called start()"))
    return ruling(
        "boot_hung", sentence, reading, (*last, *items, *case.sent()), state="stalled",
        final=case.seconds >= SILENCE_FINAL_SECONDS, confidence="likely", inferred=True,
    )  # fmt: skip


def boot_hung(case: Waiting) -> Ruling | None:
    """A worker of the endpoint is starting for very long."""
    starting = [b for b in case.boots() if b.boot is not None and not b.boot.ended and b.death is None]
    view = PlatformView(case.evidence)
    slow_from = max(BOOT_SLOW_SECONDS, view.start_bound) if view.normal_start else BOOT_SLOW_SECONDS
    slow = [b for b in starting if b.boot and case.since(b.boot.start) >= slow_from]
    if not slow or slow[-1].boot is None or _served_since(case, slow[-1]):
        return None
    start = slow[-1].boot
    seconds = case.since(start.start)
    confidence: Confidence = "likely" if seconds >= BOOT_HUNG_SECONDS else "possible"
    worker = f"worker {name(slow[-1].worker_id)}" if slow[-1].worker_id else "the worker"
    hangs = "hangs" if confidence == "likely" else "possibly hangs"
    reading, last = read_stall(slow[-1], start.start_ns, "boot")
    sentence = (
        f"This request waits because {worker} {hangs} in its start: {duration(seconds)} so far without asking for"
        f" work{why_in_brackets(reading)}."
    )
    items = (event(start, "the worker began to start", at=start.start), absence("no end of the start was told"))
    return ruling(
        "boot_hung", sentence, reading, (*last, *items, *case.sent()), state="stalled", final=False,
        confidence=confidence, inferred=True,
    )  # fmt: skip


def start_failed(case: Waiting) -> Ruling | None:
    """A worker of the endpoint failed its checks or its prestart before it claimed anything."""
    for boot in reversed(case.boots()):
        if _served_since(case, boot):
            continue
        check, failing = failed_check(boot), failed_start(boot)
        items = (absence(NO_CLAIM), *case.sent())
        final = case.seconds >= SILENCE_FINAL_SECONDS
        if check is not None:
            return _waits(fitness_ruling(check, "", items, final=final))
        if failing is not None:
            return _waits(start_ruling(boot, failing, "", items, final=final))
    return None


def _waits(found: Ruling) -> Ruling:
    """The request itself still waits: another worker may take it."""
    verdict = found.verdict
    sentence = verdict.sentence.replace("This request failed because", "This request waits because", 1)
    return replace(found, verdict=replace(verdict, sentence=sentence), state="stalled")


# ---------------------------------------------------------------------------------------------------- the queue


def pending_returned(case: Waiting) -> Ruling | None:
    """The caller's client took a pending reply for a result."""
    told = next((r for r in case.evidence.requests if r.text(Key.ERROR_TYPE) == "pending_returned"), None)
    if told is None:
        return None
    sentence = (
        f"This request had not finished when the caller's client gave up waiting at {clock(told.last)}: it returned a"
        f" pending reply ({told.text(Key.CALLER_STATUS) or 'no status'}) as if it were the result."
    )
    items = (event(told, "the client returned a pending reply"), absence(NO_CLAIM))
    return ruling("pending_returned", sentence, NOT_READ, items, state="queued", final=False)


def stray_stop(case: Waiting) -> Ruling | None:
    """A stop signal came for it to a worker that does not hold it, and no claim is known."""
    if not case.evidence.stray_stops:
        return None
    stop = case.evidence.stray_stops[-1]
    sentence = (
        f"A stop signal for this request reached a worker that did not hold it, at {clock(stop.start)}; no worker is"
        " known to have claimed the request."
    )
    items = (event(stop, "a stop signal was dropped: the worker did not know the request"), absence(NO_CLAIM))
    return ruling(
        "stop_signal_lost", sentence, Reading(given("platform_api_error")), items, state="unknown",
        final=case.since(stop.last) >= SILENCE_FINAL_SECONDS, confidence="possible", inferred=True, retry="no",
    )  # fmt: skip


def still_queued(case: Waiting) -> Ruling | None:
    """The caller sent it, and that is all."""
    if not case.evidence.requests and not case.evidence.polls:
        return None
    newest = case.status("IN_PROGRESS", "IN_QUEUE")
    if newest is not None and newest.text(Key.CALLER_STATUS).upper() == "IN_PROGRESS":
        return _held_by_somebody(case, newest)
    sentence = f"This request waits in the queue, {case.waited()}; no worker has claimed it."
    asked = case.sent() or (event(case.evidence.polls[-1], "the caller asked for it"),)
    return ruling("queued", sentence, NO_FAILURE, (*asked, absence(NO_CLAIM)), state="queued", final=False)


def _held_by_somebody(case: Waiting, told: Record) -> Ruling:
    """The platform says that a worker holds it, and none tells of it: lost on intake, or a worker that is not ours."""
    items = (event(told, "the caller saw the status IN_PROGRESS"), absence(NO_CLAIM))
    unread = _unread_answer(case)
    if unread is not None:
        return _claim_unread(case, told, unread, items)
    first = min(r.last for r in case.evidence.polls or (told,) if r.text(Key.CALLER_STATUS).upper() == "IN_PROGRESS")
    if case.boots() and case.since(first) >= SILENCE_LIKELY_SECONDS:
        return _claim_unseen(case, told, items)
    sentence = f"This request is in progress, as the caller saw at {clock(told.last)}; no worker has told of it."
    return ruling("running", sentence, NO_FAILURE, items, state="claimed", final=False, missing=(LAUNCHER,))


def _unread_answer(case: Waiting) -> Record | None:
    """An answer to a poll for requests that a worker of the endpoint could not read since this one was sent."""
    told = [r for boot in case.boots() for r in boot.job_take if r.text(Key.CHANNEL_VIOLATION)]
    since = [r for r in told if case.queued is not None and between(case.queued, r.last) >= 0]
    return since[0] if since else None


def _claim_unread(case: Waiting, told: Record, unread: Record, items: tuple[EvidenceItem, ...]) -> Ruling:
    """Handed out, told of by nobody, and a worker of the endpoint threw an answer away meanwhile: it was in there."""
    violation = unread.text(Key.CHANNEL_VIOLATION)
    sentence = (
        "This request was probably lost on intake: the platform had handed it out"
        f" ({told.text(Key.CALLER_STATUS)} at {clock(told.last)}), and worker {name(unread.worker_id)} threw an answer"
        f" away at {clock(unread.last)} that it could not read ({violation})."
    )
    return ruling(
        "claim_lost_on_intake", sentence, Reading(given("platform_api_error", retry="yes")),
        (event(unread, f"an answer to the poll for requests could not be read ({violation})"), *items), state="lost",
        final=case.since(told.last) >= SILENCE_FINAL_SECONDS, confidence="likely", inferred=True,
    )  # fmt: skip


def _claim_unseen(case: Waiting, told: Record, items: tuple[EvidenceItem, ...]) -> Ruling:
    """The platform says that somebody holds it, and none of the endpoint's workers, which do report, tells of it."""
    sentence = (
        "This request was possibly lost on intake: the platform had handed it out"
        f" ({told.text(Key.CALLER_STATUS)} at {clock(told.last)}), and no worker has told of it."
    )
    return ruling(
        "claim_lost_on_intake", sentence, Reading(given("platform_api_error", retry="yes")), items, state="stalled",
        final=case.since(told.last) >= SILENCE_FINAL_SECONDS, confidence="possible", inferred=True, missing=(LAUNCHER,),
    )  # fmt: skip


def nothing_decides(case: Waiting) -> Ruling:
    """Records of the request exist and none tells what became of it. This rule always fits."""
    own = [r for r in case.evidence.records if r.job_id]
    failed = next((r for r in own if r.failed), None)
    newest = max((r.last for r in own), default=None)
    looked = "looked for a claim, a run, a delivery, and for the caller's own record; found none"
    reading = read(failed, phase="handler") if failed else NOT_READ
    if reading.cause.code == "handler_exception":  # an error inside a request that may well have gone on
        reading = replace(reading, cause=NOT_READ.cause)
    logged = failed is not None and failed.name == SpanName.LOG_RECORD
    where = f" A span {name(failed.name)} of it ended in an error." if failed else ""
    what = f"the span {name(failed.name)} ended in an error" if failed else ""
    if logged:
        where, what = " It logged an exception.", "an exception was logged"
    sentence = f"What became of this request is not known: no worker and no caller told of it.{where}"
    items = [event(failed, what)] if failed else []
    items.append(absence(looked, newest))
    return ruling(
        "unknown", sentence, reading, tuple(items), state="unknown",
        final=newest is None or case.since(newest) >= SILENCE_FINAL_SECONDS, confidence="unknown", missing=(LAUNCHER,),
    )  # fmt: skip
