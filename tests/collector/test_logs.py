"""Log records over OTLP: those that name their request join it, exceptions among them are read as its own."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from otlp_bytes import JSON, PROTOBUF, any_value, pairs, request_of, span

from collector.clickhouse import Database
from collector.decode import log_rows
from collector.rows import SPAN_COLUMNS, SpanEvent, SpanRow, span_row
from sdk_exporter.contract import EXCEPTION_EVENT, MESSAGE_BYTES, Key, SpanName

OOM = {
    Key.EXCEPTION_TYPE: "torch.OutOfMemoryError",
    Key.EXCEPTION_MESSAGE: "CUDA out of memory. Tried to allocate 20.00 GiB",
}


def log(job_id: str | None = "job-1", body: Any = None, **fields: Any) -> LogRecord:
    """One log record of now; `attributes` is a dict."""
    attributes = dict(fields.pop("attributes", {}))
    if job_id is not None:
        attributes[Key.INVOCATION_ID] = job_id
    given = {"time_unix_nano": time.time_ns(), "attributes": pairs(attributes), **fields}
    return LogRecord(**given, body=None if body is None else any_value(body))


def logs_of(*records: LogRecord, resource: dict[str, Any] | None = None) -> ExportLogsServiceRequest:
    """An export request with these records of an SDK that knows no worker of ours."""
    message = ExportLogsServiceRequest()
    part = message.resource_logs.add()
    part.resource.attributes.extend(pairs(resource or {"service.name": "my-model"}))
    scope = part.scope_logs.add()
    scope.scope.name = "my.logger"
    scope.log_records.extend(records)
    return message


async def sent(server: httpx.AsyncClient, *records: LogRecord) -> ExportLogsServiceResponse:
    """The answer to these records."""
    answer = await server.post("/v1/logs", content=logs_of(*records).SerializeToString(), headers=PROTOBUF)
    assert answer.status_code == 200, answer.text
    return ExportLogsServiceResponse.FromString(answer.content)


async def stored(db: Database) -> list[SpanRow]:
    """Every row that a reader sees."""
    rows = await db.query(f"SELECT {SPAN_COLUMNS} FROM spans ORDER BY start_ns LIMIT 1 BY span_id")  # noqa: S608
    return [span_row(row) for row in rows]


def failed_run(job_id: str = "job-1", *, events: list[Span.Event] | None = None) -> bytes:
    """A claim and a run that ended in an error, told without an exception event."""
    began = time.time_ns() - 10**9
    return request_of(
        span(SpanName.JOB_CLAIMED, job_id=job_id, start_time_unix_nano=began, end_time_unix_nano=began + 1),
        span(
            SpanName.JOB_RUN,
            job_id=job_id,
            start_time_unix_nano=began + 2,
            status=Status(code=Status.StatusCode.STATUS_CODE_ERROR),
            events=events or [],
        ),
        span(SpanName.JOB_DELIVER, job_id=job_id, attributes={Key.HTTP_STATUS: 200, Key.DELIVER_LAST: True}),
    ).SerializeToString()


async def test_a_log_record_that_names_its_request_is_stored(server: httpx.AsyncClient, db: Database) -> None:
    record = log(
        body="loading weights",
        severity_text="INFO",
        severity_number=9,
        event_name="model.loading",
        trace_id=b"\1" * 16,
        span_id=b"\2" * 8,
        attributes={"step": 3},
    )
    assert await sent(server, record) == ExportLogsServiceResponse()
    [row] = await stored(db)
    assert row == SpanRow(
        tenant="default",
        arrived_ms=row.arrived_ms,
        start_ns=record.time_unix_nano,
        end_ns=record.time_unix_nano,
        trace_id="01" * 16,
        span_id=row.span_id,
        parent_id="02" * 8,
        job_id="job-1",
        endpoint_id="",
        worker_id="",
        boot_id="",
        name="log.record",
        kind=0,
        status="unset",
        status_message="",
        attributes={
            "step": 3,
            Key.INVOCATION_ID: "job-1",
            Key.EVENT_NAME: "model.loading",
            Key.RECORD_SEVERITY: "INFO",
            Key.RECORD_SEVERITY_NUMBER: 9,
            Key.RECORD_BODY: "loading weights",
        },
        resource={"service.name": "my-model"},
        scope="my.logger",
    )


async def test_other_log_records_are_politely_refused(server: httpx.AsyncClient, db: Database) -> None:
    answer = await sent(server, log(None, "no request"), log(body="kept"), log(time_unix_nano=0, body="no time"))
    refused = answer.partial_success
    assert refused.rejected_log_records == 2
    assert "1 refused: a log record without faas.invocation_id belongs to no request" in refused.error_message
    assert "1 refused: time_unix_nano is missing" in refused.error_message
    assert [row.attributes[Key.RECORD_BODY] for row in await stored(db)] == ["kept"]


async def test_a_record_sent_twice_is_shown_once_and_json_does_too(server: httpx.AsyncClient, db: Database) -> None:
    message = logs_of(log(body="once", attributes={"a": 1, "b": [1, 2]}))
    for _ in range(2):
        await server.post("/v1/logs", content=message.SerializeToString(), headers=PROTOBUF)
    as_json = json_format.MessageToJson(message)
    assert (await server.post("/v1/logs", content=as_json, headers=JSON)).json() == {}
    assert len(await stored(db)) == 1


@pytest.mark.parametrize("event_name", ["exception", "faas.invocation.exception", ""])
async def test_a_logged_exception_is_read_as_the_requests_own(server: httpx.AsyncClient, event_name: str) -> None:
    meanwhile = {"time_unix_nano": time.time_ns()}
    await server.post("/v1/traces", content=failed_run(), headers=PROTOBUF)
    before = (await server.get("/api/v1/jobs/job-1")).json()["verdict"]
    assert (before["code"], before["cause"]) == ("handler_failed", "unknown")
    await sent(
        server,
        log(body="retrying with a smaller batch", severity_text="WARN", severity_number=13, **meanwhile),
        log(event_name=event_name, attributes=OOM, severity_text="ERROR", severity_number=17, **meanwhile),
    )
    answer = (await server.get("/api/v1/jobs/job-1")).json()
    verdict = answer["verdict"]
    assert (verdict["code"], verdict["cause"]) == ("handler_failed", "cuda_oom")
    texts = [(item["what"], item["text"]) for item in verdict["evidence"]]
    assert ("exception", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB") in texts
    assert ("event", "logged: WARN · retrying with a smaller batch") in texts
    assert [one["name"] for one in answer["spans"]].count("log.record") == 2
    assert len(answer["attempts"]) == 1
    page = await server.get("/jobs/job-1", headers={"accept": "text/html"})
    assert "retrying with a smaller batch" in page.text


async def test_the_runs_own_exception_counts_before_a_logged_one(server: httpx.AsyncClient) -> None:
    own = {Key.EXCEPTION_TYPE: "ValueError", Key.EXCEPTION_MESSAGE: "no such sampler"}
    event = Span.Event(time_unix_nano=time.time_ns(), name=EXCEPTION_EVENT, attributes=pairs(own))
    await server.post("/v1/traces", content=failed_run(events=[event]), headers=PROTOBUF)
    await sent(server, log(attributes=OOM))
    verdict = (await server.get("/api/v1/jobs/job-1")).json()["verdict"]
    assert [item["text"] for item in verdict["evidence"] if item["what"] == "exception"] == [
        "ValueError: no such sampler"
    ]


async def test_a_request_known_by_its_logs_alone_says_so(server: httpx.AsyncClient) -> None:
    await sent(server, log(attributes=OOM))
    answer = (await server.get("/api/v1/jobs/job-1")).json()
    assert (answer["state"], answer["verdict"]["code"], answer["verdict"]["cause"]) == (
        "unknown",
        "unknown",
        "cuda_oom",
    )
    assert "It logged an exception." in answer["verdict"]["sentence"]


async def test_thousands_of_lines_push_out_no_record_that_a_verdict_rests_on(server: httpx.AsyncClient) -> None:
    """Lines come before and after; claim, run, delivery and the logged exception are read all the same."""
    early = [log(body=f"step {number}", time_unix_nano=1_000_000_000 + number) for number in range(3_000)]
    late = log(attributes=OOM, severity_number=17)
    await server.post("/v1/traces", content=failed_run(), headers=PROTOBUF)
    await sent(server, *early, late)
    answer = (await server.get("/api/v1/jobs/job-1")).json()
    assert (answer["verdict"]["code"], answer["verdict"]["cause"]) == ("handler_failed", "cuda_oom")
    assert sum(item["text"].startswith("logged: ") for item in answer["verdict"]["evidence"]) == 10


def test_what_a_record_says_is_redacted_and_clipped() -> None:
    secret = "hf_" + "Ab1" * 12
    record = log(
        "job-1",
        f"token {secret}",
        attributes={Key.EXCEPTION_TYPE: "E", Key.EXCEPTION_MESSAGE: f"{secret} " + "x" * 50_000},
        event_name=f"event {secret}",
        severity_text=secret,
        severity_number=2**31 - 1,
    )
    record.trace_id, record.span_id = b"short", b"bad"
    [row], rejections = log_rows(logs_of(record), "acme", 7)
    assert (rejections.count, row.tenant, row.arrived_ms, row.trace_id, row.parent_id) == (0, "acme", 7, "", "")
    assert secret not in str(row)
    [event] = row.events
    assert isinstance(event, SpanEvent)
    message = event.attributes[Key.EXCEPTION_MESSAGE]
    assert isinstance(message, str)
    assert len(message.encode()) == MESSAGE_BYTES
    assert Key.EXCEPTION_MESSAGE not in row.attributes


@pytest.mark.parametrize("body", [None, 7, True, 1.5, b"\0\1", ["a", {"b": 1}], {"k": "v"}])
def test_a_body_of_any_type_is_kept_as_it_is(body: Any) -> None:
    [row], _ = log_rows(logs_of(log(body=body)), "acme", 7)
    assert row.attributes.get(Key.RECORD_BODY) == ("AAE=" if body == b"\0\1" else body)
