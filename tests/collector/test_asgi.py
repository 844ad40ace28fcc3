"""The whole server and its two halves: what goes in at one end can be asked for at the other."""

from __future__ import annotations

import time

import httpx
import pytest
from clickhouse_server import ClickHouseServer
from fastapi import FastAPI
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from otlp_bytes import PROTOBUF, pairs, request_of, span
from parts import PASSWORD, eventually, served, server_url
from pydantic import SecretStr

from collector import asgi, migrate
from collector.clickhouse import Database
from collector.settings import Settings
from sdk_exporter.contract import EXCEPTION_EVENT, Key, SpanName


def failed_run(job_id: str) -> bytes:
    """A request that was claimed and whose handler raised."""
    began = time.time_ns() - 10**9
    exception = {Key.EXCEPTION_TYPE: "ValueError", Key.EXCEPTION_MESSAGE: "no such model"}
    return request_of(
        span(SpanName.JOB_CLAIMED, job_id=job_id, start_time_unix_nano=began, end_time_unix_nano=began + 1),
        span(
            SpanName.JOB_RUN,
            job_id=job_id,
            start_time_unix_nano=began + 2,
            status=Status(code=Status.StatusCode.STATUS_CODE_ERROR, message="no such model"),
            events=[Span.Event(time_unix_nano=began + 3, name=EXCEPTION_EVENT, attributes=pairs(exception))],
            attributes={Key.ERROR_TYPE: "ValueError"},
        ),
        span(
            SpanName.JOB_DELIVER,
            job_id=job_id,
            attributes={Key.HTTP_STATUS: 200, Key.DELIVER_ATTEMPT: 1, Key.DELIVER_LAST: True},
        ),
    ).SerializeToString()


async def test_a_failed_request_can_be_asked_for_and_is_listed(server: httpx.AsyncClient) -> None:
    sent = await server.post("/v1/traces", content=failed_run("job/1"), headers=PROTOBUF)
    assert sent.status_code == 200
    answer = (await server.get("/api/v1/jobs/job%2F1")).json()
    assert (answer["job_id"], answer["state"], answer["verdict"]["code"]) == ("job/1", "failed", "handler_failed")
    assert "no such model" in str(answer["verdict"]["evidence"])

    async def listed() -> bool:
        items = (await server.get("/api/v1/jobs")).json()["items"]
        return [item["job_id"] for item in items] == ["job/1"]

    await eventually(listed)
    page = await server.get("/jobs/job%2F1", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "no such model" in page.text


async def test_two_halves_over_one_store(clickhouse: ClickHouseServer) -> None:
    """The dashboard's half needs no more than to read."""
    settings = Settings(database_url=SecretStr(server_url(clickhouse)))
    db = await Database.open(settings)
    await migrate.apply(db, retention_days=14)
    reading = Settings(
        database_url=SecretStr(settings.database_url.get_secret_value().replace("stallscope:", "reader:"))
    )
    async with (
        served(asgi.collector_only(settings)) as collector,
        served(asgi.dashboard_only(reading)) as dashboard,
    ):
        assert (await collector.post("/v1/traces", content=failed_run("job-2"), headers=PROTOBUF)).status_code == 200
        assert (await dashboard.get("/readyz")).status_code == 200
        assert (await dashboard.get("/api/v1/jobs/job-2")).json()["verdict"]["code"] == "handler_failed"
        assert (await dashboard.post("/v1/traces", content=b"", headers=PROTOBUF)).status_code == 404
        assert (await collector.get("/jobs/job-2")).status_code == 404
    await db.close()


@pytest.mark.parametrize("kind", [asgi.server, asgi.collector_only, asgi.dashboard_only])
async def test_every_server_says_how_it_is(kind: object, clickhouse: ClickHouseServer) -> None:
    assert callable(kind)
    app: FastAPI = kind(Settings(database_url=SecretStr(server_url(clickhouse))))
    async with served(app) as client:
        for path in ("/healthz", "/metrics"):
            assert (await client.get(path)).status_code == 200
        unready = await client.get("/readyz")
        assert unready.status_code == 503
        assert "stallscope migrate" in unready.json()["reason"]
        assert PASSWORD not in unready.text
