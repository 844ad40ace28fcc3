"""Everything known about one request, joined from spans that come in any order, twice, late or not at all.

`evidence_of` merges `<name>.started` with its ending span (one `Record` per span id), cuts the job's own records into
attempts, and joins the records of the worker (boot, prestart, shutdown, death, heartbeats) to the attempts that they
touch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from collector.diagnosis.beside import NOTHING, Beside
from collector.diagnosis.records import SECOND_NS, Record, by_time, first_told, moment, records_of
from collector.rows import SpanRow
from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName, StopOutcome

_JOB_NAMES: Final = frozenset(
    {SpanName.JOB_CLAIMED, SpanName.JOB_GATED, SpanName.JOB_RUN, SpanName.JOB_DELIVER, SpanName.JOB_STOP}
)
PLATFORM_NAMES: Final = (SpanName.PLATFORM_ENDPOINT, SpanName.PLATFORM_WORKER, SpanName.PLATFORM_LOG)
_JOB_LEVEL_NAMES: Final = frozenset({SpanName.CALLER_REQUEST, SpanName.CALLER_POLL, *PLATFORM_NAMES})


@dataclass(frozen=True, slots=True)
class BootEvidence:
    """The records of one life of one worker process that belong to no request."""

    worker_id: str
    boot_id: str
    endpoint_id: str
    boot: Record | None
    fitness: tuple[Record, ...]
    prestarts: tuple[Record, ...]
    hooks: tuple[Record, ...]
    shutdowns: tuple[Record, ...]
    death: Record | None
    backend_deaths: tuple[Record, ...]
    heartbeats: tuple[Record, ...]
    deaths: tuple[Record, ...]
    """All that tell of its end; `death` is the first. A process ends once, so more than one contradict each other."""
    stop_channel: tuple[Record, ...]
    job_take: tuple[Record, ...]
    records: tuple[Record, ...]

    @property
    def last_ns(self) -> int:
        """The latest time that its records tell of; 0 where there is none."""
        return max((record.last_ns for record in self.records), default=0)

    @property
    def prestart(self) -> Record | None:
        """The prestart phase: the failed one where there are several, else the last."""
        failed = [record for record in self.prestarts if record.failed]
        chosen = failed or list(self.prestarts)
        return chosen[-1] if chosen else None

    def stall(self, since_ns: int) -> Record | None:
        """The newest heartbeat since then that told what a worker at a standstill had printed; None where none did."""
        told = [beat for beat in self.heartbeats if beat.last_ns >= since_ns and beat.tail is not None]
        return told[-1] if told else None

    def hook_of_failure(self) -> Record | None:
        """The hook that failed, or that was running when the phase ended; None where none is known."""
        failed = [hook for hook in self.hooks if hook.failed]
        chosen = failed or [hook for hook in self.hooks if not hook.ended]
        return chosen[-1] if chosen else None


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """One claim of the request by one worker boot, with what that boot told. `claim` is None where it was lost."""

    number: int
    worker_id: str
    boot_id: str
    claim: Record | None
    gated: Record | None
    run: Record | None
    deliveries: tuple[Record, ...]
    stops: tuple[Record, ...]
    worker: BootEvidence
    shutdown: Record | None
    death: Record | None
    backend_deaths: tuple[Record, ...]
    records: tuple[Record, ...]
    logs: tuple[Record, ...] = ()
    """What its code logged over OTLP. Not among `records`."""

    @property
    def start_ns(self) -> int:
        """When it was claimed, or the first that is known of it."""
        return self.claim.start_ns if self.claim else min((r.start_ns for r in self.records), default=0)

    @property
    def claimed_ns(self) -> int:
        """When the worker held the request: the claim's end (its take may be told as a span), else `start_ns`."""
        return self.claim.last_ns if self.claim else self.start_ns

    @property
    def delivered(self) -> Record | None:
        """The try to hand the result in that was accepted, or None."""
        return next((record for record in self.deliveries if accepted(record)), None)

    @property
    def heard(self) -> datetime:
        """When this attempt or its worker was last heard of, on the collector's clock as far as that can be told."""
        return heard_of((*self.records, *self.logs, *self.worker.records))

    @property
    def arrived(self) -> datetime | None:
        """When the newest record of this attempt or its worker arrived. None where that is not known."""
        newest_ms = max((r.arrived_ms for r in (*self.records, *self.logs, *self.worker.records)), default=0)
        return moment(newest_ms * 1_000_000) if newest_ms > 0 else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known about one request at `now`."""

    job_id: str
    now: datetime
    endpoint_id: str | None
    attempts: tuple[AttemptEvidence, ...]
    requests: tuple[Record, ...]
    polls: tuple[Record, ...]
    platform: tuple[Record, ...]
    stray_stops: tuple[Record, ...]
    boots: tuple[BootEvidence, ...]
    """Boots of the endpoint that never held this request; they tell why nobody claims it."""
    records: tuple[Record, ...]
    beside: Beside = NOTHING
    """What happened to others. Read last: it sharpens what the request's own records tell."""

    @property
    def queued_ns(self) -> int | None:
        """When the caller sent the request, or None where no caller told."""
        return min((record.start_ns for record in self.requests), default=None)


def accepted(delivery: Record) -> bool:
    """Whether the platform took the result. A 2xx is proof; without a status code an ended try without error is."""
    status = delivery.integer(Key.HTTP_STATUS)
    if status is not None:
        return 200 <= status < 300
    return delivery.ended and delivery.status == "ok"


def heard_of(records: Iterable[Record]) -> datetime:
    """When the sender of these records was last heard of.

    The sender's own times count, unless its clock is visibly off: ahead of the arrival, or behind it by a lag that
    stays the same over many arrivals (a live sender with a slow clock, not a backlog handed in all at once).
    """
    told = [(r.last_ns, r.arrived_ms * 1_000_000 if r.arrived_ms > 0 else None) for r in records]
    newest = max((at for at, _ in told), default=0)
    arrivals = [(arrived, at) for at, arrived in told if arrived is not None]
    if not arrivals:
        return moment(newest)
    last_arrival, last_told = max(arrivals)
    first_arrival, earliest_told = min(arrivals)
    spread = last_told - earliest_told
    same_lag = abs((last_arrival - first_arrival) - spread) <= 10 * SECOND_NS
    if spread >= 20 * SECOND_NS and same_lag:
        return moment(last_arrival)
    return moment(min(newest, last_arrival))


def evidence_of(job_id: str, spans: Sequence[SpanRow], now: datetime, beside: Beside = NOTHING) -> Evidence:
    """Evidence about `job_id` from its own spans and those of its workers' boots, at `now` (aware UTC)."""
    records = records_of(spans)
    own = [r for r in records if r.job_id == job_id]
    workers = _workers(records)
    boots = _boots([r for r in records if not r.job_id], workers)
    logs = [r for r in own if r.name == SpanName.LOG_RECORD]
    attempts, strays = _attempts(job_id, [r for r in own if r.name != SpanName.LOG_RECORD], boots, workers)
    attempts = with_logs(attempts, logs)
    held = {(attempt.worker_id, attempt.boot_id) for attempt in attempts}
    kept = tuple(r for r in records if r.job_id in ("", job_id))
    return Evidence(
        job_id=job_id,
        now=now,
        endpoint_id=_endpoint(own, attempts, records),
        attempts=attempts,
        requests=tuple(r for r in own if r.name == SpanName.CALLER_REQUEST),
        polls=tuple(r for r in own if r.name == SpanName.CALLER_POLL),
        platform=tuple(r for r in kept if r.name in PLATFORM_NAMES),
        stray_stops=strays,
        boots=tuple(boot for key, boot in sorted(boots.items()) if key not in held),
        records=kept,
        beside=beside,
    )


def _endpoint(own: Sequence[Record], attempts: Sequence[AttemptEvidence], records: Sequence[Record]) -> str | None:
    newest = [r.endpoint_id for attempt in reversed(attempts) for r in (*attempt.records, *attempt.worker.records)]
    return first_told((*newest, *(r.endpoint_id for r in own), *(r.endpoint_id for r in records))) or None


def with_logs(attempts: Sequence[AttemptEvidence], logs: Sequence[Record]) -> tuple[AttemptEvidence, ...]:
    """Attempts with the log records of each. An SDK of the user's own knows no boot: then time tells whose it is."""
    if not attempts or not logs:
        return tuple(attempts)
    starts = [attempt.start_ns for attempt in attempts]
    boots = {attempt.boot_id: place for place, attempt in enumerate(attempts) if attempt.boot_id}
    by_place: dict[int, list[Record]] = {}
    for log in logs:
        place = max(bisect_right(starts, log.start_ns) - 1, 0)
        if log.boot_id in boots and attempts[place].boot_id != log.boot_id:
            place = boots[log.boot_id]
        by_place.setdefault(place, []).append(log)
    return tuple(
        replace(attempt, logs=tuple(told), run=_with_exceptions(attempt.run, told))
        if (told := by_place.get(place))
        else attempt
        for place, attempt in enumerate(attempts)
    )


def _with_exceptions(run: Record | None, logs: Sequence[Record]) -> Record | None:
    """A failed run that told no exception of its own, with those that were logged until its end."""
    if run is None or not run.failed or run.flag(Key.HANDLER_RETURNED_ERROR):
        return run
    if any(event.name == EXCEPTION_EVENT for event in run.events):
        return run
    logged = [event for log in logs if log.start_ns <= run.last_ns + SECOND_NS for event in log.events]
    return replace(run, events=(*run.events, *logged))


# --------------------------------------------------------------------------------------------------------- boots

BootKey = tuple[str, str]


def _boots(records: Sequence[Record], workers: dict[str, BootKey]) -> dict[BootKey, BootEvidence]:
    """Worker records by (worker id, boot id)."""
    by_boot: dict[BootKey, list[Record]] = {}
    for record in records:
        if record.name not in _JOB_LEVEL_NAMES and (record.worker_id or record.boot_id):
            by_boot.setdefault(workers.get(record.boot_id, (record.worker_id, record.boot_id)), []).append(record)
    return {key: _boot(key, group) for key, group in by_boot.items()}


def _workers(records: Sequence[Record]) -> dict[str, BootKey]:
    """The boot ids of which exactly one worker id is told: records that lack the worker id belong there too."""
    told: dict[str, set[str]] = {}
    for record in records:
        if record.boot_id and record.worker_id:
            told.setdefault(record.boot_id, set()).add(record.worker_id)
    return {boot_id: (min(ids), boot_id) for boot_id, ids in told.items() if len(ids) == 1}


def _boot(key: BootKey, records: Sequence[Record]) -> BootEvidence:
    def named(*names: str) -> tuple[Record, ...]:
        return tuple(r for r in records if r.name in names)

    boots, deaths = named(SpanName.BOOT), named(SpanName.DEATH)
    return BootEvidence(
        worker_id=key[0],
        boot_id=key[1],
        endpoint_id=first_told(r.endpoint_id for r in records),
        boot=boots[-1] if boots else None,
        fitness=named(SpanName.FITNESS_CHECK),
        prestarts=named(SpanName.PRESTART),
        hooks=named(SpanName.PRESTART_HOOK),
        shutdowns=named(SpanName.SHUTDOWN),
        death=deaths[0] if deaths else None,
        deaths=deaths,
        backend_deaths=named(SpanName.BACKEND_DEATH),
        heartbeats=named(SpanName.HEARTBEAT),
        stop_channel=named(SpanName.STOP_CHANNEL),
        job_take=named(SpanName.JOB_TAKE),
        records=tuple(records),
    )


# ------------------------------------------------------------------------------------------------------ attempts


def _attempts(
    job_id: str, own: Sequence[Record], boots: dict[BootKey, BootEvidence], workers: dict[str, BootKey]
) -> tuple[tuple[AttemptEvidence, ...], tuple[Record, ...]]:
    """Attempts in the order of their claims, and stop signals that reached a worker which did not hold the job."""
    groups: list[tuple[BootKey, list[Record]]] = []
    strays: list[Record] = []
    for key, records in _by_boot(own, workers).items():
        if all(_is_stray_stop(r) for r in records):
            strays += records
        elif any(r.name in _JOB_NAMES for r in records):
            groups += ((key, part) for part in _split(records))
    named = [key for key, boot in boots.items() if _in_hand(job_id, boot) and key not in {key for key, _ in groups}]
    groups += ((key, []) for key in named)  # the claim itself was lost, the ledger of the dead worker has it
    made = [_attempt(key, records, boots.get(key) or _boot(key, ()), job_id) for key, records in groups]
    made.sort(key=lambda attempt: (attempt.start_ns, attempt.worker_id, attempt.boot_id))
    numbered = tuple(replace(attempt, number=number) for number, attempt in enumerate(made, 1))
    return numbered, tuple(sorted(strays, key=by_time))


def _is_stray_stop(record: Record) -> bool:
    return record.name == SpanName.JOB_STOP and record.text(Key.STOP_OUTCOME) == StopOutcome.UNKNOWN_JOB


def _in_hand(job_id: str, boot: BootEvidence) -> bool:
    deaths = () if boot.death is None else (boot.death,)
    return any(job_id in r.texts(Key.DEATH_JOBS_IN_HAND) for r in deaths) or any(
        job_id in r.texts(Key.SHUTDOWN_JOBS_IN_HAND) for r in boot.shutdowns
    )


def _by_boot(own: Sequence[Record], workers: dict[str, BootKey]) -> dict[BootKey, list[Record]]:
    """The job's worker-side records by boot. Spans of other SDKs carry no boot id: trace, then worker, tell theirs."""
    by_boot: dict[BootKey, list[Record]] = {}
    homeless: list[Record] = []
    traces: dict[str, BootKey] = {}
    for record in own:
        if record.name in _JOB_LEVEL_NAMES:
            continue
        if not record.boot_id:
            homeless.append(record)
            continue
        key = workers.get(record.boot_id, (record.worker_id, record.boot_id))
        by_boot.setdefault(key, []).append(record)
        traces.setdefault(record.trace_id, key)
    known = sorted(by_boot)
    for record in homeless:
        same = [key for key in known if record.worker_id and key[0] == record.worker_id]
        home = traces.get(record.trace_id) or (same[-1] if same else (record.worker_id, ""))
        by_boot.setdefault(home, []).append(record)
    for records in by_boot.values():
        records.sort(key=by_time)
    return by_boot


def _split(records: Sequence[Record]) -> list[list[Record]]:
    """Records of one boot (in the order of time) cut where the job was claimed again after a terminal state."""
    ends = sorted(r.last_ns for r in records if _terminal(r))
    starts: list[Record] = []
    for claim in (r for r in records if r.name == SpanName.JOB_CLAIMED):
        if not starts or _any_between(ends, starts[-1].start_ns, claim.start_ns):
            starts.append(claim)
    if len(starts) < 2:
        return [list(records)]
    parts: list[list[Record]] = [[] for _ in starts]
    times = [claim.start_ns for claim in starts]
    traces = {claim.trace_id: index for index, claim in enumerate(starts) if claim.trace_id}
    shared = len(traces) < len(starts)  # all attempts in one trace: only time can tell
    for record in records:
        place = max(bisect_right(times, record.start_ns) - 1, 0)
        parts[place if shared else traces.get(record.trace_id, place)].append(record)
    return parts


def _any_between(ordered: Sequence[int], low: int, high: int) -> bool:
    return bisect_left(ordered, low) < bisect_right(ordered, high)


def _terminal(record: Record) -> bool:
    """Whether the job left the worker's hands, or its handler ended, with this record."""
    if record.name == SpanName.JOB_DELIVER:
        return accepted(record) or record.flag(Key.DELIVER_LAST) is True
    if record.name == SpanName.JOB_STOP:
        return record.text(Key.STOP_OUTCOME) == StopOutcome.STOPPED
    return record.name == SpanName.JOB_RUN and record.ended


def _last(records: Sequence[Record], name: str) -> Record | None:
    found = [r for r in records if r.name == name]
    return found[-1] if found else None


def _attempt(key: BootKey, records: Sequence[Record], boot: BootEvidence, job_id: str) -> AttemptEvidence:
    claims = [r for r in records if r.name == SpanName.JOB_CLAIMED]
    claim = claims[0] if claims else None
    start = claim.start_ns if claim else min((r.start_ns for r in records), default=0)
    end = _left_hands_ns(records)

    def touches(record: Record, in_hand: str) -> bool:
        if job_id in record.texts(in_hand):
            return True
        return record.last_ns >= start and (end is None or record.start_ns <= end)

    shutdowns = [r for r in boot.shutdowns if touches(r, Key.SHUTDOWN_JOBS_IN_HAND) or _began_before(r, start)]
    deaths = [r for r in boot.deaths if touches(r, Key.DEATH_JOBS_IN_HAND)]
    naming = [r for r in deaths if job_id in r.texts(Key.DEATH_JOBS_IN_HAND)]
    death = next(iter(naming or deaths), None)
    return AttemptEvidence(
        number=0,
        worker_id=key[0],
        boot_id=key[1],
        claim=claim,
        gated=_last(records, SpanName.JOB_GATED),
        run=_last(records, SpanName.JOB_RUN),
        deliveries=tuple(r for r in records if r.name == SpanName.JOB_DELIVER),
        stops=tuple(r for r in records if r.name == SpanName.JOB_STOP),
        worker=boot,
        shutdown=shutdowns[0] if shutdowns else None,
        death=death,
        backend_deaths=tuple(r for r in boot.backend_deaths if touches(r, Key.DEATH_JOBS_IN_HAND)),
        records=tuple(records),
    )


def _began_before(shutdown: Record, start_ns: int) -> bool:
    """A shutdown is for good: a claim that comes after its beginning comes into a worker that is leaving."""
    return shutdown.start_ns <= start_ns


def _left_hands_ns(records: Sequence[Record]) -> int | None:
    """When the job left the worker's hands for good, or None while it may be in them."""
    ends = [r.last_ns for r in records if r.name == SpanName.JOB_DELIVER and _terminal(r)]
    stops = [
        r.last_ns for r in records if r.name == SpanName.JOB_STOP and r.text(Key.STOP_OUTCOME) == StopOutcome.STOPPED
    ]
    return min(ends + stops, default=None)
