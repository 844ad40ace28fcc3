"""Log records beside a verdict: what the request's own code said over OTLP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from collector.diagnosis.answer import EvidenceItem
from collector.diagnosis.lifecycle_case import EXCEPTION_BYTES, Ruling, exception_text
from collector.diagnosis.lifecycle_words import flat, one_line
from collector.diagnosis.records import Record
from sdk_exporter.contract import Key

LINES: Final = 10
"""Most log records beside one verdict: the most severe, of these the newest. All of them are among the spans."""
_QUIET: Final = frozenset({"completed", "stopped"})
"""States that leave nothing to explain."""


def with_logged(ruling: Ruling, logs: Sequence[Record]) -> Ruling:
    """The ruling with what was logged, after the evidence that it rests on. In the order of time."""
    if not logs or ruling.state in _QUIET:
        return ruling
    told = {item.span_id for item in ruling.verdict.evidence}
    worst = sorted((log for log in logs if log.span_id not in told), key=lambda log: (_severity(log), log.start_ns))
    chosen = sorted(worst[-LINES:], key=lambda log: (log.start_ns, log.span_id))
    evidence = (*ruling.verdict.evidence, *(_item(log) for log in chosen))
    return replace(ruling, verdict=replace(ruling.verdict, evidence=evidence))


def _severity(log: Record) -> int:
    return (log.integer(Key.RECORD_SEVERITY_NUMBER) or 0) + (100 if log.events else 0)


def _item(log: Record) -> EvidenceItem:
    """Never a `log_line`: the first of those is the root cause, a line of the tail."""
    body = log.attributes.get(Key.RECORD_BODY)
    exception = exception_text(log.exception) if log.events and log.exception else ""
    said = (
        one_line(log.text(Key.RECORD_SEVERITY)),
        one_line(log.text(Key.EVENT_NAME)),
        flat(body if isinstance(body, str) else "" if body is None else str(body), EXCEPTION_BYTES),
        exception,
    )
    return EvidenceItem(
        "worker", "event", f"logged: {' · '.join(part for part in said if part)}", log.start, log.span_id
    )
