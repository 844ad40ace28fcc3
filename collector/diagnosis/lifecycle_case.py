"""What a lifecycle rule looks at, and how it says what it found.

A rule is a function from a `Case` to a `Ruling` or None. `ruling()` puts the sentence, the cause, the evidence and the
advice together, the same way for all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from collector.diagnosis.answer import (
    Confidence,
    EvidenceItem,
    EvidenceKind,
    Fault,
    LogTail,
    Missing,
    Retry,
    State,
    Verdict,
)
from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Cause, CluePhase, Clues, ExceptionClue
from collector.diagnosis.evidence import AttemptEvidence, BootEvidence, Evidence, accepted
from collector.diagnosis.lifecycle_words import (
    between,
    duration,
    flat,
    name,
    one_line,
    raised,
    signal_name,
    signal_number,
)
from collector.diagnosis.records import Record, moment
from collector.diagnosis.verdicts import CAUSES, VERDICTS, doc_of
from sdk_exporter.contract import Key

SILENCE_POSSIBLE_SECONDS: Final = 45.0
"""Three heartbeats missed: something may be wrong."""
SILENCE_LIKELY_SECONDS: Final = 120.0
SETTLED_SECONDS: Final = 120.0
"""After this long no further record of an ended thing is expected."""
SILENCE_FINAL_SECONDS: Final = 900.0
"""After this long a silent worker is not expected to be heard of again."""

HANDLER_LOGS: Final = Missing("the handler's own output", "STALLSCOPE_HANDLER_LOGS=on")
LOG_CAPTURE: Final = Missing("the worker's own output", "STALLSCOPE_LOG_CAPTURE=auto")
STALL_LINES: Final = 20
"""A cause is read from the last lines before a standstill: an error far above them was survived."""
LAUNCHER: Final = Missing(
    "how the process ended (exit code, signal, memory), and its last output",
    "python -m sdk_exporter -- python handler.py",
)

EXCEPTION_BYTES: Final = 1024
"""Most bytes of an exception's message in the evidence; the raw span has all of it."""
SIGKILL: Final = 9
SIGTERM: Final = 15

_CONFIDENCE_ORDER: Final[tuple[Confidence, ...]] = ("unknown", "possible", "likely", "certain")


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict with what the answer around it needs. `tail` is the one that the verdict was read from."""

    verdict: Verdict
    state: State
    final: bool
    tail: LogTail | None = None
    exception: ExceptionClue | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended. All None/False where it is not known."""

    code: int | None
    signal: int | None
    oom_kill: bool | None

    def words(self) -> str:
        """`was killed by SIGKILL`, `died of SIGSEGV`, `exited with status 7`."""
        if self.signal is not None:
            verb = "was killed by" if self.signal == SIGKILL else "died of"
            return f"{verb} {signal_name(self.signal)}"
        return f"exited with status {self.code}" if self.code is not None else "ended"


def ending_of(death: Record | None) -> Ending:
    """Exit code and signal of a `worker.death` or `backend.death`, whichever way they were told."""
    if death is None:
        return Ending(None, None, None)
    code = death.integer(Key.EXIT_CODE)
    told = death.attributes.get(Key.DEATH_SIGNAL)
    number = signal_number(told) if isinstance(told, str) else death.integer(Key.DEATH_SIGNAL)
    if not number and code is not None and code < 0:
        number = -code
    return Ending(None if number else code, number or None, death.flag(Key.DEATH_OOM_KILL))


@dataclass(frozen=True, slots=True)
class Case:
    """The evidence, seen from one attempt."""

    evidence: Evidence
    attempt: AttemptEvidence

    @property
    def now(self) -> datetime:
        """The time of the diagnosis."""
        return self.evidence.now

    @property
    def claimed(self) -> datetime:
        """When the worker had claimed the request."""
        return moment(self.attempt.claimed_ns)

    @property
    def worker(self) -> str:
        """The worker's name for a sentence."""
        return f"worker {name(self.attempt.worker_id)}" if self.attempt.worker_id else "the worker"

    @property
    def silence_seconds(self) -> float:
        """How long the worker has not been heard of. Negative never.

        While records still come in, old as they may be, the ones after them may be on their way: a spool that is
        handed in late, or a worker whose clock is behind, is no silence.
        """
        silent = max(between(self.attempt.heard, self.now), 0.0)
        if self.attempt.arrived is None:
            return silent
        since_arrival = max(between(self.attempt.arrived, self.now), 0.0)
        return min(silent, since_arrival) if since_arrival < SILENCE_POSSIBLE_SECONDS else silent

    @property
    def gone(self) -> bool:
        """Whether the process is known to have ended."""
        return self.attempt.death is not None

    @property
    def settled(self) -> bool:
        """Whether nothing more can come from this worker about this request."""
        return self.gone or self.silence_seconds >= SILENCE_FINAL_SECONDS

    def since(self, at: datetime) -> float:
        """Seconds since `at`."""
        return max(between(at, self.now), 0.0)

    def after_claim(self, at: datetime) -> str:
        """` 3.1 s after the worker had claimed it`, with its leading space."""
        if self.attempt.claim is None:
            return ""
        seconds = between(self.claimed, at)
        if seconds < -0.0005:
            return f" {duration(seconds)} before the worker claimed it"
        return f" {duration(seconds)} after the worker had claimed it"


Rule = Callable[[Case], "Ruling | None"]


# ---------------------------------------------------------------------------------------------------------- items


def event(record: Record, text: str, *, what: EvidenceKind = "event", at: datetime | None = None) -> EvidenceItem:
    """An evidence item that points to its record."""
    return EvidenceItem(record.source, what, text, at or record.last, record.span_id)


def absence(text: str, at: datetime | None = None) -> EvidenceItem:
    """What should have come and has not."""
    return EvidenceItem("collector", "absence", text, at)


def death_item(death: Record) -> EvidenceItem:
    """How the process ended, as evidence."""
    ending = ending_of(death)
    memory = "; the kernel counted a kill for want of memory" if ending.oom_kill else ""
    return event(death, f"the process {ending.words()}{memory}", what="exit")


def claim_item(case: Case) -> tuple[EvidenceItem, ...]:
    """The claim, where it was told."""
    claim = case.attempt.claim
    return (event(claim, f"{case.worker} claimed the request"),) if claim else ()


# ---------------------------------------------------------------------------------------------------------- cause


@dataclass(frozen=True, slots=True)
class Reading:
    """The cause that was read, where from, and what is told beside it."""

    cause: Cause
    record: Record | None = None
    tail: LogTail | None = None
    exception: ExceptionClue | None = None

    @property
    def known(self) -> bool:
        """Whether there is a cause to tell."""
        return self.cause.code not in ("unknown", "no_failure")


def read(
    *records: Record | None,
    phase: CluePhase,
    death: Record | None = None,
    fallback: Cause | None = None,
    own_limit: bool = False,
) -> Reading:
    """The cause read from the first tail and the first exception of `records`, and from how the process ended.

    `fallback` is the cause that the lifecycle itself tells, used where the text tells none. `own_limit`: the exception
    is the supervisor's own word for an expired bound, and no clue; only a text that names why the time ran out counts.
    """
    present = [record for record in (*records, death) if record is not None]
    with_tail = next((r for r in present if r.tail and r.tail.text), None) or next((r for r in present if r.tail), None)
    tail = with_tail.tail if with_tail else None
    exception = next((r.exception for r in present if r.exception), None)
    ending = ending_of(death)
    cause = find_cause(
        Clues(
            text=tail.text if tail else "",
            exception=None if own_limit else exception,
            phase=phase,
            exit_code=ending.code,
            signal=ending.signal,
            oom_kill=ending.oom_kill,
        )
    )
    tells_nothing = ("unknown", "no_failure", "handler_exception") if own_limit else ("unknown", "no_failure")
    if death is not None and exception is None and cause.line is None and cause.confidence == "possible":
        # That the process was killed is certain. A guess at who did it, from the bare signal, must not weaken that.
        cause = replace(NOT_READ.cause, explanation=f"the log names none; {cause.explanation}", advice=cause.advice)
    if cause.code in tells_nothing and fallback:
        cause = fallback
    return Reading(cause, with_tail or (present[0] if present else None), tail, exception)


def read_stall(boot: BootEvidence, since_ns: int, phase: CluePhase) -> tuple[Reading, tuple[EvidenceItem, ...]]:
    """What a worker that stands still had printed, and its last line where no cause is read from it: the only clue."""
    beat = boot.stall(since_ns)
    if beat is None:
        return NOT_READ, ()
    reading = read(beat, phase=phase)
    lines = reading.tail.text.count("\n") if reading.tail else 0
    near = reading.cause.line_number is not None and reading.cause.line_number > lines - STALL_LINES
    if reading.known and near and reading.cause.confidence in ("certain", "likely"):
        return reading, ()
    return last_line(reading)


def last_line(reading: Reading) -> tuple[Reading, tuple[EvidenceItem, ...]]:
    """The reading without a cause, and what was written last."""
    none = replace(NOT_READ.cause, explanation="the last lines written name none")
    cause = replace(reading.cause, missing=()) if reading.cause.code == "unknown" else none
    without = Reading(cause, reading.record, reading.tail)
    lines = reading.tail.text.splitlines() if reading.tail else []
    number = max((place for place, line in enumerate(lines, 1) if line.strip()), default=0)
    if not number or reading.record is None:
        return without, ()
    record = reading.record
    return without, (EvidenceItem("worker", "log_line", lines[number - 1], record.last, record.span_id, number),)


def given(code: str, *, fault: Fault | None = None, retry: Retry | None = None) -> Cause:
    """A cause that the lifecycle itself tells, without any text."""
    entry = CAUSES[code]
    return Cause(code, "certain", fault or entry.fault, retry or entry.retry, entry.did, advice=entry.advice)


NO_FAILURE: Final = Reading(Cause("no_failure", "certain", "unknown", "no", "nothing failed"))
NOT_READ: Final = Reading(Cause("unknown", "unknown", "unknown", "maybe", "nothing tells why"))


def because(subject: str, reading: Reading, when: str, *, failed: str = "failed") -> str:
    """`the prestart hook `x` ran out of GPU memory 3.1 s after …`; says `possibly`, or that it does not know."""
    cause, error = reading.cause, raised(reading.exception)
    what = f"raised {error}" if error else failed
    if not reading.known:
        return f"{subject} {what}{when}; why is not known"
    if cause.code == "handler_exception":
        return f"{subject} {what if error else CAUSES[cause.code].did}{when}"
    if cause.confidence in ("possible", "unknown"):
        return f"{subject} {what}{when}, possibly because it {did(cause)}"
    return f"{subject} {did(cause)}{when}"


def why_in_brackets(reading: Reading) -> str:
    """` (it ran out of main memory)`, with its leading space; "" where nothing is known."""
    if not reading.known:
        return ""
    possibly = "possibly " if reading.cause.confidence == "possible" else ""
    return f" ({possibly}it {did(reading.cause)})"


def did(cause: Cause) -> str:
    """The cause as a predicate: `ran out of GPU memory`."""
    entry = CAUSES.get(cause.code)
    return entry.did if entry else "failed"


# --------------------------------------------------------------------------------------------------------- ruling


def ruling(
    code: str,
    sentence: str,
    reading: Reading,
    items: tuple[EvidenceItem, ...],
    *,
    state: State,
    final: bool,
    confidence: Confidence = "certain",
    inferred: bool = False,
    missing: tuple[Missing, ...] = (),
    usual_advice: tuple[str, ...] | None = None,
    fault: Fault | None = None,
    retry: Retry | None = None,
    queue_reason: str | None = None,
) -> Ruling:
    """A verdict in full. Fault, retry and confidence are the cause's where one is known, else the catalogue's.

    `usual_advice` stands in for the catalogue's, where the rule knows of one that fits better.
    """
    entry, cause, known = VERDICTS[code], reading.cause, reading.known
    verdict = Verdict(
        code=code,
        cause=cause.code,
        title=entry.title,
        sentence=sentence,
        fault=fault or (cause.fault if known else entry.fault),
        retry=retry or (cause.retry if known else entry.retry),
        confidence=_least(confidence, cause.confidence) if known else confidence,
        queue_reason=queue_reason,
        inferred=inferred,
        evidence=(*_read_items(reading), *items, *_unread(code, reading)),
        advice=_unique((*cause.advice, *(entry.advice if usual_advice is None else usual_advice))),
        missing=_missing((*missing, *cause.missing, *_withheld(reading))),
        doc=doc_of(code),
    )
    return Ruling(verdict, state, final, reading.tail, reading.exception)


def _least(one: Confidence, other: Confidence) -> Confidence:
    return min(one, other, key=_CONFIDENCE_ORDER.index)


def _read_items(reading: Reading) -> tuple[EvidenceItem, ...]:
    """The root-cause line first, then the exception."""
    items: list[EvidenceItem] = []
    record, cause = reading.record, reading.cause
    at, span_id = (record.last, record.span_id) if record else (None, None)
    if cause.line is not None:
        items.append(EvidenceItem("worker", "log_line", cause.line, at, span_id, cause.line_number))
    if reading.exception and (text := exception_text(reading.exception)):
        items.append(EvidenceItem("worker", "exception", text, at, span_id))
    return tuple(items)


def exception_text(exception: ExceptionClue) -> str:
    """`Type: message`, the whole message on one line: its first line is often only the status."""
    return ": ".join(part for part in (one_line(exception.type), flat(exception.message, EXCEPTION_BYTES)) if part)


def _unread(code: str, reading: Reading) -> tuple[EvidenceItem, ...]:
    """An unknown cause says what was looked for."""
    failed = reading.cause.code == "unknown" and reading is not NOT_READ
    return (absence(f"no cause: {reading.cause.explanation}"),) if failed and reading.cause.explanation else ()


def _withheld(reading: Reading) -> tuple[Missing, ...]:
    return (HANDLER_LOGS,) if reading.tail and reading.tail.bytes_withheld > 0 else ()


def _missing(items: tuple[Missing, ...]) -> tuple[Missing, ...]:
    """One entry per setting."""
    return tuple({item.how: item for item in reversed(items)}.values())[::-1]


def _unique(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def refused_for_good(case: Case) -> Record | None:
    """The last try to hand the result in, where it failed and no other follows; None otherwise."""
    tries = case.attempt.deliveries
    if not tries or case.attempt.delivered:
        return None
    last = tries[-1]
    if not last.ended or accepted(last):
        return None
    status = last.integer(Key.HTTP_STATUS)
    # The worker SDK repeats 5xx answers only, three tries in all.
    definite = last.flag(Key.DELIVER_LAST) is True or status is None or status < 500
    return last if definite or case.gone or case.since(last.last) >= SILENCE_POSSIBLE_SECONDS else None
