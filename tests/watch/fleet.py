"""A fleet of workers told in spans, and a watcher with a clock that only moves when told."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any

from collector.clickhouse import Database
from collector.queries.stored import ns_of
from collector.rows import Attributes, SpanRow
from collector.settings import Settings
from collector.watch.ledger import Finding, list_findings
from collector.watch.loop import Round, Watch
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

_span_ids = itertools.count(1)

CALM_SECONDS = 90.0
"""Longer than a watcher holds its judgement after its start."""


@dataclass
class Worker:
    """One boot. `skew`: seconds that its clock is ahead."""

    name: str
    endpoint: str = "llama-chat"
    tenant: str = "default"
    skew: float = 0.0
    boot: str = field(default_factory=lambda: uuid.uuid4().hex)

    def span(
        self, now: datetime, name: str, *, job: str = "", ago: float = 0.0, late: float = 0.0, status: str = "unset",
        **attributes: Any,
    ) -> SpanRow:  # fmt: skip
        """A record of `ago` seconds before `now` that arrives at `now`, or `late` seconds after it was made."""
        made = now - timedelta(seconds=ago)
        arrived_ms = ns_of(made + timedelta(seconds=late) if late else now) // 1_000_000
        told: Attributes = {**attributes.pop("told", {}), **attributes}
        return self.row(name, ns_of(made + timedelta(seconds=self.skew)), arrived_ms, job=job, status=status, told=told)

    def row(self, name: str, at_ns: int, arrived_ms: int, *, job: str, status: str, told: Attributes) -> SpanRow:
        return SpanRow(
            tenant=self.tenant,
            arrived_ms=arrived_ms,
            start_ns=at_ns,
            end_ns=at_ns,
            trace_id=self.boot,
            span_id=f"{next(_span_ids):016x}",
            parent_id="",
            job_id=job,
            endpoint_id=self.endpoint,
            worker_id=self.name,
            boot_id=self.boot,
            name=name,
            kind=1,
            status=status,
            status_message="",
            attributes={Key.INVOCATION_ID: job, **told} if job else told,
            resource=self.resource,
        )

    @cached_property
    def resource(self) -> Attributes:
        return {Key.SERVICE_INSTANCE_ID: self.name, Key.FAAS_NAME: self.endpoint, Key.BOOT_ID: self.boot}

    def beat(self, now: datetime, *jobs: str, ago: float = 0.0) -> SpanRow:
        return self.span(now, SpanName.HEARTBEAT, ago=ago, told={Key.HEARTBEAT_JOBS: list(jobs)})

    def boot_started(self, now: datetime) -> SpanRow:
        return self.span(now, SpanName.BOOT + STARTED_SUFFIX)

    def death(self, now: datetime, code: int = 1) -> SpanRow:
        return self.span(now, SpanName.DEATH, status="error", told={Key.EXIT_CODE: code})

    def channel(self, now: datetime, state: str, *, name: str = SpanName.STOP_CHANNEL, **told: Any) -> SpanRow:
        """A report; `told` by the short names below."""
        keys = {
            "polls": Key.CHANNEL_POLLS,
            "failures": Key.CHANNEL_FAILURES,
            "consecutive": Key.CHANNEL_CONSECUTIVE_FAILURES,
            "age": Key.CHANNEL_LAST_OK_AGE_SECONDS,
            "violation": Key.CHANNEL_VIOLATION,
            "hold": Key.CHANNEL_HOLD_SECONDS_P50,
            "status": Key.HTTP_STATUS,
            "content_type": Key.HTTP_CONTENT_TYPE,
            "error": Key.ERROR_TYPE,
            "unanswered": Key.CHANNEL_UNANSWERED_SECONDS,
            "polling": Key.CHANNEL_POLLING,
        }
        if "content_type" in told:
            told["content_type"] = [told["content_type"]]
        attributes = {Key.CHANNEL_STATE: state, **{keys[short]: value for short, value in told.items()}}
        return self.span(now, name, told=attributes)


@dataclass
class Fleet:
    """Workers, the store that they tell, and one watcher."""

    db: Database
    settings: Settings
    watch: Watch
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc).replace(microsecond=0))
    workers: list[Worker] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)

    def add(self, count: int, endpoint: str = "llama-chat", **more: Any) -> list[Worker]:
        made = [Worker(f"{endpoint}-w{n}", endpoint, **more) for n in range(count)]
        self.workers += made
        return made

    async def tell(self, *spans: SpanRow) -> None:
        await self.db.insert("spans", spans, token=uuid.uuid4().hex)

    async def live(self, seconds: float, *watches: Watch) -> Round:
        """Time goes by: every worker beats each 15 s unless it is silent, and the watchers look each 15 s."""
        done = Round()
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            self.now = min(self.now + timedelta(seconds=15), until)
            beating = [worker for worker in self.workers if worker.name not in self.silent]
            await self.tell(*(worker.beat(self.now) for worker in beating))
            done = await self.look(*watches)
        return done

    async def calm(self, *watches: Watch) -> None:
        """A while without news, of which only the beginning and the end are looked at."""
        await self.look(*watches)
        beats = []
        for _ in range(round(CALM_SECONDS / 15)):
            self.now += timedelta(seconds=15)
            beats += [worker.beat(self.now) for worker in self.workers if worker.name not in self.silent]
        await self.tell(*beats)
        await self.look(*watches)

    async def look(self, *watches: Watch) -> Round:
        rounds = await asyncio.gather(
            *(watch.round(self.db, self.settings, self.now) for watch in watches or (self.watch,))
        )
        return rounds[0]

    async def findings(self, code: str = "", tenant: str = "default") -> Sequence[Finding]:
        page = await list_findings(self.db, tenant, self.now - timedelta(days=1), self.now, code=code, limit=200)
        return page.items

    async def the(self, code: str) -> Finding:
        """The only finding of this code."""
        (finding,) = await self.findings(code)
        return finding
