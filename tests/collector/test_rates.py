"""A token over its rate is told to wait, and nobody else."""

from __future__ import annotations

import grpc
import httpx
import pytest
from clickhouse_server import ClickHouseServer
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from otlp_bytes import PROTOBUF, request_of, span
from parts import Clock, served, server_url
from pydantic import SecretStr

from collector import ingest, migrate
from collector.app import create_app
from collector.clickhouse import Database
from collector.errors import RateLimited
from collector.otlp_grpc import GrpcEdge
from collector.rates import BURST_SECONDS, Rates
from collector.settings import Settings


def test_an_account_is_refilled_with_time_and_never_beyond_a_burst(clock: Clock) -> None:
    rates = Rates(100, lambda: clock.now.timestamp())
    rates.charge(b"a", int(100 * BURST_SECONDS) + 250)
    with pytest.raises(RateLimited) as refused:
        rates.admit(b"a")
    assert refused.value.retry_after_seconds == pytest.approx(2.5, abs=0.01)
    rates.admit(b"b")  # another token's account is its own
    rates.admit(None)  # a server without tokens limits nobody
    clock.advance(2.6)
    rates.admit(b"a")
    clock.advance(10_000)
    rates.charge(b"a", int(100 * BURST_SECONDS) + 1)
    with pytest.raises(RateLimited):
        rates.admit(b"a")


def test_no_rate_is_no_limit(clock: Clock) -> None:
    rates = Rates(0, lambda: clock.now.timestamp())
    rates.charge(b"a", 10**9)
    rates.admit(b"a")


async def test_only_the_token_over_its_rate_waits_over_either_way_in(
    clickhouse: ClickHouseServer, clock: Clock
) -> None:
    settings = Settings(
        database_url=SecretStr(server_url(clickhouse)), ingest_tokens=SecretStr("acme:in-a,acme:in-b"), ingest_rate=2
    )
    db = await Database.open(settings)
    await migrate.apply(db, retention_days=14)
    edge = GrpcEdge("127.0.0.1", 0)
    app = create_app(settings, [ingest.router], edges=[edge.open], monotonic=lambda: clock.now.timestamp())
    body = request_of(*[span() for _ in range(24)]).SerializeToString()

    async def send(client: httpx.AsyncClient, secret: str) -> httpx.Response:
        headers = {**PROTOBUF, "authorization": f"Bearer {secret}"}
        return await client.post("/v1/traces", content=body, headers=headers)

    async with served(app) as client, grpc.aio.insecure_channel(f"127.0.0.1:{edge.port}") as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        assert (await send(client, "in-a")).status_code == 200, "a batch is taken whole"
        refused = await send(client, "in-a")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
        assert "STALLSCOPE_INGEST_RATE" in Status.FromString(refused.content).message
        assert (await send(client, "in-b")).status_code == 200
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await export(body, metadata=(("authorization", "Bearer in-a"),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing = dict(caught.value.trailing_metadata() or ())
        wait = RetryInfo()
        assert Status.FromString(trailing["grpc-status-details-bin"]).details[0].Unpack(wait)
        assert wait.retry_delay.seconds == 2
        clock.advance(2.5)
        assert await export(body, metadata=(("authorization", "Bearer in-a"),)) == b""
    await db.close()
