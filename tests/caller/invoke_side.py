"""The platform stand-in in a thread, a clock that jumps over pauses, and the command line in this process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from click.testing import CliRunner

from collector.caller import Endpoint, Timing, Watcher
from collector.cli import main
from collector.demo.platform import Fault, Job, Platform, PlatformEvent, running_platform

ENDPOINT = "endpoint-1"
THREAD_SECONDS = 60.0

T = TypeVar("T")


class InvokeSide:
    """The stand-in, used from a test that blocks: it runs in a thread of its own."""

    def __init__(self, platform: Platform, loop: asyncio.AbstractEventLoop) -> None:
        self.platform = platform
        self.url = f"{platform.base}/v2"
        self._loop = loop

    def do(self, work: Callable[[Platform], T]) -> T:
        async def run() -> T:
            return work(self.platform)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(THREAD_SECONDS)

    def arm(self, route: str, *faults: Fault) -> None:
        def arm_all(platform: Platform) -> None:
            for fault in faults:
                platform.arm(route, fault)

        self.do(arm_all)

    def answer(self, route: str, body: str | dict[str, Any], *, status: int = 200, times: int = 1) -> None:
        """Answer the next calls with exactly this body."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.arm(route, Fault(status=status, times=times, body=text, content_type="application/json"))

    def events(self, kind: str) -> list[PlatformEvent]:
        return self.do(lambda platform: platform.find_events(kind))

    def count(self, kind: str) -> int:
        return len(self.events(kind))

    @property
    def job(self) -> Job:
        """The newest request."""
        return self.do(lambda platform: next(reversed(platform.jobs.values())))

    def become(self, status: str, **fields: Any) -> None:
        """The newest request is as told from now on."""
        job = self.job

        def change(platform: Platform) -> None:
            job.status = status
            if status == "IN_QUEUE":
                job.taken = None
            elif job.taken is None:
                job.taken, job.worker = time.monotonic(), "worker-1"
            if status in ("COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"):
                job.ended = time.monotonic()
            for name, value in fields.items():
                setattr(job, name, value)

        self.do(change)


@contextmanager
def invoke_side() -> Iterator[InvokeSide]:
    """A stand-in with no worker; it ends with the block."""
    started: list[InvokeSide] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running_platform() as platform:
            started.append(InvokeSide(platform, asyncio.get_running_loop()))
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(THREAD_SECONDS)
    try:
        yield started[0]
    finally:
        over.set()
        thread.join(THREAD_SECONDS)


class JumpingTime:
    """A clock that jumps over pauses; `chance` is one half, so there is no jitter.

    It also goes on with real time, for tests of calls that hang; `steady` stands still between pauses, for tests that
    count.
    """

    def __init__(self, *, steady: bool = False) -> None:
        self._steady = steady
        self.pauses: list[float] = []
        self._jumped = 0.0
        self._plans: list[tuple[float, Callable[[], None]]] = []
        self._began = time.monotonic()
        self.timing = Timing(self.monotonic, self.sleep, lambda: 0.5)

    def monotonic(self) -> float:
        return (self._began if self._steady else time.monotonic()) + self._jumped

    @property
    def passed(self) -> float:
        return round(self.monotonic() - self._began, 6)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.pauses.append(seconds)
        self._jumped += seconds
        due = [plan for plan in self._plans if plan[0] <= self.passed]
        self._plans = [plan for plan in self._plans if plan not in due]
        for _, happen in due:
            happen()

    def at(self, seconds: float, happen: Callable[[], None]) -> None:
        """Let something happen in the first pause that ends so late."""
        self._plans.append((seconds, happen))


class Heard(Watcher):
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.healths: list[bytes] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def health(self, body: bytes) -> None:
        self.healths.append(body)


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def error(self) -> dict[str, Any]:
        """The error line of --json."""
        line: dict[str, Any] = json.loads(self.err.splitlines()[-1])
        return line


def stallscope(*arguments: str, clock: JumpingTime | None = None, stdin: bytes | None = None) -> Done:
    """The command line in this process, on the clock given."""
    timing = (clock or JumpingTime()).timing
    done = CliRunner().invoke(main, list(arguments), input=stdin, obj=timing)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return Done(done.exit_code, done.stdout_bytes, done.stderr)


def endpoint_of(side: InvokeSide, clock: JumpingTime, heard: Watcher | None = None, name: str = ENDPOINT) -> Endpoint:
    return Endpoint(name, invoke_url=side.url, api_key="a-key", timing=clock.timing, watcher=heard)
