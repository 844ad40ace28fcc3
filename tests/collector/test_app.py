"""The application around the routes: it comes up, says how it is, and answers errors in the asker's form."""

from __future__ import annotations

import httpx


async def test_is_ready_once_the_store_answers_and_has_its_tables(server: httpx.AsyncClient) -> None:
    assert (await server.get("/healthz")).json() == {"status": "ok"}
    ready = await server.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
