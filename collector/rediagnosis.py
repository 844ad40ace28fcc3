"""Diagnoses stored requests again, all of them: lists, groups and counts then say what today's rules say.

A page diagnoses its request anew each time it is read. What lists read was written when the request was last diagnosed,
by the rules of that day; a verdict that differs now becomes the next revision, and its history says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from collector.clickhouse import Database
from collector.digest import JOBS_A_ROUND, Digest
from collector.queries import waiting
from collector.queries.stored import INT64_MAX, ns_of
from collector.settings import Settings

_FIRST: Final = ("", -INT64_MAX, "")


@dataclass(frozen=True, slots=True)
class Rediagnosed:
    """What was done. `revised`: verdicts that differ now; `failed`: requests on which a rule tripped, a bug of ours."""

    diagnosed: int = 0
    revised: int = 0
    failed: int = 0


async def rediagnose(
    db: Database,
    settings: Settings,
    since: datetime,
    now: datetime,
    *,
    told: Callable[[Rediagnosed], None] | None = None,
) -> Rediagnosed:
    """All requests that began since then; `told` is called after each few hundred.

    Those whose records are past retention keep their verdict. Safe beside a running server, and to be ended at any
    time: what was written stays. Raises StoreUnavailable.
    """
    digest, done, after = Digest(behind=False), Rediagnosed(), _FIRST
    while jobs := await waiting.diagnosed_jobs(db, ns_of(since), after=after, limit=JOBS_A_ROUND):
        digest.again = dict.fromkeys(((tenant, job_id) for tenant, _, job_id in jobs), now)
        one = await digest.round(db, settings, now, open_too=False)
        done = Rediagnosed(done.diagnosed + one.diagnosed, done.revised + one.revised, done.failed + one.failed)
        if told is not None:
            told(done)
        after = jobs[-1]
    return done
