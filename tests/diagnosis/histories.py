"""Builders of histories: spans as a worker, its recorder or a caller sends them. Times are seconds after `T0`."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from typing import Any

from collector.diagnosis.evidence import Evidence, evidence_of
from collector.diagnosis.records import nanoseconds
from collector.rows import SpanEvent, SpanRow
from sdk_exporter.contract import EXCEPTION_EVENT, STARTED_SUFFIX, Key, SpanName

T0 = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)
JOB = "job-1"
WORKER = "w1"
BOOT = "b" * 32
ENDPOINT = "ep1"
OOM_LINE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.6 GiB"
)


def at(seconds: float) -> datetime:
    """The moment `seconds` after `T0`."""
    return T0 + timedelta(seconds=seconds)


def ns(seconds: float) -> int:
    """The same in Unix nanoseconds."""
    return nanoseconds(at(seconds))


def identifier(*parts: object) -> str:
    """A span id that is the same for the same thing."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def span(
    name: str,
    start: float,
    end: float | None = None,
    *,
    job: str = JOB,
    worker: str = WORKER,
    boot: str = BOOT,
    status: str = "unset",
    message: str = "",
    error: tuple[str, str] | None = None,
    attributes: dict[str, Any] | None = None,
    trace: str | None = None,
    span_id: str | None = None,
    endpoint: str = ENDPOINT,
    arrived: float | None = None,
) -> SpanRow:
    """One stored span. `error` is the type and message of its exception event, and makes its status an error."""
    end = start if end is None else end
    told = dict(attributes or {})
    events = []
    if error is not None:
        status = "error"
        told.setdefault(Key.ERROR_TYPE, error[0])
        events = [SpanEvent(EXCEPTION_EVENT, ns(end), {Key.EXCEPTION_TYPE: error[0], Key.EXCEPTION_MESSAGE: error[1]})]
    return SpanRow(
        tenant="default",
        arrived_ms=ns(end if arrived is None else arrived) // 1_000_000,
        start_ns=ns(start),
        end_ns=ns(end),
        trace_id=trace or identifier("trace", job, worker, boot) * 2,
        span_id=span_id or identifier(name, start, end, job, boot, told),
        parent_id="",
        job_id=job,
        endpoint_id=endpoint,
        worker_id=worker,
        boot_id=boot,
        name=name,
        kind=1,
        status=status,
        status_message=message,
        attributes=told,
        events=events,
    )


def began(name: str, start: float, *, attributes: dict[str, Any] | None = None, **more: Any) -> SpanRow:
    """`<name>.started`, whose ending span (made by `ended` from the same name and start) shares the told id."""
    own = identifier("thing", name, start, more.get("job", JOB), more.get("boot", BOOT))
    return span(name + STARTED_SUFFIX, start, attributes={**(attributes or {}), Key.SPAN_ID: own}, **more)


def ended(name: str, start: float, end: float, **more: Any) -> list[SpanRow]:
    """A thing told twice: its start at once, and its end."""
    own = identifier("thing", name, start, more.get("job", JOB), more.get("boot", BOOT))
    place = {key: more[key] for key in ("job", "worker", "boot", "trace", "endpoint", "attributes") if key in more}
    return [began(name, start, **place), span(name, start, end, span_id=own, **more)]


def claim(seconds: float = 0.0, **more: Any) -> SpanRow:
    """`job.claimed`."""
    return span(SpanName.JOB_CLAIMED, seconds, **more)


def run(start: float, end: float | None = None, **more: Any) -> list[SpanRow]:
    """`job.run`, ended or only begun."""
    return [began(SpanName.JOB_RUN, start, **more)] if end is None else ended(SpanName.JOB_RUN, start, end, **more)


def deliver(
    start: float, end: float, status_code: int | None = 200, *, last: bool | None = None, **more: Any
) -> SpanRow:
    """One try to hand the result in."""
    told: dict[str, Any] = dict(more.pop("attributes", {}))
    if status_code is not None:
        told[Key.HTTP_STATUS] = status_code
    if last is not None:
        told[Key.DELIVER_LAST] = last
    good = status_code is not None and status_code < 300
    return span(SpanName.JOB_DELIVER, start, end, status="ok" if good else "error", attributes=told, **more)


def stop(start: float, end: float | None = None, outcome: str | None = None, **more: Any) -> SpanRow:
    """A stop signal for the job."""
    told = {} if outcome is None else {Key.STOP_OUTCOME: outcome}
    if end is None:
        return began(SpanName.JOB_STOP, start, attributes=told, **more)
    return span(SpanName.JOB_STOP, start, end, attributes=told, **more)


def worker_span(name: str, start: float, end: float | None = None, **more: Any) -> SpanRow:
    """A span of the worker, about no job."""
    return span(name, start, end, job="", **more)


def boot(start: float, end: float | None = None, **more: Any) -> list[SpanRow]:
    """`worker.boot`, ended or only begun."""
    more["job"] = ""
    return [began(SpanName.BOOT, start, **more)] if end is None else ended(SpanName.BOOT, start, end, **more)


def prestart(start: float, end: float | None = None, *, name: str = SpanName.PRESTART, **more: Any) -> list[SpanRow]:
    """`prestart` or, by `name`, `prestart.hook`."""
    more["job"] = ""
    return [began(name, start, **more)] if end is None else ended(name, start, end, **more)


def death(
    seconds: float,
    *,
    code: int | None = None,
    signal: str | None = None,
    jobs: list[str] | None = None,
    oom: bool | None = None,
    tail: str | None = None,
    withheld: int | None = None,
    **more: Any,
) -> SpanRow:
    """`worker.death`."""
    told: dict[str, Any] = {Key.DEATH_JOBS_IN_HAND: jobs or []}
    for key, value in (
        (Key.EXIT_CODE, code),
        (Key.DEATH_SIGNAL, signal),
        (Key.DEATH_OOM_KILL, oom),
        (Key.LOG_TAIL, tail),
        (Key.LOG_BYTES_WITHHELD, withheld),
    ):
        if value is not None:
            told[key] = value
    return worker_span(SpanName.DEATH, seconds, attributes=told, **more)


def shutdown(start: float, end: float | None = None, *, signal: str = "SIGTERM", **more: Any) -> SpanRow:
    """`worker.shutdown`, begun or ended."""
    told = {Key.SHUTDOWN_SIGNAL: signal}
    if end is None:
        return began(SpanName.SHUTDOWN, start, job="", attributes=told, **more)
    return worker_span(SpanName.SHUTDOWN, start, end, attributes=told, **more)


def heartbeat(
    seconds: float,
    *,
    tail: str | None = None,
    withheld: int | None = None,
    worker: str = WORKER,
    boot: str = BOOT,
    **ages: float,
) -> SpanRow:
    """`worker.heartbeat`; `ages` are process, loop, progress. `tail`: what a worker at a standstill had printed."""
    told: dict[str, Any] = {f"stallscope.heartbeat.{key}": value for key, value in ages.items()}
    if tail is not None:
        told |= {Key.LOG_TAIL: tail, Key.LOG_SCOPE: "worker"}
    if withheld is not None:
        told[Key.LOG_BYTES_WITHHELD] = withheld
    return worker_span(SpanName.HEARTBEAT, seconds, attributes=told, worker=worker, boot=boot)


def request(start: float, end: float | None = None, status: str = "IN_QUEUE", **more: Any) -> SpanRow:
    """`caller.request`, which lasts while the caller waits."""
    told = {Key.CALLER_STATUS: status}
    place: dict[str, Any] = {"worker": "", "boot": ""}
    if end is None:
        return began(SpanName.CALLER_REQUEST, start, attributes=told, **place, **more)
    return span(SpanName.CALLER_REQUEST, start, end, attributes=told, **place, **more)


def poll(seconds: float, status: str, **more: Any) -> SpanRow:
    """`caller.poll`."""
    return span(SpanName.CALLER_POLL, seconds, attributes={Key.CALLER_STATUS: status}, worker="", boot="", **more)


def evidence(*spans: SpanRow | list[SpanRow], now: float = 60.0, job: str = JOB) -> Evidence:
    """Evidence about `job` from spans and lists of spans, `now` seconds after `T0`."""
    flat: list[SpanRow] = []
    for item in spans:
        flat += item if isinstance(item, list) else [item]
    return evidence_of(job, flat, at(now))
