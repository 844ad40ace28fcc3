"""What stands around one request: the usual of its endpoint, the last good request, what its group has in common.

The verdict does not wait for it: what the store has not answered within `SECONDS` is left out, and the page says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from collector import queries
from collector.answers import answer_of_job
from collector.clickhouse import Database
from collector.diagnosis.answer import Answer, PhaseName
from collector.errors import NotFound, StallscopeError
from collector.queries import GroupDetail, StandsOut
from collector.queries.groups import Change, Regression
from collector.queries.usual import Usual, last_good, resource_of, usual_phases
from dashboard.comparison import compared
from dashboard.contexts import Comparison
from sdk_exporter.contract import Key

SECONDS: Final = 3.0
USUAL, COMPARISON, STANDS_OUT = "what is usual here", "the last good request", "what stands out"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found. `not_asked`: parts that the store did not answer in time, in words."""

    usual: Mapping[PhaseName, Usual] = field(default_factory=dict)
    comparison: Comparison | None = None
    stands_out: tuple[StandsOut, ...] = ()
    new_in: Change | None = None
    regressed: Regression | None = None
    not_asked: tuple[str, ...] = ()


NOTHING_AROUND: Final = Surroundings()


async def surroundings_of(db: Database, tenant: str, answer: Answer, now: datetime) -> Surroundings:
    """The surroundings of one request, all asked for at once."""
    asked: dict[str, Coroutine[Any, Any, Any]] = {}
    began = _began(answer) or now
    if answer.endpoint_id:
        asked[USUAL] = usual_phases(db, tenant, answer.endpoint_id, began)
        if answer.state != "completed":
            asked[COMPARISON] = _comparison(db, tenant, answer, answer.endpoint_id, began)
    if answer.group is not None and answer.group.count > 1:
        asked[STANDS_OUT] = queries.group(db, tenant, answer.group.fingerprint, now)
    found, missing = await _within(asked)
    detail: GroupDetail | None = found.get(STANDS_OUT)
    return Surroundings(
        usual=found.get(USUAL) or {},
        comparison=found.get(COMPARISON),
        stands_out=detail.stands_out if detail else (),
        new_in=detail.new_in if detail else None,
        regressed=detail.regressed if detail else None,
        not_asked=missing,
    )


async def _within(asked: Mapping[str, Coroutine[Any, Any, Any]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Answers by name, and the names of those that did not come: late, or refused by the store."""
    tasks = {name: asyncio.ensure_future(question) for name, question in asked.items()}
    if not tasks:
        return {}, ()
    try:
        await asyncio.wait(tasks.values(), timeout=SECONDS)
    finally:
        for task in tasks.values():
            task.cancel()
    results = await asyncio.gather(*tasks.values(), return_exceptions=True)
    found, missing = {}, []
    for name, result in zip(tasks, results, strict=True):
        if isinstance(result, (StallscopeError, asyncio.CancelledError)):
            missing.append(name)
        elif isinstance(result, BaseException):
            raise result
        else:
            found[name] = result
    return found, tuple(missing)


async def _comparison(db: Database, tenant: str, answer: Answer, endpoint: str, began: datetime) -> Comparison | None:
    good, resource = await asyncio.gather(
        last_good(db, tenant, endpoint, began, but=answer.job_id), _resource(db, tenant, answer)
    )
    if good is None:
        return None
    try:
        there = await answer_of_job(db, tenant, good.job_id, good.at)
    except NotFound:  # its spans went between two questions
        return None
    return compared(answer, resource, there, good.resource, good.at)


async def _resource(db: Database, tenant: str, answer: Answer) -> dict[str, Any]:
    """What the worker of the newest attempt told of itself."""
    newest = answer.attempts[-1] if answer.attempts else None
    if newest is None or not newest.worker_id:
        return {}
    return await resource_of(db, tenant, newest.worker_id, newest.boot_id or "")


def _began(answer: Answer) -> datetime | None:
    """The earliest time of the request's own that is known."""
    own = [span.start for span in answer.spans if span.attributes.get(Key.INVOCATION_ID) == answer.job_id]
    return min(own, default=None)
