"""A real worker of the real SDK as a process, its records read from the event file that it was handed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from collector.demo.platform import Platform, worker_env
from sdk_exporter import spool

INSTRUMENT = "import sdk_exporter\nsdk_exporter.instrument()\n"
PATIENCE_SECONDS = 90.0
CHANNELS = ("job_take", "stop_channel")


class ObservedWorker:
    """The process, and what it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path, name: str, platform: Platform) -> None:
        self.process, self.directory, self.name, self.platform = process, directory, name, platform

    @property
    def endpoint(self) -> str:
        return self.name

    def records(self) -> list[dict[str, Any]]:
        data = (self.directory / "events").read_bytes()
        records, consumed, damaged = spool.decode(data, at_end=True)
        assert (consumed, damaged) == (len(data), 0)
        return records

    def dropped(self) -> int:
        """Records that did not fit."""
        page = (self.directory / "page").read_bytes()
        return int.from_bytes(page[spool.Page.DROPPED : spool.Page.DROPPED + 8], "little")

    def loop_beat_ns(self) -> int:
        """When the worker's event loop beat last, by the machine's monotonic clock; 0: no loop runs."""
        return self._beat_ns(spool.Page.LOOP_BEAT)

    def progress_beat_ns(self) -> int:
        """When a handler gave its last sign, by the same clock."""
        return self._beat_ns(spool.Page.PROGRESS_BEAT)

    def _beat_ns(self, offset: int) -> int:
        page = (self.directory / "page").read_bytes()
        return int.from_bytes(page[offset : offset + 8], "little")

    def output(self) -> str:
        return (self.directory / "output").read_text(errors="replace")

    async def submit(self, **given: Any) -> str:
        """Id of a new request."""
        address = f"{self.platform.base}/v2/{self.endpoint}/run"
        async with aiohttp.ClientSession() as session, session.post(address, json={"input": given}) as answer:
            return str((await answer.json())["id"])

    async def cancel(self, job_id: str) -> None:
        address = f"{self.platform.base}/v2/{self.endpoint}/cancel/{job_id}"
        async with aiohttp.ClientSession() as session, session.post(address) as answer:
            assert answer.status == 200

    async def finish(self, **given: Any) -> str:
        """Submit, and wait for the platform to know the result."""
        job_id = await self.submit(**given)
        await self.platform.wait_status(job_id, seconds=PATIENCE_SECONDS)
        return job_id

    async def wait_for(self, condition: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Until the records fulfil the condition."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition(self.records()):
            assert time.monotonic() < deadline, f"no {what} in {self.records()}\n{self.output()}"
            await asyncio.sleep(0.05)

    async def wait_output(self, text: str) -> None:
        await self.wait_for(lambda _: text in self.output(), f"output {text!r}")

    async def wait_span(self, name: str, *, count: int = 1, kind: str = "end") -> None:
        def enough(records: list[dict[str, Any]]) -> bool:
            return sum(record["k"] == kind and record.get("n") == name for record in records) >= count

        await self.wait_for(enough, f"{kind} of {name}")

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE_SECONDS)

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.exit_code()


@asynccontextmanager
async def observed_worker(
    platform: Platform,
    directory: Path,
    code: str,
    *,
    instrumented: bool = True,
    environ: dict[str, str] | None = None,
    command: Iterable[str] = (sys.executable,),
    unread_bytes: int = 0,
) -> AsyncIterator[ObservedWorker]:
    """A worker that runs `code` (below the two lines that instrument it) on an endpoint of its own.

    `unread_bytes`: how much lies in the event file already, that no recorder has read.
    """
    name = f"w-{uuid.uuid4().hex[:8]}"
    directory = directory / name
    directory.mkdir()
    (directory / "handler.py").write_text((INSTRUMENT if instrumented else "#\n#\n") + textwrap.dedent(code))
    events = os.open(directory / "events", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    os.ftruncate(events, unread_bytes)
    page = os.open(directory / "page", os.O_CREAT | os.O_RDWR)
    os.ftruncate(page, spool.PAGE_BYTES)
    output = os.open(directory / "output", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    status = os.fstat(events)
    foreign = ("RUNPOD", "OTEL", "STALLSCOPE")
    process = await asyncio.create_subprocess_exec(
        *command,
        str(directory / "handler.py"),
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith(foreign)},
            **worker_env(platform.base, name, name, home=str(directory)),
            "RUNPOD_LOG_LEVEL": "INFO",
            spool.ENVIRONMENT_KEY: f"{events},-1,{page},{status.st_dev},{status.st_ino},{os.getpid()}",
            **(environ or {}),
        },
        cwd=directory,
        pass_fds=(events, page),
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        yield ObservedWorker(process, directory, name, platform)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # heartbeats outlive a killed worker
        except ProcessLookupError:
            pass
        await process.wait()
        for descriptor in (events, page, output):
            os.close(descriptor)


class Story:
    """Records as a reader would tell them: ids by name, times checked and left out, the job by a letter."""

    def __init__(self, records: list[dict[str, Any]], directory: Path) -> None:
        self._directory = str(directory)
        self._labels: dict[str, str] = {}
        self._jobs: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self.told = [self._tell(record) for record in records]

    def _label(self, name: str, span_id: str) -> str:
        if span_id not in self._labels:
            self._counts[name] = self._counts.get(name, 0) + 1
            count = self._counts[name]
            self._labels[span_id] = name if count == 1 else f"{name}#{count}"
        return self._labels[span_id]

    def _tell(self, record: dict[str, Any]) -> dict[str, Any]:
        told = dict(record)
        moment, began = told.pop("t"), told.pop("t0", None)
        assert isinstance(moment, int)
        assert began is None or began <= moment
        assert isinstance(told.pop("pid"), int)
        if "id" in told:
            told["id"] = self._label(told["n"], told["id"])
            del told["n"]
        if "pa" in told:
            told["pa"] = self._labels[told["pa"]]
        if "j" in told:
            told["j"] = self._jobs.setdefault(told["j"], "ABCDEFGH"[len(self._jobs)])
        if "tr" in told:
            trace = told.pop("tr")
            named = f"trace of {told.get('j', 'boot')}"
            assert self._labels.setdefault(trace, named) == named
        if "li" in told:
            told["li"] = [self._labels[told["li"][0]], self._labels[told["li"][1]]]
        if "a" in told:
            told["a"] = {key.removeprefix("stallscope."): self._value(value) for key, value in told["a"].items()}
        if "x" in told:
            told["x"] = {key: value.replace(self._directory, "DIR") for key, value in told["x"].items()}
        return told

    def _value(self, value: Any) -> Any:
        if isinstance(value, float):
            assert value >= 0
            return "seconds"
        if isinstance(value, list):
            return [self._jobs.get(item, item) for item in value]
        return value


def story(worker: ObservedWorker, *, job_id: str | None = None, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """What happened to one job, or (by span names) with the worker; without resources and channel reports."""
    wanted = tuple(names)
    records = [record for record in worker.records() if record["k"] not in ("resource", "out")]
    told = Story([record for record in records if record.get("n") not in CHANNELS], worker.directory).told
    kept = [record for record in records if record.get("n") not in CHANNELS]
    return [
        text
        for record, text in zip(kept, told, strict=True)
        if (job_id is not None and record.get("j") == job_id) or (wanted and record.get("n") in wanted)
    ]


def spans(worker: ObservedWorker, name: str) -> list[dict[str, Any]]:
    """Ended spans and instants of a name, as written."""
    return [record for record in worker.records() if record["k"] in ("end", "point") and record.get("n") == name]
