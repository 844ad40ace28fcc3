"""Health of the two polls: what a report says, under a clock of our own and of real polls that go wrong in silence."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from observed_worker import ObservedWorker, observed_worker, spans

from collector.demo.platform import Fault, Platform
from sdk_exporter import spool
from sdk_exporter.contract import ChannelViolation, Key, SpanName
from sdk_exporter.hooks import channels
from sdk_exporter.hooks.channels import Channel, Poll

Read = Callable[[], list[dict[str, Any]]]


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Polled:
    """A channel and its polls, each of which takes a second of our clock unless told otherwise."""

    def __init__(self, name: str = SpanName.STOP_CHANNEL) -> None:
        self.clock = Clock()
        self.channel = Channel(name, self.clock)

    def _poll(self, seconds: float, status: int | None, content_type: str = "") -> Poll:
        poll = Poll(self.clock)
        poll.status, poll.content_type = status, content_type
        self.clock.now += seconds
        return poll

    def ok(self, seconds: float = 1.0, **told: Any) -> None:
        self.channel.answered(self._poll(seconds, 204), is_empty=True, is_idle=True, **told)

    def fails(self, seconds: float = 1.0, *, status: int | None = 500, error: BaseException | None = None) -> None:
        self.channel.failed(self._poll(seconds, status), error or OSError())


def reports(read: Read) -> list[tuple[str, int, int]]:
    told = [record["a"] for record in read()]
    return [(a.get(Key.CHANNEL_STATE, ""), a[Key.CHANNEL_POLLS], a[Key.CHANNEL_CONSECUTIVE_FAILURES]) for a in told]


def test_a_channel_reports_its_death_and_the_second_valid_answer_after_it(written: Read) -> None:  # A40, A48
    polled = Polled()
    polled.ok()
    polled.fails(10)
    polled.fails(10)
    polled.fails(9)  # 29 s and three polls: not yet
    assert reports(written) == [("ok", 1, 0), ("failing", 1, 1)]
    polled.fails(1)
    polled.fails(1)
    polled.ok()
    polled.ok()
    polled.ok()
    assert reports(written)[2:] == [
        ("failing", 3, 4),  # dead: 30 s without a valid answer
        ("ok", 2, 0),  # the first valid answer
        ("ok", 1, 0),  # the second, which ends it
    ]


def test_two_polls_without_a_valid_answer_are_no_death_however_long(written: Read) -> None:  # A40
    polled = Polled()
    polled.fails(45)
    polled.fails(45)
    assert reports(written) == [("failing", 1, 1)]
    polled.fails(1)
    assert reports(written) == [("failing", 1, 1), ("failing", 2, 3)]


def test_a_flapping_channel_is_told_thirty_times_a_minute_at_most(written: Read) -> None:
    polled = Polled()
    for _ in range(100):
        polled.fails(0.25)
        polled.ok(0.25)
    assert len(reports(written)) == channels.CHANGES_PER_REPORT_TIME


def test_a_channel_that_spins_is_told_once_with_its_rate(written: Read) -> None:  # A41
    polled = Polled(SpanName.JOB_TAKE)
    for _ in range(500):
        polled.ok(0.01)
    assert [state for state, _, _ in reports(written)] == ["ok", "spinning"]
    polled.channel.answered(polled._poll(0.0, 200))
    assert reports(written)[-1][:2] == ("ok", 461)
    assert written()[-1]["a"][Key.CHANNEL_RATE_PER_SECOND] == pytest.approx(100, rel=0.01)


def test_polls_that_are_answered_at_once_are_no_spin_where_the_sdk_pauses(written: Read) -> None:  # A41, A45
    """Nobody holds the poll; a second's pause between two is all that keeps it from spinning."""
    polled = Polled()
    for _ in range(61):
        polled.ok(0.0)
        polled.clock.now += 1.0
    told = written()[-1]["a"]
    assert reports(written) == [("ok", 1, 0), ("ok", 60, 0)]
    assert told[Key.CHANNEL_HOLD_SECONDS_P50] == 0.0
    assert told[Key.CHANNEL_RATE_PER_SECOND] == pytest.approx(1.0)
    assert (told[Key.CHANNEL_EMPTY], told[Key.HTTP_STATUS]) == (60, 204)


def test_another_violation_is_a_change(written: Read) -> None:
    polled = Polled()
    for violation in (ChannelViolation.PARSE, ChannelViolation.PARSE, ChannelViolation.WRONG_KEY):
        polled.ok(violation=violation)
    told = [record["a"][Key.CHANNEL_VIOLATION] for record in written()]
    assert told == ["parse", "wrong_key"]


def test_no_poll_at_all_is_told_each_minute(written: Read) -> None:
    """Where the first poll never ends there is no state yet; its age says the rest."""
    polled = Polled()
    polled.channel.tick()
    polled.channel.expected()
    for _ in range(13):
        polled.channel.tick()
        polled.clock.now += 10
    assert reports(written) == [("", 0, 0), ("", 0, 0)]
    assert [record["a"][Key.CHANNEL_LAST_OK_AGE_SECONDS] for record in written()] == [60, 120]
    polled.ok()
    assert reports(written)[-1] == ("ok", 1, 0)
    for _ in range(7):
        polled.clock.now += 10
        polled.channel.tick()
    assert reports(written)[-1] == ("ok", 0, 0)
    assert written()[-1]["a"][Key.CHANNEL_LAST_OK_AGE_SECONDS] == 60


def test_a_report_says_what_the_newest_answer_was(written: Read) -> None:
    polled = Polled()
    polled.fails(status=503)
    polled.channel.answered(polled._poll(1, 200, "text/html" + "x" * 500), violation=ChannelViolation.CONTENT_TYPE)
    polled.fails(status=None, error=ConnectionRefusedError())
    polled.ok()
    polled.fails(status=200, error=asyncio.CancelledError())
    newest = [
        (a.get(Key.HTTP_STATUS), a.get(Key.HTTP_CONTENT_TYPE), a.get(Key.ERROR_TYPE))
        for a in (record["a"] for record in written())
    ]
    assert newest == [
        (503, None, "503"),
        (200, ["text/html" + "x" * 91], None),
        (None, None, "ConnectionRefusedError"),
        (204, None, None),
        (200, None, "timeout"),
    ]


# ---------------------------------------------------------------------------------------------- real polls, real SDK

PLAIN = """
import runpod

def handler(job):
    return job["input"]

runpod.serverless.start({"handler": handler})
"""


def told(worker: ObservedWorker, name: str) -> list[tuple[Any, ...]]:
    """State, violation, status, content type and error of each report, those alike in a row once."""
    keys = (Key.CHANNEL_STATE, Key.CHANNEL_VIOLATION, Key.HTTP_STATUS, Key.HTTP_CONTENT_TYPE, Key.ERROR_TYPE)
    found = [tuple(record["a"].get(key) for key in keys) for record in spans(worker, name)]
    return [report for at, report in enumerate(found) if at == 0 or found[at - 1] != report]


async def comes(worker: ObservedWorker, name: str, *report: Any, then: tuple[Any, ...] = ()) -> None:
    """Wait for this report, or until the channel's last words are this one and then another."""
    wanted = [report, then]

    def came(_: object) -> bool:
        return told(worker, name)[-2:] == wanted if then else report in told(worker, name)

    await worker.wait_for(came, f"{name} {wanted}")


def states(worker: ObservedWorker, name: str) -> list[str | None]:
    return [report[0] for report in told(worker, name)]


def polls_of(worker: ObservedWorker, name: str) -> list[int]:
    """How many polls each report counts."""
    return [-1, *(record["a"][Key.CHANNEL_POLLS] for record in spans(worker, name))]


async def unpolled(worker: ObservedWorker, name: str) -> None:
    await worker.wait_for(lambda _: polls_of(worker, name)[-1] == 0, f"report of no polls of {name}")


async def spins(worker: ObservedWorker, name: str) -> dict[str, Any]:
    """The attributes of the report that says so."""
    await worker.wait_for(lambda _: "spinning" in states(worker, name), f"spin of {name}")
    return next(r["a"] for r in spans(worker, name) if r["a"].get(Key.CHANNEL_STATE) == "spinning")


JSON = ["application/json"]
OK = ("ok", None, 204, None, None)
BROKEN = Fault(hangup=True, times=2)
"""The connection breaks under a poll, and under the one that the HTTP client makes in its place on a new one."""
VIOLATIONS = [
    ("<html>", "text/html", "content_type"),
    ("{", "application/json", "parse"),
    ("[]", "application/json", "not_object"),
    ('{"jobsToStop": "a"}', "application/json", "not_list"),
    ('{"jobsToStop": [1]}', "application/json", "non_string_ids"),
    ('{"jobs_to_stop": ["a"]}', "application/json", "wrong_key"),
]


async def test_the_stop_channel_tells_each_change_of_its_state_at_once(
    platform: Platform, tmp_path: Path
) -> None:  # A40, A41, A42, A45
    async with (
        observed_worker(platform, tmp_path, PLAIN) as refused,
        observed_worker(platform, tmp_path, PLAIN) as broken,
    ):
        for worker in (refused, broken):
            platform.hold(worker.endpoint, 1.0, stop_seconds=0.1)
            await comes(worker, "stop_channel", *OK)
        await asyncio.gather(told_as_failing(refused), told_as_violating(broken))
        for worker in (refused, broken):
            assert all(r["a"][Key.CHANNEL_HOLD_SECONDS_P50] >= 0 for r in spans(worker, "stop_channel"))
            assert await worker.terminate() == 0


async def told_as_failing(worker: ObservedWorker) -> None:
    faults = [
        (Fault(status=500, times=3), 500, ["text/plain"], "500"),
        (Fault(status=404), 404, ["text/plain"], "404"),
        (Fault(status=429), 429, ["text/plain"], "429"),
        (BROKEN, None, None, "aiohttp.client_exceptions.ServerDisconnectedError"),
    ]
    for fault, status, kind, error in faults:
        worker.platform.arm("job-stop", replace(fault, endpoint=worker.endpoint))
        await comes(worker, "stop_channel", "failing", None, status, kind, error, then=OK)
    reports = [record["a"] for record in spans(worker, "stop_channel")]
    failing, recovered = reports[1:3]
    assert failing[Key.CHANNEL_CONSECUTIVE_FAILURES] == 1
    assert (recovered[Key.CHANNEL_FAILURES], recovered[Key.CHANNEL_CONSECUTIVE_FAILURES]) == (2, 0)


async def told_as_violating(worker: ObservedWorker) -> None:
    for body, content_type, violation in VIOLATIONS:
        worker.platform.send_stop(worker.endpoint, worker.name, body, content_type)
        await comes(worker, "stop_channel", "violating", violation, 200, [content_type], None)
    # A signal for a request that is not here, over and over: the SDK asks again without a pause.
    again = Fault(status=200, times=2_000, body='{"jobsToStop": ["nobody"]}', content_type="application/json")
    worker.platform.arm("job-stop", replace(again, endpoint=worker.endpoint))
    spin = await spins(worker, "stop_channel")
    assert (spin[Key.HTTP_STATUS], spin[Key.HTTP_CONTENT_TYPE]) == (200, JSON)
    assert len(spans(worker, "job.stop")) == 1  # told once, however often it comes


async def test_the_intake_tells_what_it_was_answered(platform: Platform, tmp_path: Path) -> None:
    """The SDK itself writes one line of DEBUG, or none."""
    async with observed_worker(platform, tmp_path, PLAIN) as worker:
        platform.hold(worker.endpoint, 0.3, stop_seconds=1.0)
        await worker.wait_for(lambda _: "ok" in states(worker, "job_take"), "first report")
        answers = [
            (Fault(status=502), ("failing", None, 502, ["text/plain"], "502")),
            (Fault(status=429), ("failing", None, 429, ["text/plain"], "429")),
            (BROKEN, ("failing", None, None, None, "aiohttp.client_exceptions.ServerDisconnectedError")),
            (
                Fault(status=200, body="<html>", content_type="text/html"),
                ("violating", "content_type", 200, ["text/html"], None),
            ),
            (Fault(status=200, body="{", content_type=JSON[0]), ("violating", "parse", 200, JSON, None)),
            (Fault(status=200, body="", content_type=JSON[0]), ("violating", "parse", 200, JSON, None)),
            (Fault(status=200, body='"busy"', content_type=JSON[0]), ("violating", "not_object", 200, JSON, None)),
            (Fault(status=200, body='{"job": 1}', content_type=JSON[0]), ("violating", "wrong_key", 200, JSON, None)),
        ]
        for fault, report in answers:
            platform.arm("job-take", fault)
            await comes(worker, "job_take", *report, then=OK)
        # Nothing of a batch is a valid answer, as is 400 (a worker that was frozen meanwhile).
        platform.arm("job-take", Fault(status=200, body="[]", content_type=JSON[0]))
        platform.arm("job-take", Fault(status=400))
        await worker.wait_for(lambda _: states(worker, "job_take")[-1] == "ok", "health")
        assert platform.jobs[await worker.finish(number=1)].output == {"number": 1}


async def test_an_intake_that_nobody_holds_spins_and_its_rate_is_told(platform: Platform, tmp_path: Path) -> None:
    async with observed_worker(platform, tmp_path, PLAIN) as worker:
        platform.hold(worker.endpoint, 0.0, stop_seconds=1.0)
        spin = await spins(worker, "job_take")
        assert spin[Key.HTTP_STATUS] == 204
        assert spin[Key.CHANNEL_RATE_PER_SECOND] > 10


async def test_a_worker_without_a_stop_channel_says_so(platform: Platform, tmp_path: Path) -> None:  # A43
    async with observed_worker(
        platform,
        tmp_path,
        PLAIN,
        environ={"RUNPOD_WEBHOOK_GET_JOB": f"{platform.base}/v2/nowhere/take/$ID?gpu=NONE"},
    ) as worker:
        await worker.wait_span("stop_channel", kind="point")
        assert states(worker, "stop_channel") == ["disabled"]
        # The SDK asks for requests at an address that does not exist, without a pause.
        spin = await spins(worker, "job_take")
        assert spin[Key.CHANNEL_RATE_PER_SECOND] > 10
        assert (spin[Key.HTTP_STATUS], spin[Key.ERROR_TYPE]) == (404, "404")
        assert len(spans(worker, "job_take")) < 20


ADDRESSES = {
    "https://127.0.0.1:{port}": {"ClientConnectorSSLError"},  # TLS to a port that speaks none
    "http://127.0.0.1:9": {"ClientConnectorError"},
    "http://platform.invalid": {"ClientConnectorDNSError", "ClientConnectorError"},  # before aiohttp 3.10 the latter
}


async def test_an_address_that_cannot_be_reached_is_told_by_its_error(platform: Platform, tmp_path: Path) -> None:
    """TLS, a closed port, a name that nobody knows: one line of ERROR per poll, and nothing at the platform."""
    port = platform.base.rpartition(":")[2]

    async def error_of(base: str) -> set[str]:
        take = f"{base.format(port=port)}/v2/e/job-take/$ID?gpu=NONE"
        async with observed_worker(platform, tmp_path, PLAIN, environ={"RUNPOD_WEBHOOK_GET_JOB": take}) as worker:
            found = set[str]()
            for channel in ("job_take", "stop_channel"):
                await worker.wait_span(channel, kind="point")
                report = spans(worker, channel)[0]["a"]
                assert (report[Key.CHANNEL_STATE], report.get(Key.HTTP_STATUS)) == ("failing", None)
                found.add(report[Key.ERROR_TYPE].removeprefix("aiohttp.client_exceptions."))
            return found

    found = await asyncio.gather(*map(error_of, ADDRESSES))
    assert [len(errors) for errors in found] == [1, 1, 1]
    assert all(errors <= expected for errors, expected in zip(found, ADDRESSES.values(), strict=True)), found


async def test_the_sdks_pauses_and_bounds_are_its_own(tmp_path: Path) -> None:  # A48
    """Seconds of a clock that jumps: 1 after an empty answer or an error, 5 after 429, 90 for one that never comes."""

    async def asked(watched: str) -> list[float]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(__file__).with_name("virtual_time.py")), watched),
            env={**os.environ, "HOME": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
            stdout=asyncio.subprocess.PIPE,
        )
        stdout, _ = await process.communicate()
        return list(json.loads(stdout)["asked"])

    assert await asyncio.gather(asked("with"), asked("without")) == [[0.0, 1.0, 6.0, 7.0, 8.0, 9.0, 99.0]] * 2


SHORT_BOUND = """
from runpod.serverless.modules import rp_scale
init = rp_scale.JobScaler.__init__
def with_a_short_bound(self, config):
    init(self, config)
    self.stop_signals_fetcher_timeout = self.jobs_fetcher_timeout = 0.5
rp_scale.JobScaler.__init__ = with_a_short_bound
"""


async def test_a_poll_that_nobody_answers_is_told_as_timed_out(platform: Platform, tmp_path: Path) -> None:
    """The SDK says so in one line of DEBUG, and asks again. Its bound of 90 s is made shorter here."""
    async with observed_worker(platform, tmp_path, SHORT_BOUND + PLAIN) as worker:
        platform.hold(worker.endpoint, 600.0, stop_seconds=600.0)
        for channel in ("job_take", "stop_channel"):
            await comes(worker, channel, "failing", None, None, None, "timeout")


async def test_a_worker_that_beats_and_polls_no_more_says_so(platform: Platform, tmp_path: Path) -> None:
    """A sync handler holds the loop: neither request nor stop signal can come in, and the process looks healthy."""
    code = "import threading\nfrom sdk_exporter.hooks import channels\nchannels.CHANNEL_REPORT_SECONDS = 1.0\n"
    code += PLAIN.replace("return job", "threading.Event().wait()\n    return job")
    async with observed_worker(platform, tmp_path, code) as worker:
        await worker.submit(number=1)
        await worker.wait_span("job.run", kind="start")
        for channel in ("stop_channel", "job_take"):
            await unpolled(worker, channel)
            assert spans(worker, channel)[-1]["a"][Key.CHANNEL_LAST_OK_AGE_SECONDS] > 0
        page = worker.directory / "page"

        def beat() -> bytes:
            return page.read_bytes()[spool.Page.PROCESS_BEAT :][:8]

        before = beat()
        await worker.wait_for(lambda _: beat() != before, "beat of the process")
