"""The platform's own clients against the stand-in: what they get wrong is recognised from their traffic.

Not pointed here: flash's sentinel calls (`https://` and a host name of its own, whatever the address), which take the
pending reply for the result as well.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from invoke_side import ENDPOINT, InvokeSide

from collector.caller.traffic import SILENCE_SECONDS, Exchange, Habit, Seen, exchanges_of, read_habits

WAIT_SECONDS = 90.0


def habits(side: InvokeSide, later: float = 0.0) -> list[Seen]:
    """What the platform's log shows, so many seconds from now."""
    events = side.do(lambda platform: [event.as_json() for event in platform.events])
    now = max(event["at"] for event in events) + later
    return read_habits(exchanges_of(events), now)


def found(side: InvokeSide, later: float = 0.0) -> set[Habit]:
    return {seen.habit for seen in habits(side, later)}


def wait_until(condition: Callable[[], object], what: str, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail(f"{what}: the client ended: {process.communicate()[1]}")
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture
def client(side: InvokeSide, tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """A program that uses a client; the address is read when the SDK is imported, so each has a process of its own."""

    def start(source: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", source],
            env={
                "RUNPOD_ENDPOINT_BASE_URL": side.url,
                "RUNPOD_API_KEY": "a-key",
                "RUNPOD_URL_MIXED_OK": "1",
                # flash asks these for machines and logs: nobody is there
                "RUNPOD_API_BASE_URL": "http://127.0.0.1:9",
                "RUNPOD_REST_API_URL": "http://127.0.0.1:9",
                "RUNPOD_HAPI_URL": "http://127.0.0.1:9",
                "PATH": "/usr/bin:/bin",
                "HOME": str(tmp_path),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


Start = Callable[[str], "subprocess.Popen[str]"]


def result(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, err
    return out.strip()


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=WAIT_SECONDS)


SDK = f"import runpod\nrunpod.api_key = 'a-key'\nendpoint = runpod.Endpoint({ENDPOINT!r})\n"


def test_the_sdk_as_caller_shows_no_habit_where_it_is_right(client: Start, side: InvokeSide) -> None:
    process = client(SDK + "job = endpoint.run({'input': {'a': 1}})\nprint(job.output(timeout=60))")
    wait_until(lambda: side.count("status"), "no look", process)
    side.become("COMPLETED", output={"b": 2})
    assert result(process) == "{'b': 2}"
    assert habits(side, later=3600) == []


def test_a_stream_of_the_sdk_that_never_ends_after_a_cancellation_is_recognised(
    client: Start, side: InvokeSide
) -> None:
    process = client(SDK + "job = endpoint.run({'input': {'a': 1}})\nfor part in job.stream(): print(part)")
    try:
        wait_until(lambda: side.count("stream"), "no look", process)
        side.become("CANCELLED")
        wait_until(lambda: Habit.ENDLESS_POLLING in found(side), "the endless polling was not recognised")
        assert process.poll() is None
    finally:
        stop(process)
    (seen,) = habits(side)
    assert "told CANCELLED, and has asked" in seen.sentence
    assert seen.job == side.job.id


def test_an_input_that_the_sdk_wraps_twice_is_recognised(client: Start, side: InvokeSide) -> None:
    assert result(client(SDK + "endpoint.run({'input': {}})\nprint('sent')")) == "sent"
    assert side.job.input == {"input": {}}
    assert found(side) == {Habit.DOUBLE_WRAPPED}


def test_an_input_that_the_asynchronous_sdk_wraps_twice_is_recognised(client: Start, side: InvokeSide) -> None:
    source = f"""
import asyncio, runpod
runpod.api_key = "a-key"
from runpod import AsyncioEndpoint, AsyncioJob
import runpod.http_client as http
async def main():
    async with http.AsyncClientSession() as session:
        await AsyncioEndpoint({ENDPOINT!r}, session).run({{"input": {{"a": 1}}}})
asyncio.run(main())
print("sent")
"""
    assert result(client(source)) == "sent"
    assert side.job.input == {"input": {"a": 1}}
    assert found(side) == {Habit.DOUBLE_WRAPPED}


def test_a_held_call_that_the_sdk_hangs_up_on_is_recognised(client: Start, side: InvokeSide) -> None:
    process = client(SDK + "import requests\ntry: endpoint.run_sync({'input': {'a': 1}}, timeout=1)\n"
                     "except requests.exceptions.RequestException as e: print(type(e).__name__)")  # fmt: skip
    assert result(process) in ("ReadTimeout", "ConnectionError")
    wait_until(lambda: Habit.HELD_CALL_ABANDONED in found(side), "the hang-up was not recognised")
    assert side.job.status == "IN_QUEUE"  # and nobody knows its id


FLASH = f"""
import asyncio
from runpod_flash import Endpoint
endpoint = Endpoint(id={ENDPOINT!r})
"""


def test_a_pending_reply_that_flash_returns_as_the_result_is_recognised(client: Start, side: InvokeSide) -> None:
    pytest.importorskip("runpod_flash")
    side.do(lambda platform: setattr(platform, "sync_hold_seconds", 1.0))
    try:
        process = client(FLASH + "job = asyncio.run(endpoint.runsync({'a': 1}))\nprint(job.output)")
        assert result(process) == "None"
    finally:
        side.do(lambda platform: setattr(platform, "sync_hold_seconds", 90.0))
    assert found(side, later=SILENCE_SECONDS / 2) == set()
    (seen,) = habits(side, later=SILENCE_SECONDS + 1)
    assert seen.habit is Habit.PENDING_RETURNED
    assert seen.job == side.job.id


def test_flash_waiting_for_a_request_shows_no_habit(client: Start, side: InvokeSide) -> None:
    pytest.importorskip("runpod_flash")
    source = (
        FLASH
        + """
async def main():
    job = await endpoint.run({"a": 1})
    await job.wait(60)
    print(job.output)
asyncio.run(main())
"""
    )
    process = client(source)
    wait_until(lambda: side.count("status"), "no look", process)
    side.become("COMPLETED", output={"b": 2})
    assert result(process) == "{'b': 2}"
    assert habits(side, later=3600) == []


def test_flash_asking_on_for_ever_after_a_time_out_is_recognised(client: Start, side: InvokeSide) -> None:
    pytest.importorskip("runpod_flash")
    source = f"""
import asyncio, runpod
runpod.api_key = "a-key"
from runpod_flash.core.resources.serverless import ServerlessEndpoint
endpoint = ServerlessEndpoint(name="x", imageName="image:1")
endpoint.id = {ENDPOINT!r}  # as if it were deployed
asyncio.run(endpoint.run({{"input": {{"a": 1}}}}))
"""
    process = client(source)
    try:
        wait_until(lambda: side.count("status"), "no look", process)
        side.become("TIMED_OUT")
        wait_until(lambda: Habit.ENDLESS_POLLING in found(side), "the endless polling was not recognised", process)
    finally:
        stop(process)


def test_habits_are_not_seen_where_there_are_none() -> None:
    def one(at: float, route: str, said: str, ended: float | None = None) -> Exchange:
        return Exchange(at, at if ended is None else ended, route, "j", said)

    pending = one(0, "runsync", "IN_PROGRESS", 90)
    assert read_habits([pending], 100) == []
    assert [seen.habit for seen in read_habits([pending], 130)] == [Habit.PENDING_RETURNED]
    assert read_habits([pending, one(95, "status", "COMPLETED")], 1e6) == []
    assert read_habits([one(0, "runsync", "COMPLETED")], 1e6) == []
    assert read_habits([one(0, "run", "IN_QUEUE")], 1e6) == []
    looks = [one(at, "status", "TIMED_OUT") for at in range(4)]
    assert read_habits(looks, 1e6) == []
    assert [seen.habit for seen in read_habits([*looks, one(9, "status", "TIMED_OUT")], 10)] == [Habit.ENDLESS_POLLING]
    retried = [*looks, one(5, "status", "IN_QUEUE")]
    assert read_habits(retried, 1e6) == []
