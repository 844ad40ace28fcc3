"""What was logged over OTLP goes to the attempt that it belongs to, and beside its verdict."""

from __future__ import annotations

from histories import BOOT, WORKER, at, claim, ns, span

from collector.diagnosis.evidence import evidence_of
from collector.rows import SpanEvent, SpanRow
from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName


def logged(seconds: float, *, boot: str = "", worker: str = "", error: tuple[str, str] | None = None) -> SpanRow:
    """A log record as the collector keeps it, of an SDK that need not know a boot."""
    return span(
        SpanName.LOG_RECORD,
        seconds,
        boot=boot,
        worker=worker,
        error=error,
        attributes={Key.RECORD_BODY: f"at {seconds:g}"},
    )


def failed(seconds: float, *, boot: str = BOOT, worker: str = WORKER, **attributes: object) -> SpanRow:
    """A run that failed and told no exception event."""
    return span(
        SpanName.JOB_RUN, seconds, seconds + 5, boot=boot, worker=worker, status="error", attributes=dict(attributes)
    )


def test_a_record_goes_to_the_attempt_of_its_boot_else_of_its_time() -> None:
    other = "c" * 32
    spans = [
        *(claim(0), failed(1)),
        *(claim(100, boot=other, worker="w2"), failed(101, boot=other, worker="w2")),
        *(logged(-3), logged(3), logged(103), logged(104, boot=BOOT, worker=WORKER)),
    ]
    first, second = evidence_of("job-1", spans, at(200)).attempts
    assert [log.text(Key.RECORD_BODY) for log in first.logs] == ["at -3", "at 3", "at 104"]
    assert [log.text(Key.RECORD_BODY) for log in second.logs] == ["at 103"]
    assert all(record.name != SpanName.LOG_RECORD for attempt in (first, second) for record in attempt.records)


def test_the_last_exception_until_the_end_of_a_failed_run_is_its_own() -> None:
    spans = [
        claim(0),
        failed(1),
        logged(2, error=("A", "a")),
        logged(5, error=("B", "b")),
        logged(60, error=("C", "c")),
    ]
    run = evidence_of("job-1", spans, at(200)).attempts[0].run
    assert run is not None
    assert run.exception is not None
    assert (run.exception.type, run.exception.message) == ("B", "b")


def test_an_exception_that_was_caught_is_not_the_runs() -> None:
    """Of a run that went well, or whose handler returned an error of its own wording."""
    well = span(SpanName.JOB_RUN, 1, 6, status="ok")
    returned = failed(1, **{Key.HANDLER_RETURNED_ERROR: True, Key.ERROR_TYPE: "handler_returned_error"})
    for told in (well, returned):
        run = evidence_of("job-1", [claim(0), told, logged(2, error=("A", "a"))], at(200)).attempts[0].run
        assert run is not None
        assert run.events == ()


def test_the_runs_own_exception_stays() -> None:
    own = span(SpanName.JOB_RUN, 1, 6, error=("Own", "own"))
    run = evidence_of("job-1", [claim(0), own, logged(2, error=("A", "a"))], at(200)).attempts[0].run
    assert run is not None
    assert run.events == (SpanEvent(EXCEPTION_EVENT, ns(6), {Key.EXCEPTION_TYPE: "Own", Key.EXCEPTION_MESSAGE: "own"}),)
