"""Rows as a worker's spans leave them, told in seconds around a fixed time."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

from collector.rows import Attributes, SpanEvent, SpanRow
from sdk_exporter.contract import EXCEPTION_EVENT, STARTED_SUFFIX, Key, SpanName

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
OOM_LINE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
_ids = itertools.count(1)


def ns_of(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1) * 1000


class Teller:
    """Makes spans of one worker boot. Times are seconds after `zero`; a record arrives as it ends unless told."""

    def __init__(
        self,
        zero: datetime,
        *,
        tenant: str = "default",
        worker: str = "w-1",
        boot: str = "b" * 32,
        endpoint: str = "ep-1",
    ) -> None:
        self.zero, self.tenant, self.worker, self.boot, self.endpoint = zero, tenant, worker, boot, endpoint
        self.resource: Attributes = {
            Key.SERVICE_INSTANCE_ID: worker,
            Key.FAAS_NAME: endpoint,
            Key.BOOT_ID: boot,
            Key.HOST_NAME: "host-a",
            Key.HW_MODEL: "NVIDIA L4",
            Key.CONTAINER_IMAGE_NAME: "acme/worker",
            Key.CONTAINER_IMAGE_TAGS: ["7"],
        }

    def span(
        self,
        name: str,
        start: float,
        end: float | None = None,
        *,
        job: str = "",
        status: str = "unset",
        arrived: float | None = None,
        span_id: str = "",
        events: list[SpanEvent] | None = None,
        **attributes: Any,
    ) -> SpanRow:
        end = start if end is None else end
        return SpanRow(
            tenant=self.tenant,
            arrived_ms=self.ns(end if arrived is None else arrived) // 1_000_000,
            start_ns=self.ns(start),
            end_ns=self.ns(end),
            trace_id=f"{hash((self.boot, job)) & (2**128 - 1):032x}",
            span_id=span_id or f"{next(_ids):016x}",
            parent_id="",
            job_id=job,
            endpoint_id=self.endpoint,
            worker_id=self.worker,
            boot_id=self.boot,
            name=name,
            kind=1,
            status=status,
            status_message="",
            attributes={**({Key.INVOCATION_ID: job} if job else {}), **attributes.pop("attributes", {}), **attributes},
            resource=self.resource,
            events=events or [],
        )

    def ns(self, seconds: float) -> int:
        return ns_of(self.zero) + round(seconds * 1_000_000) * 1000

    def claimed(self, job: str, at: float = 0.0) -> SpanRow:
        return self.span(SpanName.JOB_CLAIMED, at, job=job)

    def run_started(self, job: str, at: float = 0.1) -> SpanRow:
        return self.span(
            SpanName.JOB_RUN + STARTED_SUFFIX, at, job=job, attributes={Key.SPAN_ID: f"{abs(hash(job)) % 2**64:016x}"}
        )

    def completed(self, job: str, at: float = 0.0) -> list[SpanRow]:
        """A request that went well, in three seconds."""
        return [
            self.claimed(job, at),
            self.span(SpanName.JOB_RUN, at + 0.1, at + 2.9, job=job, status="ok"),
            self.span(
                SpanName.JOB_DELIVER,
                at + 2.9,
                at + 3,
                job=job,
                status="ok",
                attributes={Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True},
            ),
        ]

    def failed(self, job: str, at: float = 0.0, *, line: str = OOM_LINE) -> list[SpanRow]:
        """A request whose handler raised; its error was delivered."""
        kind, _, message = line.partition(": ")
        exception: Attributes = {
            Key.EXCEPTION_TYPE: kind,
            Key.EXCEPTION_MESSAGE: message,
            Key.EXCEPTION_STACKTRACE: f"Traceback (most recent call last):\n{line}\n",
        }
        tail: Attributes = {
            Key.ERROR_TYPE: kind,
            Key.LOG_TAIL: f"loading weights\n{line}\n",
            Key.LOG_SCOPE: "job",
            Key.LOG_BYTES_SEEN: 100,
            Key.LOG_COMPLETE: True,
        }
        return [
            self.claimed(job, at),
            self.span(
                SpanName.JOB_RUN,
                at + 0.1,
                at + 2.9,
                job=job,
                status="error",
                attributes=tail,
                events=[SpanEvent(EXCEPTION_EVENT, self.ns(at + 2.9), exception)],
            ),
            self.span(
                SpanName.JOB_DELIVER,
                at + 2.9,
                at + 3,
                job=job,
                status="ok",
                attributes={Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True},
            ),
        ]

    def heartbeat(self, at: float, jobs: list[str] | None = None) -> SpanRow:
        return self.span(
            SpanName.HEARTBEAT, at, attributes={Key.HEARTBEAT_PROCESS: 0.1, Key.HEARTBEAT_JOBS: list(jobs or [])}
        )

    def death(self, at: float, jobs: list[str], *, signal: str = "SIGKILL") -> SpanRow:
        return self.span(
            SpanName.DEATH,
            at,
            status="error",
            attributes={Key.DEATH_SIGNAL: signal, Key.DEATH_OOM_KILL: False, Key.DEATH_JOBS_IN_HAND: jobs},
        )

    def stop_channel(self, at: float, state: str, **attributes: Any) -> SpanRow:
        return self.span(SpanName.STOP_CHANNEL, at, attributes={Key.CHANNEL_STATE: state, **attributes})
