"""A token that floods is slowed alone: whatever it tries, others are served, and what it uses up is bounded."""

from __future__ import annotations

import secrets
import uuid
from pathlib import Path

import httpx
import pytest
from guarded import TOKEN, bearer, export_of, token_settings
from parts import Clock, served

from collector import ingest
from collector.app import create_app
from collector.clickhouse import Database
from collector.rates import BURST_SECONDS
from collector.settings import Settings

RATE = 2


@pytest.fixture
def database_url(embedded_path: Path) -> str:
    """One engine is enough: rates are not the store's."""
    return f"chdb://{embedded_path}?database=test_{uuid.uuid4().hex[:12]}"


async def test_a_flood_is_answered_with_a_time_to_wait_and_stops_nobody_else(
    db: Database, database_url: str, clock: Clock
) -> None:
    settings = Settings(database_url=database_url, ingest_rate=RATE, **token_settings())  # type: ignore[arg-type]
    app = create_app(settings, [ingest.router], monotonic=lambda: clock.now.timestamp())
    burst = int(RATE * BURST_SECONDS)
    async with served(app) as client:

        async def send(headers: dict[str, str], spans: int = 1) -> httpx.Response:
            body = export_of(*[("job.run", {}, False)] * spans, worker="w", endpoint="e")
            return await client.post("/v1/traces", json=body, headers=headers)

        own = TOKEN["attacker", "ingest"]
        assert (await send(bearer("attacker", "ingest"), 3 * burst)).status_code == 200, "what came is taken whole"
        tricks = (own, f" {own} ", f"{own}\t")
        for secret in tricks:
            refused = await send({"authorization": f"bearer {secret}", "x-forwarded-for": secrets.token_hex(4)})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, str(2 * burst // RATE)), secret
        assert (await send(bearer("victim", "ingest"), burst)).status_code == 200
        for _ in range(50):
            assert (await send({"authorization": f"Bearer {secrets.token_hex(8)}"})).status_code == 401
        assert len(app.state.parts.rates._accounts) == 2, "tokens that nobody knows take no memory"
        clock.advance(2 * burst / RATE + 1)
        assert (await send(bearer("attacker", "ingest"))).status_code == 200
