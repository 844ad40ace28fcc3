"""What the demo shows while it plays: a stop channel that dies and a request that is stranded, found by the word of
real workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from collector.demo.platform import running_platform
from collector.demo.scenarios import SCENARIOS
from collector.demo.show import Outcome, play_all, running_server

LIVE = ("stop-channel-fails", "stranded-claim")


@pytest.mark.timeout(900)
async def test_a_dead_stop_channel_and_a_stranded_claim_turn_up_on_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    chosen = [scenario for scenario in SCENARIOS if scenario.name in LIVE and not scenario.slow]
    assert len(chosen) == len(LIVE), "the demo plays both without --all"
    async with (
        running_server(f"chdb://{tmp_path / 'store'}") as server,
        running_platform() as platform,
        httpx.AsyncClient(base_url=server, trust_env=False, headers={"accept": "text/html"}, timeout=60) as client,
    ):
        playing = asyncio.create_task(play_all(chosen, platform, server))

        await _shown(client, playing, "/stop-channels", "Stop channel of endpoint stop-channel-fails is dead on 1 of 1")
        await _shown(client, playing, "/alerts", "rule DeadStopChannel", "rule StrandedClaims")
        outcomes = await playing
        assert [outcome.problem for outcome in outcomes] == ["", ""]
        alerts = {alert["rule"]: alert for alert in (await client.get("/alerts.json")).json()["items"]}
        assert alerts["DeadStopChannel"]["endpoint_id"] == "stop-channel-fails"
        assert (
            "(HTTP 500, text/plain). 1 cancelled request is still running and billing."
            in (alerts["DeadStopChannel"]["sentence"])
        )
        assert alerts["StrandedClaims"]["endpoint_id"] == "stranded-claim"
        stranded = {outcome.scenario.name: outcome.answers for outcome in outcomes}["stranded-claim"]
        assert alerts["StrandedClaims"]["job_ids"] == [answer["job_id"] for answer in stranded]


async def _shown(client: httpx.AsyncClient, playing: asyncio.Task[list[Outcome]], page: str, *words: str) -> None:
    """Look at the page until it shows these words; the play itself fails by name when what it waits for never comes."""
    text = ""
    while not all(word in text for word in words):
        assert not playing.done(), f"{page} never showed {words}: {playing.result()}"
        await asyncio.sleep(0.3)
        text = (await client.get(page)).text
