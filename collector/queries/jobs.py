"""Requests as they were last diagnosed: one row, a page of the list, their history, and what groups them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from collector.clickhouse import Database
from collector.diagnosis.answer import Answer, Group, Revision
from collector.errors import BadInput
from collector.queries import cursor as cursors
from collector.queries.pages import LIMIT_DEFAULT, checked_limit, in_questions, next_cursor_of
from collector.queries.stored import (
    INT64_MAX,
    answer_of_document,
    ns_of,
    revision_of,
    time_of_ms,
    time_of_ns,
)

SEARCH_CHARACTERS: Final = 256
IDS_A_QUERY: Final = 100
HISTORY_MAX: Final = 100
"""Revisions told of one request; the newest stay."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a list is narrowed to; None leaves a field open. Times compare with the first record of a request."""

    endpoint: str | None = None
    worker: str | None = None
    state: str | None = None
    verdict: str | None = None
    cause: str | None = None
    fingerprint: str | None = None
    fault: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    q: str | None = None


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of requests, newest first. `next_cursor` is None on the last page."""

    items: list[Answer]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class StoredJob:
    """What the last diagnosis of a request left behind."""

    version: int
    state: str
    is_final: bool
    code: str
    cause: str
    confidence: str
    fingerprint: str
    revision: int
    digested_ms: int
    updated_at: datetime
    first_ns: int


_STORED = """
SELECT job_id, version, state, is_final, code, cause, confidence, fingerprint, revision, digested_ms, updated_ms,
       first_ns
FROM jobs FINAL
WHERE tenant = {tenant:String} AND job_id IN {job_ids:Array(String)}
"""


async def stored_jobs(db: Database, tenant: str, job_ids: Sequence[str]) -> dict[str, StoredJob]:
    """What the last diagnosis of each left behind, by job id. Absent: never diagnosed, or ten retentions ago."""
    rows = await db.query(_STORED, {"tenant": tenant, "job_ids": list(job_ids)}, max_rows=len(job_ids))
    return {
        str(row["job_id"]): StoredJob(
            version=int(row["version"]),
            state=str(row["state"]),
            is_final=bool(row["is_final"]),
            code=str(row["code"]),
            cause=str(row["cause"]),
            confidence=str(row["confidence"]),
            fingerprint=str(row["fingerprint"]),
            revision=int(row["revision"]),
            digested_ms=int(row["digested_ms"]),
            updated_at=time_of_ms(int(row["updated_ms"])),
            first_ns=int(row["first_ns"]),
        )
        for row in rows
    }


# Two steps: the ids of a page from narrow rows, then the documents of these alone.
_PLACES = """
SELECT job_id, first_ns
FROM {table:Identifier} FINAL
WHERE tenant = {tenant:String}
  AND ({endpoint:String} = '' OR endpoint_id = {endpoint:String})
  AND ({worker:String} = '' OR has(worker_ids, {worker:String}))
  AND ({state:String} = '' OR state = {state:String})
  AND ({verdict:String} = '' OR code = {verdict:String})
  AND ({cause:String} = '' OR cause = {cause:String})
  AND ({fingerprint:String} = '' OR fingerprint = {fingerprint:String})
  AND ({fault:String} = '' OR fault = {fault:String})
  AND first_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64}
  AND (first_ns, job_id) < ({before_ns:Int64}, {before_id:String})
"""
_NEWEST_FIRST = """
ORDER BY first_ns DESC, job_id DESC
LIMIT {limit:UInt32}
"""
_WITH_WORDS = """
  AND (positionCaseInsensitiveUTF8(search_text, {q:String}) > 0 OR job_id = {q:String})
"""

_DOCUMENTS = """
SELECT job_id, first_ns, fingerprint, document
FROM jobs
WHERE tenant = {tenant:String} AND job_id IN {job_ids:Array(String)}
ORDER BY version DESC
LIMIT 1 BY job_id
"""


async def list_jobs(
    db: Database, tenant: str, filters: JobFilter, *, cursor: str | None = None, limit: int = LIMIT_DEFAULT
) -> JobList:
    """A page of requests. Raises BadInput naming `limit`, `cursor` or `q`."""
    checked_limit(limit)
    if filters.q is not None and len(filters.q) > SEARCH_CHARACTERS:
        raise BadInput(f"q: longer than {SEARCH_CHARACTERS} characters")
    before = cursors.read(cursor)
    parameters = {
        "tenant": tenant,
        "endpoint": filters.endpoint or "",
        "worker": filters.worker or "",
        "state": filters.state or "",
        "verdict": filters.verdict or "",
        "cause": filters.cause or "",
        "fingerprint": filters.fingerprint or "",
        "fault": filters.fault or "",
        "since_ns": ns_of(filters.since) if filters.since else -INT64_MAX,
        "until_ns": ns_of(filters.until) if filters.until else INT64_MAX,
        "q": filters.q or "",
        "before_ns": before.first_ns,
        "before_id": before.job_id,
        "limit": limit + 1,  # one more tells whether another page follows
    }
    # What is searched stands in `jobs` alone.
    sql = _PLACES + (_WITH_WORDS if filters.q else "") + _NEWEST_FIRST
    parameters["table"] = "jobs" if filters.q else "job_times"
    places = await db.query(sql, parameters, max_rows=limit + 1)
    items = await _answers_of(db, tenant, places[:limit])
    return JobList(items, next_cursor_of(places, limit, lambda row: (int(row["first_ns"]), str(row["job_id"]))))


async def _answers_of(db: Database, tenant: str, places: Sequence[dict[str, Any]]) -> list[Answer]:
    """The stored answers, in the order of `places`. One of which an earlier record came since stands elsewhere now."""
    if not places:
        return []
    job_ids = [str(place["job_id"]) for place in places]
    documents = await _documents_of(db, tenant, job_ids)
    found = (documents.get(str(place["job_id"])) for place in places)
    rows = [row for row, place in zip(found, places, strict=True) if row and row["first_ns"] == place["first_ns"]]
    histories, groups = await asyncio.gather(
        histories_of(db, tenant, job_ids), counts_of_groups(db, tenant, {str(row["fingerprint"]) for row in rows})
    )
    return [
        answer_of_document(
            str(row["document"]), histories.get(str(row["job_id"]), []), groups.get(str(row["fingerprint"]))
        )
        for row in rows
    ]


async def _documents_of(db: Database, tenant: str, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for asked in in_questions(job_ids, IDS_A_QUERY):
        rows = await db.query(_DOCUMENTS, {"tenant": tenant, "job_ids": asked}, max_rows=len(asked))
        found.update((str(row["job_id"]), row) for row in rows)
    return found


_HISTORIES = """
SELECT job_id, revision, at_ms, code, why
FROM verdict_history FINAL
WHERE tenant = {tenant:String} AND job_id IN {job_ids:Array(String)}
ORDER BY job_id, revision DESC
LIMIT {most:UInt32} BY job_id
"""


async def histories_of(db: Database, tenant: str, job_ids: Sequence[str]) -> dict[str, list[Revision]]:
    """The revisions of each request, oldest first; an id without any is absent."""
    histories: dict[str, list[Revision]] = {}
    for asked in in_questions(job_ids, IDS_A_QUERY):
        parameters = {"tenant": tenant, "job_ids": asked, "most": HISTORY_MAX}
        for row in reversed(await db.query(_HISTORIES, parameters, max_rows=HISTORY_MAX * len(asked))):
            histories.setdefault(str(row["job_id"]), []).append(revision_of(row))
    return histories


_GROUP_COUNTS = """
SELECT fingerprint, count() AS jobs, min(first_ns) AS first_ns
FROM job_times FINAL
WHERE tenant = {tenant:String} AND fingerprint IN {fingerprints:Array(String)}
GROUP BY fingerprint
"""


async def counts_of_groups(db: Database, tenant: str, fingerprints: Iterable[str]) -> dict[str, Group]:
    """How often each failure was seen, and since when; a fingerprint that no stored request has is absent."""
    asked = sorted(fingerprint for fingerprint in fingerprints if fingerprint)
    if not asked:
        return {}
    rows = await db.query(_GROUP_COUNTS, {"tenant": tenant, "fingerprints": asked}, max_rows=len(asked))
    return {
        str(row["fingerprint"]): Group(
            fingerprint=str(row["fingerprint"]),
            count=int(row["jobs"]),
            first_seen=time_of_ns(int(row["first_ns"])),
        )
        for row in rows
    }
