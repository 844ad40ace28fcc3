"""How long starts usually take outlives the server."""

from __future__ import annotations

import time

import httpx
from scripted import ENDPOINT

from collector.clickhouse import Database
from collector.platform.spans import Starts, message_of, worker_span
from collector.platform.starts import stored_starts, usual
from collector.platform.views import Endpoint, Worker


async def test_stored_starts_are_found_again(server: httpx.AsyncClient, db: Database) -> None:
    now_ns, endpoint = time.time_ns(), Endpoint(ENDPOINT)
    told = [worker_span(endpoint, Worker(f"w{n}", "IDLE"), now_ns + n, float(n)) for n in range(1, 21)]
    told.append(worker_span(endpoint, Worker("w0", "INITIALIZING"), now_ns, None))
    body = message_of([*told, told[3]]).SerializeToString()
    for _ in range(2):  # sent twice, counted once
        answer = await server.post("/v1/traces", content=body, headers={"Content-Type": "application/x-protobuf"})
        assert answer.status_code == 200
    found = await stored_starts(db, "default", [ENDPOINT, "another"])
    assert found == {ENDPOINT: [float(n) for n in range(1, 21)]}
    assert usual(found[ENDPOINT]) == Starts(20, 20.0)
    assert usual(found[ENDPOINT][:4]) is None
    assert await stored_starts(db, "somebody-else", [ENDPOINT]) == {}
