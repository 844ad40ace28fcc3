"""What a worker sends, as OTLP/JSON, told in seconds around now."""

from __future__ import annotations

import secrets
import time
from typing import Any

from sdk_exporter.contract import Key, SpanName

BOOT = secrets.token_hex(16)
OOM_LINE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB."
STACK = f'Traceback (most recent call last):\n  File "/app/handler.py", line 21, in load_model\n{OOM_LINE}\n'
LOG = f"--- Starting Serverless Worker ---\nloading \x1b[32mweights\x1b[0m\n{STACK}hook failed\n"


def attribute(key: str, value: Any) -> dict[str, Any]:
    """One attribute."""
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"stringValue": value}}


def span(name: str, start: float, end: float, *, error: bool = False, **more: Any) -> dict[str, Any]:
    """A span from `start` to `end`, in seconds from now."""
    now = time.time_ns()
    attributes: dict[str, Any] = more.pop("attributes", {})
    return {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(now + int(start * 1e9)),
        "endTimeUnixNano": str(now + int(end * 1e9)),
        "status": {"code": 2} if error else {},
        "attributes": [attribute(key, value) for key, value in attributes.items()],
        **more,
    }


def earlier(spans: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    """The same, so many seconds before."""
    for record in spans:
        for edge in ("startTimeUnixNano", "endTimeUnixNano"):
            record[edge] = str(int(record[edge]) - int(seconds * 1e9))
    return spans


def body_of(spans: list[dict[str, Any]], **resource: str) -> dict[str, Any]:
    """The body of one export by one worker boot."""
    told = {
        Key.SERVICE_INSTANCE_ID: resource.get("worker", "w-1"),
        Key.FAAS_NAME: resource.get("endpoint", "llama-chat"),
        Key.BOOT_ID: resource.get("boot", BOOT),
        Key.HOST_NAME: resource.get("host", "host-a"),
        Key.HW_MODEL: "NVIDIA L4",
        **({Key.SERVICE_VERSION: resource["release"]} if "release" in resource else {}),
    }
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [attribute(key, value) for key, value in told.items()]},
                "scopeSpans": [{"scope": {"name": "stallscope"}, "spans": spans}],
            }
        ]
    }


def prestart_out_of_memory(job_id: str, *, log: str = LOG, line: str = OOM_LINE) -> list[dict[str, Any]]:
    """A boot, a claim, a prestart that fails with the claim in hand, and the error delivered."""
    job = {Key.INVOCATION_ID: job_id}
    kind, _, message = line.partition(": ")
    failed = {
        Key.ERROR_TYPE: kind,
        Key.LOG_TAIL: log,
        Key.LOG_SCOPE: "worker",
        Key.LOG_BYTES_SEEN: len(log.encode()),
        Key.LOG_COMPLETE: True,
    }
    exception = {
        Key.EXCEPTION_TYPE: kind,
        Key.EXCEPTION_MESSAGE: message,
        Key.EXCEPTION_STACKTRACE: STACK.replace(OOM_LINE, line),
    }
    at = str(time.time_ns() - 7_000_000_000)
    events = [
        {
            "name": "exception",
            "timeUnixNano": at,
            "attributes": [attribute(key, value) for key, value in exception.items()],
        }
    ]
    hook = {Key.PRESTART_HOOK: "load_model", Key.ERROR_TYPE: kind}
    return [
        span(SpanName.BOOT, -16, -10.2, attributes={Key.COLDSTART: True}),
        span(SpanName.JOB_CLAIMED, -10.1, -10.1, attributes={**job, Key.CLAIM_WAIT_SECONDS: 0.4}),
        span(SpanName.PRESTART, -10.2, -7, error=True, attributes=failed, events=events),
        span(SpanName.PRESTART_HOOK, -10.2, -7, error=True, attributes=hook, events=events),
        span(SpanName.JOB_GATED, -10.1, -7, error=True, attributes=job),
        span(
            SpanName.JOB_DELIVER,
            -7,
            -6.9,
            attributes={**job, Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True},
        ),
    ]


def handler_out_of_memory(job_id: str) -> list[dict[str, Any]]:
    """A claim, a run that fails after eight seconds, and the error delivered."""
    job = {Key.INVOCATION_ID: job_id}
    claim, run, delivery = completed(job_id)
    failed = span(
        SpanName.JOB_RUN,
        -10,
        -2,
        error=True,
        attributes={**job, Key.HANDLER_KIND: "async", Key.ERROR_TYPE: "torch.OutOfMemoryError", Key.LOG_TAIL: LOG},
        events=prestart_out_of_memory(job_id)[2]["events"],
    )
    claim.update(startTimeUnixNano=failed["startTimeUnixNano"], endTimeUnixNano=failed["startTimeUnixNano"])
    return [claim, {**failed, "traceId": run["traceId"]}, delivery]


def completed(job_id: str) -> list[dict[str, Any]]:
    """A claim, a run and its delivery."""
    job = {Key.INVOCATION_ID: job_id}
    return [
        span(SpanName.JOB_CLAIMED, -5, -5, attributes=job),
        span(SpanName.JOB_RUN, -4.9, -2, attributes={**job, Key.HANDLER_KIND: "sync"}),
        span(
            SpanName.JOB_DELIVER,
            -2,
            -1.9,
            attributes={**job, Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True},
        ),
    ]


RUN_ID = secrets.token_hex(8)


def ended(job_id: str) -> list[dict[str, Any]]:
    """The end of the run that `running` told the start of, and its delivery."""
    _, run, delivery = completed(job_id)
    now = time.time_ns()
    run.update(spanId=RUN_ID, startTimeUnixNano=str(now - 10_000_000), endTimeUnixNano=str(now))
    delivery.update(startTimeUnixNano=str(now), endTimeUnixNano=str(now + 1_000_000))
    return [run, delivery]


def running(job_id: str) -> list[dict[str, Any]]:
    """A claim, and a run of which the start was told."""
    job = {Key.INVOCATION_ID: job_id}
    started = {**job, Key.SPAN_ID: RUN_ID, Key.HANDLER_KIND: "sync"}
    return [
        span(SpanName.JOB_CLAIMED, -1, -1, attributes=job),
        span(f"{SpanName.JOB_RUN}.started", -0.9, -0.9, attributes=started),
        span(SpanName.HEARTBEAT, -0.5, -0.5, attributes={Key.HEARTBEAT_PROCESS: 0.0, Key.HEARTBEAT_LOOP: 0.0}),
    ]


def stop_channel(state: str, **attributes: Any) -> list[dict[str, Any]]:
    """A report of the stop channel."""
    return [span(SpanName.STOP_CHANNEL, -60, 0, attributes={Key.CHANNEL_STATE: state, **attributes})]
