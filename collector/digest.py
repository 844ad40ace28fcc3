"""Keeps the tables `jobs` and `verdict_history` true: diagnoses what new records touch, and open requests again, so
that silence is noticed.

What waits is kept in bounded sets. Nothing is lost when they are full, or with the process: the store itself tells
which requests have records that no diagnosis has seen, and is asked at the start and after every overflow.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import chain, islice
from typing import Final

from collector.answers import Diagnosed, FirstLook, diagnosed, first_look, job_row, looked_beside, verdict_row
from collector.clickhouse import Database
from collector.diagnosis.beside import NOTHING, Beside
from collector.errors import StoreRefused, StoreUnavailable
from collector.queries import waiting
from collector.queries.job import JobSpans, spans_of_jobs
from collector.queries.jobs import StoredJob, stored_jobs
from collector.queries.pages import in_questions
from collector.queries.stored import JobRow, LeftPlace, VerdictRow, ms_of
from collector.settings import Settings

log = logging.getLogger(__name__)

WAITING_MAX: Final = 50_000
"""Requests, and boots, that wait in memory; more are found by asking the store."""
JOBS_A_ROUND: Final = 500
JOBS_A_QUESTION: Final = 50
"""Measured with 2,000 requests on the embedded engine: 3.5 ms of processor each at 50 a question, 55 ms each alone."""
AT_ONCE: Final = 2
BOOTS_A_QUERY: Final = 200
JOBS_OF_BOOTS_MAX: Final = 5_000
GATHER_SECONDS: Final = 0.2
"""Records of one request come in several bodies close together; a diagnosis waits this long for the next."""
REFRESH: Final = timedelta(seconds=60)
"""Age at which the row of an open request is written again, so that the list does not tell old durations."""
CATCH_UP_SECONDS: Final = 600.0
"""How often the store is asked for what another collector left undone."""
SET_ASIDE: Final = timedelta(seconds=CATCH_UP_SECONDS)
"""How long a request is left alone that the store could not read in time while it answered others: each try would hold
up all others for as long as a query may take. Catching up finds it again."""
LATE_A_ROUND: Final = 3
"""Requests set aside in one round; with more of them it is the store that is slow, and the round is tried again."""
LOOK_AGAIN: Final = timedelta(seconds=60)
"""After its first diagnosis a failed request is diagnosed once more: by then those that failed beside it are stored."""
CATCH_UP_WINDOW_MS: Final = 3_600_000
OVERLAP_MS: Final = 60_000

Job = tuple[str, str]  # tenant, job id
Boot = tuple[str, str, str]  # tenant, worker id, boot id


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did. `failed`: requests whose diagnosis raised, a bug of ours; they are logged and left."""

    diagnosed: int = 0
    written: int = 0
    revised: int = 0
    failed: int = 0


@dataclass(slots=True)
class Digest:
    """The requests that wait for a diagnosis. One per app: its `touched` is told of stored records."""

    most_waiting: int = WAITING_MAX
    jobs: dict[Job, None] = field(default_factory=dict)  # in order of arrival
    boots: dict[Boot, None] = field(default_factory=dict)
    behind: bool = True  # the store must be asked for what waits
    failures: int = 0
    set_aside: dict[Job, datetime] = field(default_factory=dict)  # until when
    again: dict[Job, datetime] = field(default_factory=dict)  # when; these are written whatever they say
    _after: Job = ("", "")
    _late: int = 0  # set aside in this round
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def touched(self, tenant: str, job_ids: Collection[str], worker_boots: Collection[tuple[str, str]]) -> None:
        """Records of these requests and (worker id, boot id) pairs were stored. Returns at once."""
        for job_id in job_ids:
            self._wait_for(self.jobs, (tenant, job_id))
        for worker_id, boot_id in worker_boots:
            self._wait_for(self.boots, (tenant, worker_id, boot_id))
        self._wake.set()

    def _wait_for(self, queue: dict[Job, None] | dict[Boot, None], key: Job | Boot) -> None:
        if len(queue) < self.most_waiting:
            queue[key] = None  # type: ignore[index]  # each queue is only ever given its own keys
        elif key not in queue:
            self.behind = True

    async def keep_digesting(self, db: Database, settings: Settings) -> None:
        """Rounds for ever: soon after new records, and every `digest_seconds`. Store trouble ends it, and whoever runs
        it starts it again: what waited is still waiting."""
        loop = asyncio.get_running_loop()
        next_open = next_catch_up = loop.time()
        while True:
            if loop.time() >= next_catch_up:
                self.behind, next_catch_up = True, loop.time() + CATCH_UP_SECONDS
            open_too = loop.time() >= next_open
            await self.round(db, settings, datetime.now(timezone.utc), open_too=open_too)
            if open_too:
                next_open = loop.time() + settings.digest_seconds
            if not self.jobs and not self.boots:
                await self._next_reason(next_open - loop.time())

    async def _next_reason(self, seconds: float) -> None:
        """Until records arrive (and a little longer, for their siblings), but no longer than `seconds`."""
        try:
            await asyncio.wait_for(self._wake.wait(), max(seconds, 0.0))
        except asyncio.TimeoutError:
            return
        await asyncio.sleep(GATHER_SECONDS)

    async def round(self, db: Database, settings: Settings, now: datetime, *, open_too: bool = True) -> Round:
        """One round at `now`: what waits, at most 500 requests of it, and as many open ones.

        Raises StoreUnavailable with everything still waiting that was not written.
        """
        self._wake.clear()
        self._late = 0
        since_ms = ms_of(now - timedelta(days=settings.retention_days))
        if self.behind:
            await self._catch_up(db, since_ms)
        await self._expand_boots(db, since_ms)
        jobs = dict.fromkeys(list(self.jobs)[:JOBS_A_ROUND])
        if open_too:
            jobs.update(dict.fromkeys(await self._open(db, since_ms)))
        due = dict(islice((job for job in self.again.items() if job[1] <= now), JOBS_A_ROUND))
        jobs.update(dict.fromkeys(due))
        self.set_aside = {job: until for job, until in self.set_aside.items() if until > now}
        for job in jobs:  # taken out now: records that arrive during the diagnosis make it wait again
            self.jobs.pop(job, None)
            self.again.pop(job, None)
        try:
            return await self._digest(db, [job for job in jobs if job not in self.set_aside], now, due)
        except BaseException:
            self.jobs.update(jobs)
            self.again.update(due)
            raise

    async def _catch_up(self, db: Database, since_ms: int) -> None:
        """Ask the store for requests and boots with records that arrived after their last diagnosis."""
        last_ms = await waiting.last_digested_ms(db)
        window_ms = max(since_ms, last_ms - CATCH_UP_WINDOW_MS)
        found = await waiting.undigested_jobs(db, window_ms, overlap_ms=OVERLAP_MS, limit=self.most_waiting)
        heard = await waiting.boots_heard_of(db, max(since_ms, last_ms - OVERLAP_MS), limit=self.most_waiting)
        self.behind = sum(missed for _, _, missed in found) >= self.most_waiting
        self.jobs.update(((tenant, job_id), None) for tenant, job_id, _ in found)
        self.boots.update(dict.fromkeys(heard))

    async def _expand_boots(self, db: Database, since_ms: int) -> None:
        """Turn boots that were heard of into the requests that their records can change."""
        waiting_boots = list(self.boots)[:BOOTS_A_QUERY]
        longer = [max(worker, boot, key=len) for _, worker, boot in waiting_boots]
        boots = waiting_boots[: len(next(in_questions(longer, BOOTS_A_QUERY), []))]
        for tenant in dict.fromkeys(tenant for tenant, _, _ in boots):
            workers = [worker for owner, worker, _ in boots if owner == tenant]
            ids = [boot for owner, _, boot in boots if owner == tenant]
            found = await waiting.jobs_of_boots(db, tenant, ids, since_ms, limit=JOBS_OF_BOOTS_MAX)
            found += await waiting.jobs_in_hand(db, tenant, workers, ids, limit=JOBS_OF_BOOTS_MAX)
            for job_id in found:
                self._wait_for(self.jobs, (tenant, job_id))
        for boot in boots:
            self.boots.pop(boot, None)

    async def _open(self, db: Database, since_ms: int) -> list[Job]:
        """The next open requests, going round: with more than a round can do, each comes up in turn."""
        found = await waiting.open_jobs(db, since_ms, after=self._after, limit=JOBS_A_ROUND)
        self._after = found[-1] if len(found) == JOBS_A_ROUND else ("", "")
        return found

    async def _digest(self, db: Database, jobs: Sequence[Job], now: datetime, due: Collection[Job]) -> Round:
        """Diagnose these and write what changed; those that are due to be looked at again in any case."""
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(tenant: str, job_ids: Sequence[str]) -> list[Outcome]:
            async with at_once:
                return await self._outcomes(db, tenant, job_ids, now, due)

        answered = await asyncio.gather(*(one(*batch) for batch in _batches(jobs)))
        outcomes = list(chain.from_iterable(answered))
        rows = [outcome.row for outcome in outcomes if outcome.row]
        revisions = [outcome.revision for outcome in outcomes if outcome.revision]
        # The history first: after a kill in between, the next diagnosis makes the same revision again. The left places
        # before the rows: a request must not be counted twice, and catching up finds it where its row was not written.
        await self._write(db, "verdict_history", revisions)
        await self._write(db, "job_times", [outcome.left for outcome in outcomes if outcome.left])
        await self._write(db, "jobs", rows)
        self._look_again(rows, now, due)
        return Round(
            diagnosed=len(outcomes),
            written=len(rows),
            revised=len(revisions),
            failed=sum(outcome.failed for outcome in outcomes),
        )

    def _look_again(self, rows: Sequence[JobRow], now: datetime, but: Collection[Job]) -> None:
        for row in rows:
            job = (row.tenant, row.job_id)
            if row.is_final and row.fingerprint and job not in but and len(self.again) < self.most_waiting:
                self.again[job] = now + LOOK_AGAIN

    async def _write(self, db: Database, table: str, rows: Sequence[JobRow | VerdictRow | LeftPlace]) -> None:
        """Insert; where the store refuses a value, all rows but the one that holds it."""
        try:
            await db.insert(table, rows, token=uuid.uuid4().hex)
        except StoreRefused:
            if len(rows) == 1:
                self._failed(rows[0].tenant, rows[0].job_id)
                return
            for row in rows:
                await self._write(db, table, [row])

    async def _outcomes(
        self, db: Database, tenant: str, job_ids: Sequence[str], now: datetime, due: Collection[Job]
    ) -> list[Outcome]:
        """Diagnose requests of one tenant. A question that the store refuses, or answers too late while it answers
        others in time, is asked again for each alone."""
        try:
            found, previous = await asyncio.gather(spans_of_jobs(db, tenant, job_ids), stored_jobs(db, tenant, job_ids))
        except (StoreRefused, StoreUnavailable) as error:
            late = isinstance(error, StoreUnavailable)
            if late:
                await db.query("SELECT 1")  # raises where it is the store that is away, and not this question
            if len(job_ids) > 1:
                return [one for job_id in job_ids for one in await self._outcomes(db, tenant, [job_id], now, due)]
            if late:
                self._set_aside((tenant, job_ids[0]), now + SET_ASIDE, error)
            self._failed(tenant, job_ids[0])
            return [Outcome(failed=True)]
        looks = [await asyncio.to_thread(self._first_look, tenant, job_id, found[job_id], now) for job_id in job_ids]
        around = await self._beside(db, tenant, [look for look in looks if isinstance(look, FirstLook)], now)
        return [
            await asyncio.to_thread(
                self._outcome,
                tenant,
                look,
                previous.get(look.job_id),
                around.get(look.job_id, NOTHING),
                again=(tenant, look.job_id) in due,
            )
            if isinstance(look, FirstLook)
            else look
            for look in looks
        ]

    async def _beside(self, db: Database, tenant: str, looks: Sequence[FirstLook], now: datetime) -> dict[str, Beside]:
        try:
            return await looked_beside(db, tenant, looks, now)
        except Exception:  # noqa: BLE001  what happened to others must not keep a request from its verdict
            self._failed(tenant, looks[0].job_id)
            return {}

    def _first_look(self, tenant: str, job_id: str, found: JobSpans, now: datetime) -> FirstLook | Outcome:
        if not found.spans:  # past retention, or named by a hostile ledger: what is known stays
            return Outcome()
        try:
            return first_look(job_id, found, now)
        except Exception:  # noqa: BLE001  one request that a rule trips over must not keep all others from theirs
            self._failed(tenant, job_id)
            return Outcome(failed=True)

    def _set_aside(self, job: Job, until: datetime, error: Exception) -> None:
        if len(self.set_aside) < self.most_waiting:
            self.set_aside[job] = until
        self._late += 1
        if self._late >= LATE_A_ROUND:
            raise error

    def _outcome(
        self, tenant: str, look: FirstLook, previous: StoredJob | None, around: Beside, *, again: bool
    ) -> Outcome:
        now = look.evidence.now
        try:
            result = diagnosed(tenant, look, previous, around)
            if not again and not _worth_writing(previous, result, look.found, now):
                return Outcome()
            row = job_row(result, look.found, previous, now)
            return Outcome(
                row=row,
                revision=verdict_row(result, previous, now) if result.why else None,
                left=_left_place(row, previous),
            )
        except Exception:  # noqa: BLE001  as above
            self._failed(tenant, look.job_id)
            return Outcome(failed=True)

    def _failed(self, tenant: str, job_id: str) -> None:
        """Count, and log with the error at hand."""
        self.failures += 1
        log.exception("a request of tenant %s cannot be diagnosed: %r", tenant, job_id)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one diagnosis leaves to be written; nothing where nothing changed."""

    row: JobRow | None = None
    revision: VerdictRow | None = None
    left: LeftPlace | None = None
    failed: bool = False


def _left_place(row: JobRow, previous: StoredJob | None) -> LeftPlace | None:
    """The place in the order of time that a request leaves: an earlier record of it came."""
    if previous is None or previous.first_ns == row.first_ns:
        return None
    return LeftPlace(row.tenant, previous.first_ns, row.job_id, row.version, row.updated_ms)


def _worth_writing(previous: StoredJob | None, result: Diagnosed, found: JobSpans, now: datetime) -> bool:
    """Whether the stored row no longer tells the truth: anything but the passing of a few seconds."""
    if previous is None or result.why or found.newest_arrival_ms > previous.digested_ms:
        return True
    told = (previous.state, previous.confidence, previous.fingerprint)
    if told != (result.answer.state, result.answer.verdict.confidence, result.fingerprint):
        return True
    return not result.answer.final and now - previous.updated_at >= REFRESH


def _batches(jobs: Sequence[Job]) -> Iterator[tuple[str, list[str]]]:
    """Requests of one tenant each, a question's worth at a time."""
    by_tenant: dict[str, list[str]] = {}
    for tenant, job_id in jobs:
        by_tenant.setdefault(tenant, []).append(job_id)
    for tenant, job_ids in by_tenant.items():
        for asked in in_questions(job_ids, JOBS_A_QUESTION):
            yield tenant, asked
