"""Where one scenario plays: an endpoint of its own, real worker processes on it, and a caller.

Nothing here waits for a time to pass: a scenario goes on when the platform has seen something, a worker has written a
line, or a process has ended, and fails by name when that does not come.
"""

from __future__ import annotations

import asyncio
import os
import signal
import site
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import httpx

from collector.demo.caller import Caller
from collector.demo.platform import Platform, worker_env

WORKERS: Final = Path(__file__).parent / "workers"
FLUSH_SECONDS: Final = 15
"""How long a worker's recorder may take to hand everything in; the machine may be busy with other workers."""
WAIT_SECONDS: Final = 120.0
END_SECONDS: Final = 20.0
RELEASED_HOLD_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 0.5
LINES_KEPT: Final = 2_000
READ_BYTES: Final = 65_536
SETTINGS_OF_OTHERS: Final = ("STALLSCOPE_", "OTEL_", "RUNPOD_")
"""Prefixes of variables that a demo worker must not inherit: they were set for something else."""


def descendants(pid: int) -> list[int]:
    """Processes that `pid` started, and those that they did. Empty where it has ended."""
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    found, look = list[int](), [pid]
    while look:
        below = children.get(look.pop(), [])
        found += below
        look += below
    return found


def _parents() -> list[tuple[int, int]]:
    """All processes and their parents."""
    if not Path("/proc/self/stat").exists():
        told = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        return [(int(pid), int(parent)) for pid, parent in (line.split() for line in told.splitlines())]
    pairs = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pairs.append((int(stat.parent.name), int(fields[1])))
    return pairs


def kill(pids: Iterable[int]) -> None:
    """Kill processes, each with its group where it leads one: what it forks meanwhile goes too."""
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class WorkerProcess:
    """A worker under way: what it wrote, and how to end it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._written = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """The last lines that it wrote, both streams."""
        return "\n".join(self._lines)

    async def wait_line(self, text: str, *, seconds: float = WAIT_SECONDS) -> str:
        """The first kept line that holds `text`. Raises TimeoutError with what came instead."""

        async def found() -> str:
            while True:
                self._written.clear()
                for line in self._lines:
                    if text in line:
                        return line
                await self._written.wait()

        try:
            return await asyncio.wait_for(found(), seconds)
        except asyncio.TimeoutError:
            raise TimeoutError(
                f"waited {seconds:g} s for the line {text!r}; the worker wrote:\n{self.output}"
            ) from None

    async def wait_exit(self, *, seconds: float = WAIT_SECONDS) -> int:
        """The exit code once it has ended (negative: the signal). Raises TimeoutError."""
        try:
            return await asyncio.wait_for(self._process.wait(), seconds)
        except asyncio.TimeoutError:
            raise TimeoutError(f"waited {seconds:g} s for the worker to end; it wrote:\n{self.output}") from None

    def terminate(self) -> None:
        """Ask it to shut down, as the platform does."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def end(self, *, at_once: bool = False) -> None:
        """Shut it down, and see that nothing of it is left. `at_once`: what it would still tell is not needed."""
        if not at_once:
            self.terminate()
            try:
                await self.wait_exit(seconds=END_SECONDS)
            except TimeoutError:
                at_once = True
        if at_once:
            kill([self.pid, *descendants(self.pid)])
            await self._process.wait()
        self._reading.cancel()

    async def _read(self) -> None:
        stream, rest = self._process.stdout, ""
        while stream is not None and (chunk := await stream.read(READ_BYTES)):
            *lines, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
            rest = rest[-READ_BYTES:]
            self._lines.extend(lines)
            self._written.set()
        self._lines.append(rest)
        self._written.set()


class Stage:
    """One endpoint with its caller and workers. Leaving it ends the workers and hands the caller's spans in."""

    def __init__(
        self, platform: Platform, collector_base: str, directory: Path, endpoint: str, *, handler_logs: bool
    ) -> None:
        """`directory`: an empty one for this stage alone: the workers' home, models and spool."""
        self.platform = platform
        self.endpoint = endpoint
        self.has_told_all = False
        """Set when nothing more of the workers is needed: they are killed then, not asked to leave."""
        self.caller = Caller(platform.base, collector_base, endpoint)
        self._collector_base = collector_base
        self._directory = directory
        self._handler_logs = handler_logs
        self._workers: list[WorkerProcess] = []
        self._starting: list[asyncio.Task[WorkerProcess]] = []

    async def __aenter__(self) -> Stage:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*self._starting, return_exceptions=True)
        at_once = self.has_told_all or (kind is not None and issubclass(kind, asyncio.CancelledError))
        for worker in () if at_once else self._workers:
            worker.terminate()
        self.platform.hold(self.endpoint, RELEASED_HOLD_SECONDS, stop_seconds=RELEASED_HOLD_SECONDS)
        await asyncio.gather(*(worker.end(at_once=at_once) for worker in self._workers))
        await self.caller.__aexit__(kind, error, trace)

    async def start_worker(
        self, script: str, *, launcher: bool = True, settings: Mapping[str, str] | None = None
    ) -> WorkerProcess:
        """A worker of this endpoint: under the launcher, or alone with its own `instrument()`."""
        # A task of its own, which a cancellation does not reach: a process half started would be left behind.
        starting = asyncio.create_task(self._start_worker(script, launcher=launcher, settings=settings or {}))
        self._starting.append(starting)
        return await asyncio.shield(starting)

    async def _start_worker(self, script: str, *, launcher: bool, settings: Mapping[str, str]) -> WorkerProcess:
        worker_id = f"{self.endpoint}-worker-{len(self._workers) + 1}"
        command = [sys.executable, "-u", str(WORKERS / f"{script}.py")]
        if launcher:
            command = [sys.executable, "-m", "sdk_exporter", "--flush", str(FLUSH_SECONDS), "--", *command]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._directory,
            env={**self._environment(os.environ, worker_id), **settings},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        worker = WorkerProcess(process)
        self._workers.append(worker)
        return worker

    async def submit(self, **given: Any) -> str:
        """Send a request whose input is the keyword arguments; its id."""
        return await self.caller.submit({"input": given})

    async def ended(self, job_id: str, *statuses: str) -> str:
        """Wait until the platform has the job at one of the statuses (default: any terminal one), and poll it."""
        await self.platform.wait_status(job_id, *statuses, seconds=WAIT_SECONDS)
        return str((await self.caller.poll(job_id))["status"])

    async def seen(self, kind: str, *, job: str = "", count: int = 1) -> None:
        """Wait until the platform has seen an event on this endpoint."""
        await self.platform.wait_event(kind, endpoint=self.endpoint, job=job, count=count, seconds=WAIT_SECONDS)

    async def found(self, code: str) -> None:
        """Wait until the server tells of an open finding of this kind about this endpoint. Raises TimeoutError."""
        asked = {"code": code, "endpoint": self.endpoint, "state": "open"}
        deadline = time.monotonic() + WAIT_SECONDS
        async with httpx.AsyncClient(base_url=self._collector_base, trust_env=False, timeout=WAIT_SECONDS) as client:
            while not (await client.get("/api/v1/findings", params=asked)).raise_for_status().json()["items"]:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"waited {WAIT_SECONDS:g} s for the finding {code}")
                await asyncio.sleep(LOOK_SECONDS)

    def download_ends(self, name: str) -> None:
        """Let a file appear in the workers' model directory."""
        models = self._directory / "models"
        models.mkdir(exist_ok=True)
        (models / name).touch()

    def _environment(self, environ: Mapping[str, str], worker_id: str) -> dict[str, str]:
        inherited = {name: value for name, value in environ.items() if not name.startswith(SETTINGS_OF_OTHERS)}
        return inherited | {
            **worker_env(self.platform.base, self.endpoint, worker_id, home=str(self._directory)),
            "PYTHONUSERBASE": site.getuserbase(),  # packages of the user stay found under another HOME
            "MODEL_DIR": str(self._directory / "models"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": self._collector_base,
            "NO_PROXY": "127.0.0.1,localhost",
            **({"STALLSCOPE_HANDLER_LOGS": "on"} if self._handler_logs else {}),
        }
