"""Rules about intake and outcome: what was handed out, what was handed in, and what the handler itself said."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.diagnosis.answer import Confidence, EvidenceItem, Missing, State
from collector.diagnosis.lifecycle_case import (
    HANDLER_LOGS,
    LAUNCHER,
    NO_FAILURE,
    SETTLED_SECONDS,
    SILENCE_FINAL_SECONDS,
    SILENCE_LIKELY_SECONDS,
    SILENCE_POSSIBLE_SECONDS,
    Case,
    Reading,
    Ruling,
    absence,
    because,
    claim_item,
    death_item,
    ending_of,
    event,
    given,
    read,
    refused_for_good,
    ruling,
    why_in_brackets,
)
from collector.diagnosis.lifecycle_words import between, clock, duration, one_line
from collector.diagnosis.records import Record
from sdk_exporter.contract import HandlerKind, Key, SpanName

EMPTY_INPUT: Final = "empty_input_dropped"
_NOT_ENCODABLE: Final = frozenset({"TypeError", "ValueError", "UnicodeEncodeError", "RecursionError", "OverflowError"})
_EXITS: Final = frozenset({"SystemExit", "KeyboardInterrupt"})
_CANCELLED: Final = "CancelledError"
OUTSIDE_ADVICE: Final = (
    "Fix the code outside the handler where the traceback points (`concurrency_modifier`, a callback, what runs beside"
    " the loop): an error there ends the worker and everything in its hands.",
)
"""For a worker that an uncaught error ended: no native library is to blame."""
CALLER_ERROR: Final = Missing("why the caller saw a failure", "stallscope status ENDPOINT JOB")
LARGE_RESULT_BYTES: Final = 10 << 20
"""The platform refuses results above this with a 400 (or 413)."""


# --------------------------------------------------------------------------------------------------------- intake


def lost_on_intake(case: Case) -> Ruling | None:
    """The claim was answered and dropped by the worker SDK before it was queued."""
    claim = case.attempt.claim
    if claim is None or not claim.failed or case.attempt.run is not None:
        return None
    what = one_line(claim.message) or claim.error_type or "the answer could not be read"
    items = (event(claim, f"intake failed: {what}"), absence("the request never reached the handler"))
    if claim.error_type == EMPTY_INPUT:
        sentence = (
            f"This request was dropped because it had no `input`: {case.worker} claimed it at {clock(case.claimed)} and"
            " will never answer for it."
        )
        reading = Reading(given("input_invalid"), exception=None)
        return ruling(EMPTY_INPUT, sentence, reading, items, state="lost", final=True)
    sentence = (
        f"This request was lost on intake: the platform handed it to {case.worker} at {clock(case.claimed)}, which"
        f" could not read the answer ({what})."
    )
    reading = Reading(given("platform_api_error", retry="yes"))
    return ruling("claim_lost_on_intake", sentence, reading, items, state="lost", final=True)


# ------------------------------------------------------------------------------------------------------ delivered


def caller_status(case: Case) -> Record | None:
    """The caller's last word about an outcome, COMPLETED or FAILED, where it can only be about this attempt."""
    if case.attempt.number != len(case.evidence.attempts) or any(a.delivered for a in case.evidence.attempts[:-1]):
        return None
    told = [r for r in (*case.evidence.requests, *case.evidence.polls) if _status(r) in ("COMPLETED", "FAILED")]
    return max(told, key=lambda r: (r.last_ns, r.span_id)) if told else None


def _status(record: Record) -> str:
    return record.text(Key.CALLER_STATUS).upper()


def delivered(case: Case) -> Ruling | None:
    """The platform has the outcome: it took the result, or the caller has seen it completed."""
    word = caller_status(case)
    completed = word is not None and _status(word) == "COMPLETED"
    proof = case.attempt.delivered or (word if completed else None)
    if proof is None:
        return None
    run = case.attempt.run
    if run is not None and run.ended:
        return _run_failed(case, run, proof) if run.failed else _completed(case, proof)
    if completed:
        return _completed(case, proof)
    if run is None and _start_failed(case):
        return None  # what was handed in is the failure of the worker's start; the rules of the start tell it
    return _failed_unseen(case, word) if word is not None else _completed_unseen(case, proof)


def block_ended(case: Case) -> Ruling | None:
    """A block of the user's own loop (`sdk_exporter.job()`) ended well: no platform is there to take a result."""
    run = case.attempt.run
    if run is None or not _is_block(run) or not run.ended or run.failed:
        return None
    return _completed(case, run)


def _is_block(run: Record) -> bool:
    return run.text(Key.HANDLER_KIND) == HandlerKind.BLOCK


def failed_for_caller(case: Case) -> Ruling | None:
    """The caller saw the request fail, and nothing of the worker's tells why."""
    word = caller_status(case)
    return _failed_unseen(case, word) if word is not None and _status(word) == "FAILED" else None


def _start_failed(case: Case) -> bool:
    worker = case.attempt.worker
    return any(r.failed for r in (*worker.prestarts, *worker.hooks, *worker.fitness))


def _proof_text(proof: Record) -> str:
    if proof.source == "caller":
        return f"the caller saw the status {_status(proof)}"
    if proof.name == SpanName.JOB_RUN:
        return "the block of `sdk_exporter.job()` ended without an error"
    status = proof.integer(Key.HTTP_STATUS)
    return f"the platform took the result (HTTP {status})" if status is not None else "the platform took the result"


def _completed(case: Case, proof: Record) -> Ruling:
    run = case.attempt.run
    took = f"; the handler took {duration(between(run.start, run.last))}" if run is not None and run.ended else ""
    word = caller_status(case)
    failed = word if word is not None and _status(word) == "FAILED" else None
    against = " The caller saw it as FAILED all the same; what came between is not known." if failed else ""
    sentence = f"This request completed on {case.worker} at {clock(proof.last)}{took}.{against}"
    items = (event(proof, _proof_text(proof)), *((event(failed, _proof_text(failed)),) if failed else ()))
    return ruling(
        "completed", sentence, NO_FAILURE, items, state="completed", final=True,
        confidence="likely" if failed else "certain", missing=(CALLER_ERROR,) if failed else (),
    )  # fmt: skip


def _completed_unseen(case: Case, proof: Record) -> Ruling:
    sentence = (
        f"This request possibly completed on {case.worker}: the platform took its result at {clock(proof.last)}, but"
        " no record of the handler's end came, so the result may also tell of an error."
    )
    items = (event(proof, _proof_text(proof)), absence("no end of the run was told"))
    return ruling(
        "completed", sentence, NO_FAILURE, items, state="completed", final=case.settled, confidence="possible",
        inferred=True,
    )  # fmt: skip


def _failed_unseen(case: Case, word: Record) -> Ruling:
    reading = read(word, phase="handler")
    sentence = (
        f"This request possibly failed in its handler: the caller saw it fail at {clock(word.last)}, and no record of"
        f" the handler's end came from {case.worker}{why_in_brackets(reading)}."
    )
    items = (event(word, _proof_text(word)), absence("no end of the run was told"))
    return ruling(
        "handler_failed", sentence, reading, items, state="failed", final=case.settled, confidence="possible",
        inferred=True,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- run failed


def run_failed(case: Case) -> Ruling | None:
    """The handler ended in an error of its own, whether or not the error was handed in yet."""
    run = case.attempt.run
    if run is None or not run.ended or not run.failed:
        return None
    return _run_failed(case, run, None)


def _run_failed(case: Case, run: Record, proof: Record | None) -> Ruling:
    if proof is None and run.error_type == _CANCELLED:
        loop = case.attempt.shutdown
        if loop is not None and loop.failed and run.last_ns >= loop.start_ns:
            return _fell_with_loop(case, run, loop)
        if loop is not None and run.last_ns >= loop.start_ns:
            return _cancelled_by_leaving(case, run, loop)
        return _self_cancelled(case, run)
    if proof is None and run.error_type in _EXITS:
        return _exited(case, run)
    if run.flag(Key.HANDLER_RETURNED_ERROR) or run.text(Key.ERROR_TYPE) == "handler_returned_error":
        code = "handler_returned_error"
    elif run.text(Key.HANDLER_KIND) == HandlerKind.GENERATOR:
        code = "generator_failed"
    else:
        code = "handler_failed"
    reading = read(run, phase="handler", fallback=given("handler_exception") if run.exception else None)
    items = [event(run, f"the handler ended in an error {duration(between(run.start, run.last))} after it had begun")]
    items += [event(proof, _proof_text(proof))] if proof else []
    told = proof is not None or _is_block(run)
    settled = told or case.settled or case.since(run.last) >= SETTLED_SECONDS
    if settled and not told:
        items.append(absence("no delivery of the error to the platform was told"))
    return ruling(
        code,
        _failed_sentence(code, run, reading),
        reading,
        tuple(items),
        state="failed",
        final=settled,
        missing=unread_handler(reading),
    )


def unread_handler(reading: Reading) -> tuple[Missing, ...]:
    """Names the setting, where the handler's output did not come and the cause is not known."""
    hidden = reading.tail is None or not reading.tail.text or reading.tail.bytes_withheld > 0
    specific = reading.known and reading.cause.code != "handler_exception"
    return (HANDLER_LOGS,) if hidden and not specific else ()


def _failed_sentence(code: str, run: Record, reading: Reading) -> str:
    when = f" {duration(between(run.start, run.last))} after it had begun"
    if code == "handler_returned_error":
        text = one_line(reading.exception.message) if reading.exception else ""
        told = f": “{text}”" if text else ""
        specific = reading.known and reading.cause.code != "handler_exception"
        why = f"; {because('it', Reading(reading.cause), '')}" if specific else ""
        return f"This request failed because the handler returned an error{when}{told}{why}."
    if code == "generator_failed":
        chunks = run.integer(Key.HANDLER_CHUNKS)
        after = f", after {chunks} chunk{'' if chunks == 1 else 's'}" if chunks is not None else ""
        return f"This request failed because {because('the generator handler', reading, when + after)}."
    return f"This request failed because {because('the handler', reading, when)}."


def _self_cancelled(case: Case, run: Record) -> Ruling:
    sentence = (
        f"This request got no answer because its handler raised CancelledError {duration(between(run.start, run.last))}"
        f" after it had begun, though nobody had asked for a stop; {case.worker} sends nothing for such a request."
    )
    reading = read(run, phase="handler", fallback=given("handler_exception"))
    if reading.cause.code == "request_cancelled":  # what the exception looks like; here it is known that nobody asked
        reading = replace(reading, cause=given("handler_exception"))
    items = (
        event(run, "the handler ended with CancelledError"),
        absence("no stop signal for this request was told"),
        absence("no result was handed in"),
    )
    return ruling(
        "self_cancelled", sentence, reading, items, state="lost", final=case.settled
        or case.since(run.last) >= SETTLED_SECONDS,
    )  # fmt: skip


def _cancelled_by_leaving(case: Case, run: Record, shutdown: Record) -> Ruling:
    """The worker was told to leave, and what ran on it was cancelled instead of drained."""
    death = case.attempt.death
    told = shutdown.text(Key.SHUTDOWN_SIGNAL)
    sentence = (
        f"This request got no answer because {case.worker} was told to leave{f' ({told})' if told else ''} and its"
        f" handler was cancelled {duration(between(shutdown.start, run.last))} later,"
        f" {duration(between(run.start, run.last))} after it had begun."
    )
    items = [event(shutdown, "the worker began to shut down", at=shutdown.start)]
    items.append(event(run, "the handler ended with CancelledError"))
    items += [death_item(death)] if death else []
    items.append(absence("no result was handed in"))
    final = death is not None or case.settled or case.since(run.last) >= SETTLED_SECONDS
    return ruling(
        "worker_replaced", sentence, Reading(given("terminated_by_platform")), tuple(items), state="lost", final=final,
        confidence="likely",
    )  # fmt: skip


def _fell_with_loop(case: Case, run: Record, loop: Record) -> Ruling:
    """The worker's own loop ended in an error, which cancels whatever runs on it."""
    death = case.attempt.death
    reading = read(loop, phase="handler", death=death)
    how = f" {ending_of(death).words()}" if death else " is ending"
    sentence = (
        f"This request got no answer because the loop of {case.worker} failed outside the handler"
        f" ({exception_words(loop) or 'an error'}), {duration(between(run.start, run.last))} in, and cancelled it;"
        f" the worker{how}."
    )
    items = [event(loop, "the worker's loop ended in an error"), event(run, "the handler was cancelled")]
    items += [death_item(death)] if death else []
    items.append(absence("no result was handed in"))
    final = death is not None or case.settled or case.since(run.last) >= SETTLED_SECONDS
    return ruling(
        "worker_crashed", sentence, reading, tuple(items), state="lost", final=final, usual_advice=OUTSIDE_ADVICE
    )


def _exited(case: Case, run: Record) -> Ruling:
    death = case.attempt.death
    reading = read(run, phase="handler", death=death, fallback=given("handler_exception"))
    if reading.cause.code == "request_cancelled":  # what an interrupt looks like; nobody cancelled this request
        reading = replace(reading, cause=given("handler_exception"))
    how = f" ({ending_of(death).words()})" if death else ""
    sentence = (
        f"This request got no answer because its handler ended the worker with {run.error_type}"
        f" {duration(between(run.start, run.last))} after it had begun; {case.worker} is gone{how}."
    )
    items = [event(run, f"the handler ended with {run.error_type}")]
    items += [death_item(death)] if death else []
    items.append(absence("no result was handed in"))
    final = case.settled or case.since(run.last) >= SETTLED_SECONDS
    return ruling("handler_exited", sentence, reading, tuple(items), state="lost", final=final)


# --------------------------------------------------------------------------------------------------------- result


def result_undeliverable(case: Case) -> Ruling | None:
    """The result could not be encoded: no request was made, and no retry would change it."""
    last = refused_for_good(case)
    if last is None or last.integer(Key.HTTP_STATUS) is not None or last.error_type not in _NOT_ENCODABLE:
        return None
    reading = read(last, phase="handler", fallback=given("output_not_serializable"))
    error = reading.exception
    told = f" ({exception_words(last)})" if error else ""
    sentence = (
        f"This request got no answer because the handler returned something that cannot be encoded{told};"
        f" {case.worker} sent nothing and took the next request."
    )
    items = (event(last, "encoding the result failed"), absence("no result was handed in"))
    return ruling("result_undeliverable", sentence, reading, items, state="lost", final=True)


def exception_words(record: Record) -> str:
    """`TypeError: Object of type X …`, one line."""
    error = record.exception
    return one_line(f"{error.type}: {error.message}") if error else ""


def result_lost(case: Case) -> Ruling | None:
    """The platform refused the result for good, or could not be reached with it."""
    last = refused_for_good(case)
    if last is None:
        return None
    status, size = last.integer(Key.HTTP_STATUS), last.integer(Key.DELIVER_BYTES) or 0
    too_large = status == 413 or (status == 400 and size > LARGE_RESULT_BYTES)
    cause = given("payload_too_large", fault="user_code") if too_large else given("platform_api_error", retry="maybe")
    how = f"the platform answered HTTP {status}" if status is not None else exception_words(last) or "no answer came"
    tries = len(case.attempt.deliveries)
    sentence = (
        f"This request got no answer because its result was lost on the way: {how}"
        f"{f' to the last of {tries} tries' if tries > 1 else ''} at {clock(last.last)}, and {case.worker} gave up."
    )
    run = case.attempt.run
    if run is not None and run.failed:
        sentence += f" The handler itself had failed ({exception_words(run) or 'an error'})."
    items = (
        event(last, f"handing the result in failed: {how}"),
        absence("no result was taken by the platform"),
        *((event(run, "the handler ended"),) if run and run.ended else ()),
    )
    # With a status, the error is the status once more.
    reading = Reading(cause, last, None, last.exception if status is None else None)
    return ruling("result_lost", sentence, reading, items, state="lost", final=True)


def result_never_sent(case: Case) -> Ruling | None:
    """The handler returned, and the worker was gone, or silent, before the result was handed in."""
    run = case.attempt.run
    if run is None or not run.ended or run.failed or refused_for_good(case):
        return None
    death, silent = case.attempt.death, case.silence_seconds
    if death is None and silent < SILENCE_POSSIBLE_SECONDS:
        return None
    in_flight = any(not r.ended for r in case.attempt.deliveries)
    confidence: Confidence
    items: list[EvidenceItem] = [event(run, "the handler returned"), absence("no result was taken by the platform")]
    reading = read(phase="handler", death=death) if death else Reading(given("platform_api_error"))
    if death is not None:
        how = f"{case.worker} {ending_of(death).words()} {duration(between(run.last, death.last))} later"
        items.append(death_item(death))
        confidence = "likely" if in_flight else "certain"
    else:
        how = f"{case.worker} has not been heard of for {duration(silent)}"
        items.append(absence(f"nothing from the worker for {duration(silent)}", case.attempt.heard))
        confidence = "likely" if silent >= SILENCE_LIKELY_SECONDS else "possible"
    possibly = "was possibly" if confidence == "possible" else "was"
    sentence = f"The result of this request {possibly} lost: the handler returned at {clock(run.last)}, and {how}."
    state: State = "lost" if confidence != "possible" else "stalled"
    return ruling(
        "result_lost",
        sentence,
        reading,
        (*items, *claim_item(case)),
        state=state,
        final=death is not None or silent >= SILENCE_FINAL_SECONDS,
        confidence=confidence,
        inferred=death is None or in_flight,
        missing=() if death else (LAUNCHER,),
    )
