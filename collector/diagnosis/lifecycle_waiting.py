"""Rules that say why nobody takes a request: from its caller, its endpoint's workers and the platform together.

Each of the three may be missing. What is there is used, and what is missing is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from collector.diagnosis.answer import Confidence, EvidenceItem, Fault, Missing
from collector.diagnosis.causes import find_cause
from collector.diagnosis.clues import Clues
from collector.diagnosis.evidence import PLATFORM_NAMES, BootEvidence, heard_of
from collector.diagnosis.lifecycle_case import (
    LAUNCHER,
    NO_FAILURE,
    NOT_READ,
    SILENCE_LIKELY_SECONDS,
    Reading,
    Ruling,
    absence,
    death_item,
    event,
    given,
    read,
    ruling,
    why_in_brackets,
)
from collector.diagnosis.lifecycle_queue import NO_CLAIM, Waiting, crashed
from collector.diagnosis.lifecycle_words import between, duration, name, one_line
from collector.diagnosis.platform_view import LOOP_SECONDS, STARTS_OF_LOOP, PlatformView
from collector.diagnosis.records import Record
from sdk_exporter.contract import Key

QUEUE_STALLED_SECONDS: Final = 900.0
"""After this long in the queue a request counts as stalled (the cold-start client's own default)."""
SETTLED_SECONDS: Final = 60.0
"""A state of the endpoint that has lasted this long is no moment between two others."""
NO_WORKER_SECONDS: Final = 300.0
"""So long without any worker, while a request waits, is want of capacity."""

POLLER: Final = Missing("the platform's own view of the endpoint", "stallscope serve --platform runpod")
CALLER: Final = Missing("when the request was sent, and what its caller saw", "OTEL_EXPORTER_OTLP_ENDPOINT=…")
_OF_CAPACITY: Final = frozenset({"no_capacity", "throttled", "scaled_to_zero"})


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why nobody takes it. `text` follows a colon, or `possibly because`."""

    word: str
    text: str
    items: tuple[EvidenceItem, ...] = ()
    confidence: Confidence = "likely"
    reading: Reading = NOT_READ
    fault: Fault | None = None


def crash_loop(case: Waiting) -> Ruling | None:
    """Start after start of the endpoint's workers ends before any asks for work."""
    reason = _loop(case, PlatformView(case.evidence))
    return None if reason is None or not case.evidence.requests else _stalled(case, reason)


def start_under_way(case: Waiting) -> Ruling | None:
    """A worker is starting. As long as that is normal for this endpoint, nothing has stalled."""
    view = PlatformView(case.evidence)
    starting = view.starting()
    if starting is None or not case.evidence.requests or _serving(case):
        return None
    worker, seconds = starting
    if view.count(Key.PLATFORM_WORKERS_IDLE):
        return None  # the request need not wait for the one that starts
    items = (event(worker, f"the platform shows the worker as {worker.text(Key.PLATFORM_STATUS)}"), *case.sent())
    if seconds <= view.start_bound:
        sentence = (
            f"This request waits in the queue, {case.waited()}, for worker {name(worker.worker_id)}, which has been"
            f" starting for {duration(seconds)}; {_normal(view)}."
        )
        return ruling("queued", sentence, NO_FAILURE, (*items, absence(NO_CLAIM)), state="queued", final=False)
    sentence = (
        f"This request waits for the start of worker {name(worker.worker_id)}, which has been starting for"
        f" {duration(seconds)}, longer than it should; {_normal(view)}."
    )
    return ruling(
        "cold_start_slow", sentence, NOT_READ, (*items, absence(NO_CLAIM)), state="stalled", final=False,
        confidence="likely", inferred=True, missing=_missing(case, view),
    )  # fmt: skip


def _normal(view: PlatformView) -> str:
    normal = view.normal_start
    if normal is None:
        return f"how long is normal for this endpoint is not known yet, up to {duration(view.start_bound)} is usual"
    return f"normal for this endpoint is up to {duration(normal[0])} (95 in 100 of its last {normal[1]} starts)"


def queue_stalled(case: Waiting) -> Ruling | None:
    """Nobody has claimed it: at once where the platform or the workers tell why, else after very long."""
    if not case.evidence.requests:
        return None
    view = PlatformView(case.evidence)
    reason = _told_by_platform(case, view) or _told_by_workers(case)
    if reason is None and case.seconds >= QUEUE_STALLED_SECONDS:
        reason = _after_long(case, view)
    return None if reason is None else _stalled(case, reason)


def waits_unsent(case: Waiting) -> Ruling | None:
    """No caller told of it, and nothing else of its own is known: what is known of its endpoint is all there is."""
    if case.evidence.polls or any(r.job_id and r.name not in PLATFORM_NAMES for r in case.evidence.records):
        return None
    view = PlatformView(case.evidence)
    reason = _loop(case, view) or _told_by_platform(case, view) or _told_by_workers(case)
    return None if reason is None else _stalled(case, replace(reason, confidence="possible"))


def _stalled(case: Waiting, reason: _Reason) -> Ruling:
    view = PlatformView(case.evidence)
    known = Reading(given("capacity_unavailable")) if reason.word in _OF_CAPACITY else reason.reading
    waited = f"has waited {duration(case.seconds)} and" if case.queued else "possibly waits, and"
    possibly = "possibly because " if reason.confidence == "possible" else ""
    sentence = f"This request {waited} no worker has claimed it: {possibly}{reason.text}."
    gap = view.gap
    gaps = (event(gap, f"the platform could not be asked ({one_line(gap.message)})", what="absence"),) if gap else ()
    return ruling(
        "queue_stalled", sentence, known, (*reason.items, *case.sent(), absence(NO_CLAIM), *gaps), state="stalled",
        final=False, confidence=reason.confidence, inferred=True, queue_reason=reason.word, fault=reason.fault,
        missing=_missing(case, view),
    )  # fmt: skip


def _missing(case: Waiting, view: PlatformView) -> tuple[Missing, ...]:
    """Which of the three views there was not."""
    return (
        *(() if case.evidence.requests or case.evidence.polls else (CALLER,)),
        *(() if case.evidence.boots else (LAUNCHER,)),
        *(() if view.polled else (POLLER,)),
    )


# ------------------------------------------------------------------------------------------------------- crash loops


def _loop(case: Waiting, view: PlatformView) -> _Reason | None:
    newest_ns = int(case.now.timestamp()) * 1_000_000_000
    window_ns = int(LOOP_SECONDS) * 1_000_000_000
    died = [b for b in _boots(case) if crashed(b) and newest_ns - b.last_ns <= window_ns]
    if _serving(case):
        return None
    if len(died) >= STARTS_OF_LOOP:
        return _loop_of_workers(died)
    restarted = view.restarted()
    return _loop_of_containers(restarted, view, died) if restarted else None


def _loop_of_workers(died: list[BootEvidence]) -> _Reason:
    last = died[-1]
    reading = read(last.boot, phase="boot", death=last.death)
    text = f"crash loop: {len(died)} workers started and died before start() in {_minutes()}{_last_with(reading)}"
    ends = (death_item(b.death) for b in (died[0], last) if b.death is not None)
    return _Reason("crash_loop", text, tuple(ends), "certain", reading, None if reading.known else "unknown")


def _loop_of_containers(restarted: dict[str, list[Record]], view: PlatformView, died: list[BootEvidence]) -> _Reason:
    starts = sum(len(lines) for lines in restarted.values())
    last = max((lines[-1] for lines in restarted.values()), key=lambda r: (r.last_ns, r.span_id))
    text = "\n".join(r.text(Key.PLATFORM_LINE) for r in view.lines if r.worker_id in restarted)
    cause = find_cause(Clues(text=text, phase="boot"))
    reading = read(died[-1].boot, phase="boot", death=died[-1].death) if died else Reading(replace(cause, line=None))
    reading = reading if reading.known else NOT_READ
    told = next((r for r in reversed(view.lines) if cause.line and cause.line in r.text(Key.PLATFORM_LINE)), None)
    root = (event(told, told.text(Key.PLATFORM_LINE), what="log_line"),) if told and reading.known else ()
    workers = f"{len(restarted)} workers" if len(restarted) > 1 else f"worker {name(last.worker_id)}"
    said = f"crash loop: the container of {workers} was started {starts} times in {_minutes()}"
    said += f", and no start came to asking for work{_last_with(reading)}"
    items = (*root, event(last, last.text(Key.PLATFORM_LINE), what="log_line"))
    return _Reason("crash_loop", said, items, "likely", reading, None if reading.known else "unknown")


def _minutes() -> str:
    return f"{LOOP_SECONDS / 60:.0f} minutes"


def _last_with(reading: Reading) -> str:
    exception = reading.exception.type.rpartition(".")[2] if reading.exception else ""
    said = exception or one_line(reading.cause.line or "")
    return f", last with {said}" if said else why_in_brackets(reading)


# ---------------------------------------------------------------------------------------------------------- platform


def _told_by_platform(case: Waiting, view: PlatformView) -> _Reason | None:
    """What the newest answer tells, where it has been so for long enough."""
    now = view.now
    if now is None:
        return None
    for rule in (_closed, _throttled, _unhealthy, _idle, _no_worker):
        found = rule(case, view, now)
        if found is not None:
            return found
    return None


def _closed(case: Waiting, view: PlatformView, now: Record) -> _Reason | None:
    if view.most != 0 or view.count(Key.PLATFORM_WORKERS):
        return None
    release = now.text(Key.PLATFORM_PAUSED_BY)
    items = (event(now, "the platform shows a maximum of 0 workers and none of them there"),)
    if release:
        return _Reason(
            "paused", f"the endpoint is paused, release {name(release)} set its maximum to 0", items, "certain"
        )
    return _Reason("scaled_to_zero", "the endpoint is scaled to zero, its maximum of workers is 0", items)


def _throttled(case: Waiting, view: PlatformView, now: Record) -> _Reason | None:
    def all_throttled(answer: Record) -> bool:
        able = (Key.PLATFORM_WORKERS_IDLE, Key.PLATFORM_WORKERS_RUNNING, Key.PLATFORM_WORKERS_INITIALIZING)
        return bool(answer.integer(Key.PLATFORM_WORKERS_THROTTLED)) and not any(answer.integer(key) for key in able)

    if view.held_seconds(all_throttled) < SETTLED_SECONDS:
        return None
    count = view.count(Key.PLATFORM_WORKERS_THROTTLED)
    items = (event(now, f"the platform shows {count} workers THROTTLED and none ready"),)
    return _Reason("throttled", "the endpoint's workers are throttled", items)


def _unhealthy(case: Waiting, view: PlatformView, now: Record) -> _Reason | None:
    """None but workers that fail their health checks."""

    def all_unhealthy(answer: Record) -> bool:
        return (answer.integer(Key.PLATFORM_WORKERS_UNHEALTHY) or 0) > 0 and answer.integer(
            Key.PLATFORM_WORKERS_UNHEALTHY
        ) == answer.integer(Key.PLATFORM_WORKERS)

    if view.held_seconds(all_unhealthy) < SETTLED_SECONDS or _serving(case):
        return None
    count = view.count(Key.PLATFORM_WORKERS_UNHEALTHY)
    items = (event(now, f"the platform shows all {count} workers UNHEALTHY"),)
    text = "all workers of the endpoint are unhealthy, so each start fails or each worker ends"
    return _Reason("crash_loop", text, items, "possible", fault="unknown")


def _idle(case: Waiting, view: PlatformView, now: Record) -> _Reason | None:
    """Workers that have nothing to do, while it waits."""

    def one_has_all(answer: Record) -> bool:
        busy, held = answer.integer(Key.PLATFORM_WORKERS_RUNNING) or 0, answer.integer(Key.PLATFORM_JOBS_RUNNING) or 0
        return bool(answer.integer(Key.PLATFORM_WORKERS_IDLE)) and busy == 1 and held > 1

    def nobody_takes(answer: Record) -> bool:
        waits = answer.integer(Key.PLATFORM_JOBS_QUEUED)
        return bool(answer.integer(Key.PLATFORM_WORKERS_IDLE)) and (waits is None or waits > 0)

    idle = view.count(Key.PLATFORM_WORKERS_IDLE)
    if min(view.held_seconds(one_has_all), _waited(case)) >= SETTLED_SECONDS:
        held = view.count(Key.PLATFORM_JOBS_RUNNING)
        items = (event(now, f"the platform shows {held} requests on 1 worker, and {idle} idle beside it"),)
        text = f"all requests are funnelled to one worker, which holds {held}, while {idle} stand idle"
        return _Reason("funnelled", text, items, fault="unknown")
    if min(view.held_seconds(nobody_takes), _waited(case)) >= SETTLED_SECONDS:
        items = (event(now, f"the platform shows {idle} workers IDLE while requests wait"),)
        told = _told_by_workers(case)
        if told is not None:
            return replace(told, items=(*told.items, *items), confidence="likely")
        return _Reason("no_poller", "the endpoint's workers stand idle and do not ask for work", items, fault="unknown")
    return None


def _no_worker(case: Waiting, view: PlatformView, now: Record) -> _Reason | None:
    if min(view.held_seconds(lambda r: r.integer(Key.PLATFORM_WORKERS) == 0), _waited(case)) < NO_WORKER_SECONDS:
        return None
    items = (event(now, "the platform shows no worker of the endpoint"),)
    return _Reason("no_capacity", "the platform has not placed any worker of its endpoint", items)


def _waited(case: Waiting) -> float:
    """Seconds; without a caller the state of the endpoint is all that tells."""
    return case.seconds if case.queued else float("inf")


# ----------------------------------------------------------------------------------------------------------- workers


def _boots(case: Waiting) -> tuple[BootEvidence, ...]:
    """Those that it may be waiting for; all that are known where nobody told since when it waits."""
    return case.boots() if case.queued else case.evidence.boots


def _alive(case: Waiting) -> list[BootEvidence]:
    """Workers that came through their start, were heard of lately, and are not known to have ended."""

    def is_there(boot: BootEvidence) -> bool:
        told = boot.boot
        started = bool(boot.heartbeats) if told is None else told.ended and not told.failed
        return started and boot.death is None and case.since(heard_of(boot.records)) <= SILENCE_LIKELY_SECONDS

    return [boot for boot in _boots(case) if is_there(boot)]


def _holds(boot: BootEvidence) -> int:
    """How many requests it had in hand at its newest heartbeat."""
    return len(boot.heartbeats[-1].texts(Key.HEARTBEAT_JOBS)) if boot.heartbeats else 0


def _serving(case: Waiting) -> bool:
    return bool(_alive(case))


def _told_by_workers(case: Waiting) -> _Reason | None:
    if _waited(case) < SETTLED_SECONDS:
        return None
    return _bad_payload(case) or _funnelled(case) or _not_polling(case)


def _bad_payload(case: Waiting) -> _Reason | None:
    """Answers to polls that no worker could read, and it still waits: it is handed out again and again."""
    told = [r for b in _boots(case) for r in b.job_take if r.text(Key.CHANNEL_VIOLATION)]
    since = [r for r in told if case.queued is None or between(case.queued, r.last) >= 0]
    if not since:
        return None
    last = max(since, key=lambda r: (r.last_ns, r.span_id))
    violation = last.text(Key.CHANNEL_VIOLATION)
    text = f"what is handed out for it cannot be read (`{violation}`), as worker {name(last.worker_id)} told"
    confidence: Confidence = "likely" if len(since) > 1 else "possible"
    items = (event(last, f"an answer to the poll for requests could not be read: {violation}"),)
    return _Reason("bad_payload", text, items, confidence, fault="caller_input")


def _funnelled(case: Waiting) -> _Reason | None:
    """One worker holds several requests while another, as alive, holds none."""
    beats = [b.heartbeats[-1] for b in _alive(case) if b.heartbeats]
    busy = [beat for beat in beats if len(beat.texts(Key.HEARTBEAT_JOBS)) > 1]
    idle = [beat for beat in beats if not beat.texts(Key.HEARTBEAT_JOBS)]
    if len(busy) != 1 or not idle:
        return None
    count = len(busy[0].texts(Key.HEARTBEAT_JOBS))
    items = (event(busy[0], f"the worker holds {count} requests"), event(idle[0], "the worker holds none"))
    text = f"all requests are funnelled to worker {name(busy[0].worker_id)}, which holds {count}"
    text += f" while {len(idle)} hold none"
    return _Reason("funnelled", text, items, fault="unknown")


def _not_polling(case: Waiting) -> _Reason | None:
    """Workers that are there, and whose last word about their polls is that none gets through, or that none is made."""
    alive = _alive(case)
    # One that holds a request need not ask for more.
    mute = [b for b in alive if b.job_take and _is_mute(b.job_take[-1]) and not _holds(b)]
    if not alive or len(mute) < len(alive):
        return None
    last = mute[-1].job_take[-1]
    state = last.text(Key.CHANNEL_STATE) or "no poll"
    text = f"worker {name(mute[-1].worker_id)} is there and does not get through to ask for work ({state})"
    return _Reason("no_poller", text, (event(last, f"the poll for requests: {state}"),), fault="unknown")


def _is_mute(report: Record) -> bool:
    polls = report.integer(Key.CHANNEL_POLLS)
    return report.text(Key.CHANNEL_STATE) in ("failing", "disabled") or polls == 0


# ---------------------------------------------------------------------------------------------------------- too long


def _after_long(case: Waiting, view: PlatformView) -> _Reason:
    """Nothing tells why, and it has waited for very long."""
    busy, now = view.count(Key.PLATFORM_WORKERS_RUNNING), view.now
    if now is not None and busy and not view.count(Key.PLATFORM_WORKERS_IDLE):
        most = f" of at most {view.most}" if view.most else ""
        items = (event(now, f"the platform shows {busy}{most} workers, all RUNNING"),)
        return _Reason("no_capacity", f"all {busy} workers{most} are busy with other requests", items)
    alive = _alive(case)
    if alive and all(_holds(boot) for boot in alive):
        beats = tuple(event(b.heartbeats[-1], f"worker {name(b.worker_id)} holds {_holds(b)}") for b in alive[:3])
        return _Reason("no_capacity", "all workers that are known hold other requests", beats, "possible")
    if alive:
        return _Reason("no_poller", "the endpoint's worker does not ask for work", (), "possible")
    came = any(boot.boot is not None and boot.boot.ended for boot in _boots(case))
    said = "is heard of any more" if came else "has started"
    return _Reason("no_capacity", f"no worker of its endpoint {said}", (), "possible")
