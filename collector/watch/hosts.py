"""Hosts on which requests fail far more often than on the others: one bad machine looks like bad luck everywhere.

A host is compared with the other hosts of the same endpoints, so that an endpoint that fails everywhere makes no host
bad. What is left of chance: the Poisson tail of the failures that the others' rate would bring, over all hosts at once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from collector.clickhouse import Database
from collector.diagnosis.answer import EvidenceItem
from collector.queries.stored import NO_FAILURE, ms_of, time_of_ms
from collector.watch.ledger import Condition

WINDOW: Final = timedelta(hours=6)
EVERY: Final = timedelta(seconds=60)
"""How often hosts are compared."""
FAILURES: Final = 5
RATIO: Final = 3.0
CHANCE: Final = 2e-4
"""Most often that chance alone may look like this, of all hosts together; hosts are compared again and again."""
HOSTS_MAX: Final = 20_000
NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Tally:
    """How requests of one endpoint ended on one host."""

    tenant: str
    endpoint_id: str
    host: str
    bad: int
    total: int
    since_ms: int  # the first that failed; 0 where none did
    worker_ids: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()


# What the caller sent is no host's doing: such requests count neither way.
_TALLIES = """
SELECT tenant, endpoint, on_host, countIf(is_bad) AS bad, count() AS total, minIf(written_ms, is_bad) AS since_ms,
       groupUniqArrayArray({named:UInt32})(workers) AS worker_ids,
       groupArrayIf({named:UInt32})(job_id, is_bad) AS job_ids
FROM (
    SELECT tenant, job_id, argMax(jobs.endpoint_id, version) AS endpoint, argMax(host, version) AS on_host,
           argMax(jobs.worker_ids, version) AS workers, argMax(jobs.is_final, version) AS ended,
           argMax(jobs.code, version) NOT IN {fine:Array(String)} AS is_bad, argMax(jobs.fault, version) AS side,
           argMax(jobs.confidence, version) AS sure, max(jobs.updated_ms) AS written_ms
    FROM jobs
    WHERE jobs.updated_ms >= {since_ms:Int64}
    GROUP BY tenant, job_id
    HAVING ended AND on_host != '' AND side != 'caller_input' AND sure IN ('certain', 'likely')
)
GROUP BY tenant, endpoint, on_host
"""


async def tallies(db: Database, now: datetime) -> list[Tally]:
    """How requests that ended in the last six hours ended, by endpoint and host."""
    parameters = {"since_ms": ms_of(now - WINDOW), "named": NAMED, "fine": sorted(NO_FAILURE)}
    return [
        Tally(
            tenant=str(row["tenant"]),
            endpoint_id=str(row["endpoint"]),
            host=str(row["on_host"]),
            bad=int(row["bad"]),
            total=int(row["total"]),
            since_ms=int(row["since_ms"]),
            worker_ids=tuple(str(worker) for worker in row["worker_ids"]),
            job_ids=tuple(str(job) for job in row["job_ids"]),
        )
        for row in await db.query(_TALLIES, parameters, max_rows=HOSTS_MAX)
    ]


def bad_hosts(counted: Iterable[Tally]) -> list[Condition]:
    """A finding for each host that fails more often than chance can explain."""
    by_tenant: dict[str, list[Tally]] = defaultdict(list)
    for one in counted:
        by_tenant[one.tenant].append(one)
    return [found for tenant in sorted(by_tenant) for found in _of_tenant(by_tenant[tenant])]


def _of_tenant(counted: Sequence[Tally]) -> Iterable[Condition]:
    everywhere: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    by_host: dict[str, list[Tally]] = defaultdict(list)
    for one in counted:
        bad, total = everywhere[one.endpoint_id]
        everywhere[one.endpoint_id] = bad + one.bad, total + one.total
        by_host[one.host].append(one)
    for host, here in sorted(by_host.items()):
        others = [(one, *_elsewhere(one, everywhere[one.endpoint_id])) for one in here]
        compared = [(one, bad, total) for one, bad, total in others if total]
        failed = sum(one.bad for one, _, _ in compared)
        # One failure more than there was elsewhere: of a few good requests nobody can tell a rate.
        expected = sum(one.total * (bad + 1) / (total + 2) for one, bad, total in compared)
        if failed < FAILURES or failed < RATIO * expected or tail(failed, expected) * len(by_host) > CHANCE:
            continue
        yield _condition(host, [one for one, _, _ in compared], sum(bad for _, bad, _ in compared),
                         sum(total for _, _, total in compared))  # fmt: skip


def _elsewhere(one: Tally, all_of_it: tuple[int, int]) -> tuple[int, int]:
    return all_of_it[0] - one.bad, all_of_it[1] - one.total


def tail(count: int, expected: float) -> float:
    """The chance of so many or more where so many are expected (Poisson). `expected` is above 0."""
    term = math.exp(count * math.log(expected) - expected - math.lgamma(count + 1))
    total, following = 0.0, count
    while term > total * 1e-12:
        total += term
        following += 1
        term *= expected / following
    return min(total, 1.0)


def _condition(host: str, here: Sequence[Tally], bad_elsewhere: int, elsewhere: int) -> Condition:
    bad, total = sum(one.bad for one in here), sum(one.total for one in here)
    since = time_of_ms(min(one.since_ms for one in here if one.bad))
    endpoints = sorted({one.endpoint_id for one in here if one.bad})
    hours = WINDOW // timedelta(hours=1)
    text = f"{bad_elsewhere} of {elsewhere} failed on the other hosts of the same endpoints"
    return Condition(
        tenant=here[0].tenant,
        code="bad_host",
        subject=host,
        severity="error",
        since=since,
        sentence=f"{bad} of {total} requests on host {host} failed in the last {hours} h; {text}.",
        endpoint_id=endpoints[0] if len(endpoints) == 1 else "",
        worker_ids=tuple(worker for one in here for worker in one.worker_ids),
        job_ids=tuple(job for one in here for job in one.job_ids),
        evidence=(EvidenceItem(source="collector", what="event", text=text, at=since, span_id=None),),
        size=bad,
    )
