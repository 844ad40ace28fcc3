"""What rules are about, read from the store: findings that are open, and how requests ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from collector.alerts.rules import Rule
from collector.clickhouse import Database
from collector.diagnosis.answer import EvidenceItem
from collector.queries.stored import NO_FAILURE, ms_of, ns_of, time_of_ms, time_of_ns
from collector.watch.ledger import FindingRow

NAMED: Final = 20
"""Most requests and workers that one measure names."""
ROWS_MAX: Final = 10_000
BAD_STATES: Final = frozenset({"failed", "lost", "stalled"})


@dataclass(frozen=True, slots=True)
class Measured:
    """One value of a rule's measure, for one group of one tenant. `guessed`: some of it follows from silence alone."""

    tenant: str
    group: str
    value: float
    size: int
    since: datetime
    code: str
    sentence: str
    endpoint_id: str = ""
    worker_ids: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    evidence: tuple[EvidenceItem, ...] = ()
    guessed: bool = False


def of_findings(rule: Rule, open_findings: Iterable[FindingRow]) -> list[Measured]:
    """Each open finding with one of the rule's codes."""
    return [
        Measured(
            tenant=row.tenant,
            group=row.key if len(rule.codes) > 1 else row.subject,
            value=float(row.size),
            size=row.size,
            since=time_of_ms(row.opened_ms),
            code=row.code,
            sentence=row.sentence,
            endpoint_id=row.endpoint_id,
            worker_ids=tuple(row.worker_ids),
            job_ids=tuple(row.job_ids),
            evidence=(_quote(f"finding {row.key}:{row.occurrence}", time_of_ms(row.updated_ms)),),
        )
        for row in open_findings
        if row.code in rule.codes and row.state == "open"
    ]


def _quote(text: str, at: datetime) -> EvidenceItem:
    return EvidenceItem(source="collector", what="event", text=text, at=at, span_id=None)


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests of one endpoint with one verdict, written in a window."""

    tenant: str
    endpoint_id: str
    code: str
    is_bad: bool
    is_final: bool
    guessed: bool
    jobs: int
    since_ms: int
    job_ids: tuple[str, ...]
    worker_ids: tuple[str, ...]


# Verdicts below `likely` do not alert: 45 s of silence make a stranded claim possible, 120 s make it likely.
_ENDED = """
SELECT tenant, endpoint, verdict, is_bad, ended, guess, count() AS jobs, min(written_ms) AS since,
       groupArray({named:UInt32})(job_id) AS job_ids, groupUniqArrayArray({named:UInt32})(workers) AS worker_ids
FROM (
    SELECT tenant, job_id, argMax(jobs.endpoint_id, version) AS endpoint, argMax(jobs.code, version) AS verdict,
           argMax(jobs.state, version) IN {bad:Array(String)} AS is_bad, argMax(jobs.is_final, version) AS ended,
           argMax(jobs.inferred, version) AS guess, argMax(jobs.confidence, version) AS sure,
           argMax(jobs.worker_ids, version) AS workers, max(jobs.updated_ms) AS written_ms
    FROM jobs
    WHERE jobs.updated_ms >= {since_ms:Int64}
    GROUP BY tenant, job_id
    HAVING sure IN ('certain', 'likely')
)
GROUP BY tenant, endpoint, verdict, is_bad, ended, guess
"""


async def ended(db: Database, now: datetime, window_seconds: float) -> list[Ended]:
    """How requests stand whose answer was last written in the window."""
    since_ms = ms_of(now - timedelta(seconds=window_seconds))
    parameters = {"since_ms": since_ms, "named": NAMED, "bad": sorted(BAD_STATES)}
    return [_ended(row) for row in await db.query(_ENDED, parameters, max_rows=ROWS_MAX)]


def _ended(row: dict[str, Any]) -> Ended:
    return Ended(
        tenant=str(row["tenant"]),
        endpoint_id=str(row["endpoint"]),
        code=str(row["verdict"]),
        is_bad=bool(row["is_bad"]),
        is_final=bool(row["ended"]),
        guessed=bool(row["guess"]),
        jobs=int(row["jobs"]),
        since_ms=int(row["since"]),
        job_ids=tuple(str(job) for job in row["job_ids"]),
        worker_ids=tuple(str(worker) for worker in row["worker_ids"]),
    )


def _by_endpoint(counted: Iterable[Ended]) -> list[tuple[tuple[str, str], list[Ended]]]:
    found: dict[tuple[str, str], list[Ended]] = defaultdict(list)
    for one in counted:
        found[one.tenant, one.endpoint_id].append(one)
    return sorted(found.items(), key=lambda item: item[0])


def of_verdicts(rule: Rule, counted: Iterable[Ended]) -> list[Measured]:
    """Requests of each endpoint with one of the rule's verdicts."""
    fitting = [one for one in counted if one.code in rule.codes and not (rule.only_open and one.is_final)]
    return [
        _measured(
            tenant,
            endpoint,
            some,
            value=float(sum(one.jobs for one in some)),
            sentence=f"{_requests(sum(one.jobs for one in some))} of {_words(endpoint)}:"
            f" {', '.join(sorted({one.code for one in some}))}, in the last {_span(rule.window_seconds)}.",
        )
        for (tenant, endpoint), some in _by_endpoint(fitting)
    ]


def of_failures(rule: Rule, counted: Iterable[Ended]) -> list[Measured]:
    """The share of each endpoint's requests that failed; endpoints with fewer requests than the minimum are left."""
    found = []
    for (tenant, endpoint), some in _by_endpoint(one for one in counted if one.is_final):
        bad = [one for one in some if one.is_bad and one.code not in NO_FAILURE]
        total, failed = sum(one.jobs for one in some), sum(one.jobs for one in bad)
        if total < rule.minimum or not failed:
            continue
        sentence = (
            f"{failed} of {total} requests of {_words(endpoint)} failed in the last {_span(rule.window_seconds)}"
            f" ({100 * failed / total:.0f} %)."
        )
        found.append(_measured(tenant, endpoint, bad, value=failed / total, sentence=sentence))
    return found


def _measured(tenant: str, endpoint: str, some: Sequence[Ended], *, value: float, sentence: str) -> Measured:
    return Measured(
        tenant=tenant,
        group=endpoint or "no endpoint",
        value=value,
        size=sum(one.jobs for one in some),
        since=time_of_ms(min(one.since_ms for one in some)),
        code=max(some, key=lambda one: one.jobs).code,
        sentence=sentence,
        endpoint_id=endpoint,
        worker_ids=tuple(worker for one in some for worker in one.worker_ids)[:NAMED],
        job_ids=tuple(job for one in some for job in one.job_ids)[:NAMED],
        guessed=all(one.guessed for one in some),
    )


_NEW_GROUPS = """
SELECT tenant, jobs.fingerprint AS found, min(first_ns) AS first, count() AS seen, countIf(NOT inferred) AS certain,
       anyLast(endpoint_id) AS endpoint, anyLast(code) AS verdict, anyLast(root_line) AS line, anyLast(title) AS words,
       groupArray({named:UInt32})(job_id) AS job_ids
FROM jobs FINAL
WHERE confidence IN ('certain', 'likely') AND (tenant, jobs.fingerprint) IN (
    SELECT DISTINCT tenant, fingerprint FROM jobs WHERE updated_ms >= {since_ms:Int64} AND fingerprint != ''
)
GROUP BY tenant, jobs.fingerprint
HAVING first >= {since_ns:Int64}
LIMIT 1000
"""


async def new_groups(db: Database, now: datetime, rule: Rule) -> list[Measured]:
    """Failures that nobody had before the window, by how many requests had them since."""
    since = now - timedelta(seconds=rule.window_seconds)
    rows = await db.query(_NEW_GROUPS, {"since_ms": ms_of(since), "since_ns": ns_of(since), "named": NAMED})
    return [
        Measured(
            tenant=str(row["tenant"]),
            group=str(row["found"]),
            value=float(row["seen"]),
            size=int(row["seen"]),
            since=time_of_ns(int(row["first"])),
            code=str(row["verdict"]),
            sentence=f"New failure on {_words(str(row['endpoint']))}: {row['words']}, {_requests(int(row['seen']))}.",
            endpoint_id=str(row["endpoint"]),
            job_ids=tuple(str(job) for job in row["job_ids"]),
            guessed=not row["certain"],
            evidence=(EvidenceItem(source="worker", what="log_line", text=str(row["line"]), at=now, span_id=None),)
            if row["line"]
            else (),
        )
        for row in rows
    ]


def _words(endpoint: str) -> str:
    return f"endpoint {endpoint}" if endpoint else "no known endpoint"


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"


def _span(seconds: float) -> str:
    if seconds >= 3600 and seconds % 3600 == 0:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"
