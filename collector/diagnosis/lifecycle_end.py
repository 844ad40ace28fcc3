"""Rules about requests whose worker ended, fell silent or stands still, and about those that are simply under way."""

from __future__ import annotations

from typing import Final

from collector.diagnosis.answer import Confidence, EvidenceItem, Missing, State
from collector.diagnosis.lifecycle_case import (
    LAUNCHER,
    NO_FAILURE,
    NOT_READ,
    SIGKILL,
    SIGTERM,
    SILENCE_FINAL_SECONDS,
    SILENCE_LIKELY_SECONDS,
    SILENCE_POSSIBLE_SECONDS,
    Case,
    Ending,
    Reading,
    Ruling,
    absence,
    claim_item,
    death_item,
    ending_of,
    event,
    given,
    read,
    read_stall,
    ruling,
    why_in_brackets,
)
from collector.diagnosis.lifecycle_outcome import OUTSIDE_ADVICE, unread_handler
from collector.diagnosis.lifecycle_start import has_no_bound, waiting_on
from collector.diagnosis.lifecycle_words import between, clock, duration, name, raised
from collector.diagnosis.records import Record, moment
from collector.diagnosis.verdicts import VERDICTS
from sdk_exporter.contract import Key

SHELL_SIGNAL_BASE: Final = 128
"""A shell tells a child's death by signal N as exit status 128 + N."""
DRAIN_SECONDS: Final = 10.0
"""A job claimed just before the shutdown may still begin to run within this."""
SLOW_START_SECONDS: Final = 300.0
LOOP_BLOCKED_SECONDS: Final = 5.0
"""A loop that has not beaten for so long (it beats five times a second) is held by something."""
NEVER_RUN_SECONDS: Final = 120.0
"""A claim that is ready to run begins within a second; this long it is stuck."""
UNTOLD_ADVICE: Final = (
    "Look at main memory, and for a call in the handler that ends the process (`os._exit`): from outside a kill, a"
    " crash, an exit and a lost machine look the same.",
)
"""For a worker of which nothing tells how it ended."""
KILLED_ADVICE: Final = (
    "Look for who kills processes here: the kernel counted no kill for memory. The platform does it when it takes a"
    " machine back, a script or a health check by `kill -9`.",
)
HUNG_SECONDS: Final = 300.0
"""Loop and progress may stand this long in a handler that computes; the process's own beat may not."""


# ---------------------------------------------------------------------------------------------- run, process gone


def process_gone(case: Case) -> Ruling | None:
    """The handler began, never ended, and the process is gone: exited, killed or crashed."""
    run, death = case.attempt.run, case.attempt.death
    if run is None or run.ended or death is None:
        return None
    ending = _shell_signal(ending_of(death))
    reading = _end_reading(case, death, ending)
    code = _end_code(case, death, ending)
    sentence = f"This request got no answer because {_end_words(case, code, ending, reading)}{_ran(run, death)}."
    others = _other_ends(case, death)
    items = (
        event(run, f"the handler began at {clock(run.start)}", at=run.start),
        death_item(death),
        *others,
        absence("no end of the run was told"),
    )
    return ruling(
        code,
        sentence,
        reading,
        (*_ledger(case, death), *items),
        state="lost",
        final=True,
        # Whose handler it was is not known where it ran several.
        confidence="likely" if others or (code == "handler_exited" and _others_in_hand(case)) else "certain",
        missing=unread_handler(reading) if code != "worker_replaced" else (),
        usual_advice=_end_advice(case, code, ending),
    )


def _ran(run: Record, death: Record) -> str:
    """`, 4.9 s into the handler`; nothing where clocks put the end before the beginning."""
    seconds = between(run.start, death.last)
    return f", {duration(seconds)} into the handler" if seconds >= 0 else ""


def _other_ends(case: Case, death: Record) -> tuple[EvidenceItem, ...]:
    """Records that tell of another end of the same process."""
    told = ending_of(death)
    others = [other for other in case.attempt.worker.deaths if other is not death and ending_of(other) != told]
    return tuple(
        event(other, f"another record contradicts: the process {ending_of(other).words()}", what="exit")
        for other in others
    )


def _end_advice(case: Case, code: str, ending: Ending) -> tuple[str, ...] | None:
    """What fits how the process ended; None where the catalogue's own words do."""
    if code == "worker_crashed" and ending.signal is None:
        return OUTSIDE_ADVICE
    if code != "worker_killed" or ending.oom_kill:
        return None
    if case.attempt.shutdown is not None:
        return VERDICTS["worker_replaced"].advice
    if ending.signal is None:
        return UNTOLD_ADVICE
    return KILLED_ADVICE if ending.oom_kill is False else None


def _shell_signal(ending: Ending) -> Ending:
    if ending.signal is None and ending.code is not None and 1 <= ending.code - SHELL_SIGNAL_BASE <= 64:
        return Ending(None, ending.code - SHELL_SIGNAL_BASE, ending.oom_kill)
    return ending


def _end_code(case: Case, death: Record, ending: Ending) -> str:
    if ending.signal == SIGKILL or ending.oom_kill:
        return "worker_killed"
    if case.attempt.shutdown is not None and not _loop_failed(case) and (ending.code == 0 or ending.signal == SIGTERM):
        return "worker_replaced"
    if ending.signal is not None:
        return "worker_crashed"
    if ending.code is None:
        return "worker_killed"
    return "worker_crashed" if _loop_failed(case) or _crashed_outside(death, ending) else "handler_exited"


def _loop_failed(case: Case) -> Record | None:
    """The worker's own loop ended in an error (a crash on intake, a failed scaler), or None."""
    shutdown = case.attempt.shutdown
    return shutdown if shutdown is not None and shutdown.failed else None


def _crashed_outside(death: Record, ending: Ending) -> bool:
    """Status 1 after a traceback: an error that no handler raised (the worker SDK catches those) ended the process."""
    tail = death.tail.text if death.tail else ""
    last = next((line for line in reversed(tail.splitlines()) if line.strip()), "")
    return ending.code == 1 and "Traceback (most recent call last)" in tail and "SystemExit" not in last


def _end_reading(case: Case, death: Record, ending: Ending) -> Reading:
    """Why the process ended. A kill after a request to leave is the platform's, unless memory ran out."""
    reading = read(_loop_failed(case), phase="handler", death=death)
    left = ending.code == 0 or ending.signal in (SIGKILL, SIGTERM)
    asked = case.attempt.shutdown is not None and left and not ending.oom_kill
    weak = not reading.known or (reading.cause.code == "host_oom" and reading.cause.line is None)
    if asked and weak:
        return Reading(given("terminated_by_platform"), reading.record, reading.tail, reading.exception)
    return reading


def _end_words(case: Case, code: str, ending: Ending, reading: Reading) -> str:
    if code == "handler_exited" and (others := _others_in_hand(case)):
        return f"one of the {others + 1} handlers on {case.worker} ended it; the process {ending.words()}"
    if code == "handler_exited":
        return f"its handler ended {case.worker}, which {ending.words()}"
    if code == "worker_replaced":
        return f"{case.worker} was told to leave and {ending.words()}"
    return f"{case.worker} {ending.words()}{why_in_brackets(reading)}"


def _ledger(case: Case, death: Record) -> tuple[EvidenceItem, ...]:
    if case.evidence.job_id not in death.texts(Key.DEATH_JOBS_IN_HAND):
        return ()
    others = _others_in_hand(case)
    with_it = f", with {others} other{'' if others == 1 else 's'}" if others else ""
    return (event(death, f"the request was in the hands of the process when it ended{with_it}"),)


def _others_in_hand(case: Case) -> int:
    """How many other requests the process held when it ended."""
    held = case.attempt.death.texts(Key.DEATH_JOBS_IN_HAND) if case.attempt.death else ()
    return len(set(held) - {case.evidence.job_id})


def run_silent(case: Case) -> Ruling | None:
    """The handler began, and its worker has not been heard of since: killed, as far as can be told from outside."""
    run, silent = case.attempt.run, case.silence_seconds
    if run is None or run.ended or case.gone or silent < SILENCE_POSSIBLE_SECONDS:
        return None
    confidence: Confidence = "likely" if silent >= SILENCE_LIKELY_SECONDS else "possible"
    was = "has probably been" if confidence == "likely" else "has possibly been"
    sentence = (
        f"This request got no answer: {case.worker} {was} killed while the handler ran. It has not been heard of for"
        f" {duration(silent)}, since {clock(case.attempt.heard)}."
    )
    items = (_silence(case), event(run, f"the handler began at {clock(run.start)}", at=run.start))
    return ruling(
        "worker_killed", sentence, NOT_READ, items, state=_silent_state(confidence),
        final=silent >= SILENCE_FINAL_SECONDS, confidence=confidence, inferred=True, missing=(LAUNCHER,),
        usual_advice=UNTOLD_ADVICE,
    )  # fmt: skip


def _silence(case: Case) -> EvidenceItem:
    return absence(f"no heartbeat and no other record for {duration(case.silence_seconds)}", case.attempt.heard)


def _silent_state(confidence: Confidence) -> State:
    return "lost" if confidence == "likely" else "stalled"


# -------------------------------------------------------------------------------------------------- never ran


def stranded_claim(case: Case) -> Ruling | None:
    """Claimed and never run, and the worker has ended, is leaving, or has fallen silent."""
    if case.attempt.run is not None:
        return None
    if case.attempt.death is not None:
        return _stranded_by_death(case, case.attempt.death)
    if case.attempt.shutdown is not None and _left_behind(case, case.attempt.shutdown):
        return _stranded_by_shutdown(case, case.attempt.shutdown)
    return _stranded_by_silence(case)


def _left_behind(case: Case, shutdown: Record) -> bool:
    """Whether a worker that is leaving will not run this claim: its run loop has ended, or its gate never opened."""
    after = case.attempt.claimed_ns >= shutdown.start_ns
    gated = waiting_on(case) is not None
    return after or gated or shutdown.ended or case.since(shutdown.start) >= DRAIN_SECONDS


def _stranded_by_death(case: Case, death: Record) -> Ruling:
    shutdown, ending = case.attempt.shutdown, _shell_signal(ending_of(death))
    reading = _stranded_reading(case, death, ending)
    told = _shutdown_words(case, shutdown) if shutdown else ""
    sentence = (
        f"This request was stranded: {case.worker} claimed it{_at(case)} and never ran it{told}; it {ending.words()}"
        f"{why_in_brackets(reading) if shutdown is None else ''}{_comma(case.after_claim(death.last))}"
        f"{_meanwhile(case)}."
    )
    items = (
        *_ledger(case, death),
        *claim_item(case),
        *((_shutdown_item(shutdown),) if shutdown else ()),
        death_item(death),
        absence("no run of the request was told"),
    )
    return ruling("stranded_claim", sentence, reading, items, state="lost", final=True, retry="yes")


def _comma(text: str) -> str:
    return f",{text}" if text else ""


def _meanwhile(case: Case) -> str:
    """`, while the prestart hook `x` was running`, where it was."""
    waiting = waiting_on(case)
    return f", while {waiting[1]} was running" if waiting else ""


def _stranded_reading(case: Case, death: Record, ending: Ending) -> Reading:
    if (loop := _loop_failed(case)) is not None:
        return read(loop, phase="shutdown", death=death)
    if case.attempt.shutdown is not None:
        asked = ending.code == 0 or ending.signal in (SIGTERM, SIGKILL)
        reading = read(phase="shutdown", death=death)
        if asked and not ending.oom_kill and (not reading.known or reading.cause.line is None):
            return Reading(given("terminated_by_platform"), reading.record, reading.tail)
        return reading
    return read(phase="prestart", death=death)


def _at(case: Case) -> str:
    return f" at {clock(case.claimed)}" if case.attempt.claim else ""


def _shutdown_words(case: Case, shutdown: Record) -> str:
    """`, because it had received SIGTERM 2.0 s before the claim`."""
    what = f"received {name(told)}" if (told := shutdown.text(Key.SHUTDOWN_SIGNAL)) else "begun to shut down"
    if shutdown.failed:
        error = raised(shutdown.exception)
        return f", because its own loop failed{f' ({error})' if error else ''}"
    if case.attempt.claim is None:
        return f", because it had {what}"
    seconds = between(shutdown.start, case.claimed)
    if seconds >= 0:
        return f", because it had {what} {duration(seconds)} before the claim"
    return f", because it {what.replace('begun', 'began')} {duration(seconds)} after the claim"


def _shutdown_item(shutdown: Record) -> EvidenceItem:
    signal = shutdown.text(Key.SHUTDOWN_SIGNAL)
    return event(shutdown, f"the worker began to shut down{f' ({signal})' if signal else ''}", at=shutdown.start)


def _stranded_by_shutdown(case: Case, shutdown: Record) -> Ruling:
    sentence = (
        f"This request was stranded: {case.worker} claimed it{_at(case)} and does not run it"
        f"{_shutdown_words(case, shutdown)}."
    )
    items = (*claim_item(case), _shutdown_item(shutdown), absence("no run of the request was told"))
    loop = _loop_failed(case)
    reading = read(loop, phase="shutdown") if loop else Reading(given("terminated_by_platform"))
    silent = case.silence_seconds
    return ruling(
        "stranded_claim", sentence, reading, items, state="lost",
        final=shutdown.ended or silent >= SILENCE_LIKELY_SECONDS,
        confidence="certain" if shutdown.ended or silent >= SILENCE_LIKELY_SECONDS else "likely",
        inferred=not shutdown.ended,
    )  # fmt: skip


def _stranded_by_silence(case: Case) -> Ruling | None:
    silent = case.silence_seconds
    if silent < SILENCE_POSSIBLE_SECONDS:
        return None
    confidence: Confidence = "likely" if silent >= SILENCE_LIKELY_SECONDS else "possible"
    was = "was probably" if confidence == "likely" else "was possibly"
    sentence = (
        f"This request {was} stranded: {case.worker} claimed it{_at(case)} and has never run it; nothing has been heard"
        f" of the worker for {duration(silent)}, since {clock(case.attempt.heard)}."
    )
    items = (*claim_item(case), _silence(case), absence("no run of the request was told"))
    return ruling(
        "stranded_claim", sentence, NOT_READ, items, state=_silent_state(confidence),
        final=silent >= SILENCE_FINAL_SECONDS, confidence=confidence, inferred=True, missing=(LAUNCHER,),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ ended elsewhere


def execution_timeout(case: Case) -> Ruling | None:
    """The platform ended the request by its time limit."""
    told = next((r for r in _caller(case) if r.text(Key.CALLER_STATUS).upper() == "TIMED_OUT"), None)
    if told is None:
        return None
    run = case.attempt.run
    ran = f" The handler had run for {duration(between(run.start, told.last))}." if run else " It never ran."
    sentence = f"This request was ended by its time limit; the caller saw TIMED_OUT at {clock(told.last)}.{ran}"
    items = (event(told, "the caller saw TIMED_OUT"), *claim_item(case))
    reading = Reading(given("timeout", fault="model_config"))
    return ruling("execution_timeout", sentence, reading, items, state="failed", final=True)


def result_expired(case: Case) -> Ruling | None:
    """The handler returned, and the caller's poll found nothing any more."""
    run = case.attempt.run
    gone = next((r for r in _caller(case) if r.integer(Key.HTTP_STATUS) in (404, 410)), None)
    if gone is None or run is None or not run.ended:
        return None
    sentence = (
        f"The result of this request had expired: the handler returned at {clock(run.last)}, and the caller's poll at"
        f" {clock(gone.last)} found nothing any more."
    )
    items = (event(gone, f"the caller's poll was answered HTTP {gone.integer(Key.HTTP_STATUS)}"), event(run, "it ran"))
    return ruling(
        "result_expired", sentence, NOT_READ, items, state="completed", final=True, confidence="likely", inferred=True
    )


def _caller(case: Case) -> tuple[Record, ...]:
    return (*case.evidence.requests, *case.evidence.polls)


# -------------------------------------------------------------------------------------------- alive, but silent


def backend_dead(case: Case) -> Ruling | None:
    """A child process that ended badly during the run, which goes on without it."""
    run = case.attempt.run
    if run is None or run.ended:
        return None
    bad = [r for r in case.attempt.backend_deaths if _ended_badly(r) and r.last_ns >= run.start_ns]
    if not bad or (waited := case.since(bad[-1].last)) < DRAIN_SECONDS:
        return None
    death = bad[-1]
    confidence: Confidence = "likely" if waited >= SILENCE_POSSIBLE_SECONDS else "possible"
    reading = read(death, phase="handler", death=death)
    command = death.text(Key.PROCESS_COMMAND)
    what = f"the child process {name(command)}" if command else "a child process"
    possibly = "possibly " if confidence == "possible" else ""
    sentence = (
        f"This request {possibly}waits for an engine that is gone: {what} {ending_of(death).words()} {duration(waited)}"
        f" ago, and the handler on {case.worker} runs on."
    )
    items = (event(death, f"{what} {ending_of(death).words()}", what="exit"), absence("no end of the run was told"))
    return ruling(
        "backend_dead", sentence, reading, items, state="stalled", final=False, confidence=confidence, inferred=True,
        missing=unread_handler(reading),
    )  # fmt: skip


def _ended_badly(death: Record) -> bool:
    ending = ending_of(death)
    return ending.signal is not None or bool(ending.code) or bool(ending.oom_kill)


def claim_forgotten(case: Case) -> Ruling | None:
    """The worker lives and reports what it holds, and this request, which it never ran, is not among it."""
    beat, run = _newest_beat(case), case.attempt.run
    if beat is None or run is not None or Key.HEARTBEAT_JOBS not in beat.attributes:
        return None
    held = beat.texts(Key.HEARTBEAT_JOBS)
    waited = between(case.claimed, beat.last)
    if case.evidence.job_id in held or waited < SILENCE_POSSIBLE_SECONDS:
        return None
    sentence = (
        f"This request was probably stranded: {case.worker} claimed it{_at(case)} and never ran it; the worker is alive"
        f" and {duration(waited)} later no longer holds it."
    )
    items = (
        *claim_item(case),
        event(beat, f"heartbeat: requests in hand: {len(held)}, this one not among them"),
        absence("no run of the request was told"),
    )
    return ruling(
        "stranded_claim", sentence, NOT_READ, items, state="lost", final=case.since(beat.last) >= SILENCE_FINAL_SECONDS,
        confidence="likely", inferred=True,
    )  # fmt: skip


def worker_hung(case: Case) -> Ruling | None:
    """The recorder reports, but the process's threads, or loop and progress, do not move; or a claim is never run."""
    beat = _newest_beat(case)
    if beat is None:
        return None
    process, loop, progress = (
        beat.number(key) for key in (Key.HEARTBEAT_PROCESS, Key.HEARTBEAT_LOOP, Key.HEARTBEAT_PROGRESS)
    )
    run, still = case.attempt.run, [age for age in (loop, progress) if age is not None]
    confidence: Confidence
    if process is not None and process >= SILENCE_POSSIBLE_SECONDS:
        age, what = process, "no thread of its Python has moved"
        confidence = "likely" if process >= SILENCE_LIKELY_SECONDS else "possible"
    elif run is not None and not run.ended and still and min(still) >= HUNG_SECONDS:
        age, what, confidence = min(still), "neither its event loop nor its handler has moved", "possible"
    elif run is None and waiting_on(case) is None and (waited := between(case.claimed, beat.last)) >= NEVER_RUN_SECONDS:
        age, what, confidence = waited, "it holds the request and has not begun to run it", "possible"
    else:
        return None
    stands = "stands still" if confidence == "likely" else "possibly stands still"
    reading, last = read_stall(case.attempt.worker, case.attempt.start_ns, "handler" if run else "prestart")
    sentence = (
        f"This request makes no progress: {case.worker} is alive but {stands}; {what} for"
        f" {duration(age)}{why_in_brackets(reading)}."
    )
    items = (*last, event(beat, f"heartbeat: {what} for {duration(age)}"), *claim_item(case))
    how = Missing("the call that does not return", "py-spy dump --pid <pid>")
    return ruling(
        "worker_hung", sentence, reading, items, state="stalled", final=False, confidence=confidence, inferred=True,
        missing=(how,),
    )  # fmt: skip


def _newest_beat(case: Case) -> Record | None:
    beats = [r for r in case.attempt.worker.heartbeats if r.last_ns >= case.attempt.start_ns]
    return beats[-1] if beats else None


# ------------------------------------------------------------------------------------------------------ under way


def cold_start_slow(case: Case) -> Ruling | None:
    """The request waits for a prestart phase that takes long."""
    waiting = waiting_on(case)
    if waiting is None or case.since(waiting[0].start) < SLOW_START_SECONDS:
        return None
    phase, subject = waiting
    sentence = (
        f"This request waits for the start of {case.worker}: {subject} has been running for"
        f" {duration(case.since(phase.start))}, and no end of it was told{_bound_words(phase)}."
    )
    reading, last = read_stall(case.attempt.worker, phase.start_ns, "prestart")
    items = (*last, event(phase, "the prestart phase began", at=phase.start), *claim_item(case))
    return ruling(
        "cold_start_slow", sentence, reading, items, state="stalled", final=False, confidence="likely", inferred=True,
        missing=(Missing("a bound of the prestart phase", "sdk_exporter.prestart(timeout=600)"),)
        if has_no_bound(phase) else (),
    )  # fmt: skip


def _bound_words(phase: Record) -> str:
    bound = phase.number(Key.PRESTART_TIMEOUT_SECONDS)
    return "; no time bound is set" if bound is None else f"; its time bound is {duration(bound)}"


def _moves(case: Case) -> str:
    """What of the worker goes on while its handler does not: a call that hangs on a thread leaves the loop alone, one
    that hangs on the loop does not. Empty where the handler has moved lately, or nobody says."""
    beat = _newest_beat(case)
    progress = beat.number(Key.HEARTBEAT_PROGRESS) if beat is not None else None
    loop = beat.number(Key.HEARTBEAT_LOOP) if beat is not None else None
    if progress is None or loop is None or progress < SILENCE_POSSIBLE_SECONDS:
        return ""
    turns = (
        f"the event loop is blocked for {duration(loop)}" if loop >= LOOP_BLOCKED_SECONDS else "the event loop turns"
    )
    return f"{turns}, and the handler has given no sign for {duration(progress)}"


def under_way(case: Case) -> Ruling:
    """Nothing is wrong that can be seen. This rule always fits."""
    run, waiting = case.attempt.run, waiting_on(case)
    state: State = "running"
    if run is not None and run.ended:
        sentence = f"This request is being handed in: the handler on {case.worker} ended at {clock(run.last)}."
        items = [event(run, "the handler ended")]
    elif run is not None:
        moves = _moves(case)
        sentence = f"This request is running on {case.worker}, {duration(case.since(run.start))} so far{moves and '; '}"
        sentence += f"{moves}."
        items = [event(run, f"the handler began at {clock(run.start)}", at=run.start)]
        beat = _newest_beat(case)
        if beat is not None and moves:
            items.append(event(beat, f"heartbeat: {moves}"))
    elif waiting is not None:
        phase, subject = waiting
        state = "claimed"
        sentence = (
            f"This request is claimed by {case.worker} and waits for {subject}, which has been running for"
            f" {duration(case.since(phase.start))}{_bound_words(phase)}."
        )
        items = [event(phase, "the prestart phase began", at=phase.start), *claim_item(case)]
    else:
        state = "claimed"
        sentence = f"This request is claimed by {case.worker}{_at(case)} and has not begun to run."
        items = [*claim_item(case), absence("no run of the request was told yet", moment(case.attempt.start_ns))]
    return ruling("running", sentence, NO_FAILURE, tuple(items), state=state, final=False)
