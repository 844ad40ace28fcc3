"""The verdict about a pasted log tail, without any exporter."""

from __future__ import annotations

from typing import Final

from collector.diagnosis.answer import EvidenceItem, Verdict
from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Cause, Clues
from collector.diagnosis.lifecycle_case import Ending, absence, exception_text
from collector.diagnosis.verdicts import CAUSES, VERDICTS, doc_of

_CODES: Final = {"boot": "boot_crashed", "prestart": "prestart_failed", "handler": "handler_failed"}
_SUBJECTS: Final = {"boot": "the worker's start", "prestart": "the worker's prestart", "handler": "the handler"}


def diagnose_tail(clues: Clues) -> Verdict:
    """The verdict that the clues alone allow: the code from the phase, the cause from the text and the ending."""
    cause = find_cause(clues)
    harmless = cause.code == "no_failure"
    code = "unknown" if harmless else _CODES.get(clues.phase or "", "unknown")
    unknown = cause.code == "unknown"
    return Verdict(
        code=code,
        cause=cause.code,
        title=CAUSES[cause.code].title if code == "unknown" and cause.code in CAUSES else VERDICTS[code].title,
        sentence=_sentence(clues, cause),
        fault=cause.fault,
        retry=cause.retry,
        confidence="unknown" if unknown else cause.confidence,
        inferred=False,
        evidence=_evidence(clues, cause),
        advice=cause.advice or CAUSES[cause.code].advice,
        missing=cause.missing,
        doc=doc_of(code),
    )


def _sentence(clues: Clues, cause: Cause) -> str:
    """What the log tells; of which request, or that there is one, a pasted log does not say."""
    subject = _SUBJECTS.get(clues.phase or "", "the worker")
    if cause.code == "no_failure":
        return f"This log tells of no failure: {cause.explanation}."
    if cause.code == "unknown":
        return f"Why {subject} failed is not known: {cause.explanation}."
    return f"{_SHOWS[cause.confidence]} {subject} failed because {cause.explanation}."


_SHOWS: Final = {
    "certain": "The log shows that",
    "likely": "The log shows that most likely",
    "possible": "The log allows no more than a guess: possibly",
}


def _evidence(clues: Clues, cause: Cause) -> tuple[EvidenceItem, ...]:
    """The root-cause line first; where the text has none, what else the cause rests on."""
    items: list[EvidenceItem] = []
    if cause.line is not None:
        items.append(EvidenceItem("worker", "log_line", cause.line, line=cause.line_number))
    if clues.exception is not None and (text := exception_text(clues.exception)):
        items.append(EvidenceItem("worker", "exception", text))
    if clues.signal is not None or clues.exit_code is not None or clues.oom_kill:
        signal = clues.signal or None
        ending = Ending(None if signal else clues.exit_code, signal, clues.oom_kill)
        items.append(EvidenceItem("worker", "exit", f"the process {ending.words()}"))
    if not items or cause.code == "unknown":
        items.append(absence(cause.explanation or "nothing in the text tells why"))
    return tuple(items)
