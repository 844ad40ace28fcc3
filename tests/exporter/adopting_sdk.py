"""A shim: the released worker SDK with the prestart hooks and the initializer of its two open proposals patched on.

Neither is in a registry. This has the described shapes only: `register_prestart_hook`, `prestart_timeout`,
`JobScaler._run_prestart`, `_fail_job`, `_claim_one_job_to_fail`; `config["initializer"]`, `init_timeout`,
`JobScaler._run_init`. Imported in the worker before the exporter instruments it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import traceback
from typing import Any

import runpod.serverless as serverless
from runpod.serverless.modules import rp_http, rp_scale

JobScaler = rp_scale.JobScaler
hooks: list[Any] = []


class PrestartTimeout(Exception):
    pass


def register_prestart_hook(hook: Any) -> Any:
    hooks.append(hook)
    return hook


async def call(function: Any) -> None:
    if inspect.iscoroutinefunction(function):
        await function()
    else:
        await asyncio.to_thread(function)


async def run_prestart_hooks_async() -> None:
    for hook in hooks:
        await call(hook)


async def guarded(scaler: Any, session: Any, event: str, phase: Any) -> None:
    """The SDK's side of a phase: open the gate, or fail what is in hand and drain."""
    try:
        await phase
    except BaseException as error:  # noqa: BLE001 - cancelled, exited, raised: the phase failed
        scaler.failure = {
            "event": event,
            "error_type": type(error).__name__,
            "error_message": str(error),
            "error_traceback": traceback.format_exc(),
        }
        if not scaler.gated:
            await scaler._claim_one_job_to_fail(session)
        scaler.kill_worker()
    scaler.gate.set()


async def bounded(phase: Any, seconds: Any) -> None:
    try:
        await asyncio.wait_for(phase, seconds)
    except asyncio.TimeoutError:
        raise PrestartTimeout(f"exceeded {seconds} s") from None


async def _run_prestart(self: Any, session: Any) -> None:
    phase = bounded(run_prestart_hooks_async(), self.config.get("prestart_timeout"))
    await guarded(self, session, "prestart_failed", phase)


async def _run_init(self: Any, session: Any) -> None:
    phase = bounded(call(self.config["initializer"]), self.config.get("init_timeout"))
    await guarded(self, session, "init_failed", phase)


async def _fail_job(self: Any, session: Any, job: dict[str, Any]) -> None:
    await rp_scale.send_result(session, {"error": json.dumps(self.failure)}, job)


async def _claim_one_job_to_fail(self: Any, session: Any) -> None:
    for job in await asyncio.wait_for(self.jobs_fetcher(session, 1), 10) or []:
        await self._fail_job(session, job)


outer = JobScaler.handle_job


async def handle_job(self: Any, session: Any, job: dict[str, Any]) -> None:
    self.gated += 1
    await self.gate.wait()
    if self.failure is None:
        await outer(self, session, job)
        return
    await self._fail_job(session, job)
    self.jobs_queue.task_done()
    self.job_progress.remove(job)


async def run(self: Any) -> None:
    self.gate, self.failure, self.gated = asyncio.Event(), None, 0
    async with rp_scale.AsyncClientSession() as session:
        phase = self._run_init(session) if "initializer" in self.config else self._run_prestart(session)
        await asyncio.gather(phase, self.get_jobs(session), self.run_jobs(session), self.monitor_stop_signals(session))


def with_hooks() -> None:
    """Have the prestart hooks."""
    serverless.register_prestart_hook = register_prestart_hook
    JobScaler._run_prestart = _run_prestart
    _with_both()


def with_initializer() -> None:
    """Have the supervised initializer."""
    JobScaler._run_init = _run_init
    _with_both()


def _with_both() -> None:
    rp_scale.send_result = rp_http.send_result
    JobScaler._fail_job, JobScaler._claim_one_job_to_fail = _fail_job, _claim_one_job_to_fail
    JobScaler.handle_job, JobScaler.run = handle_job, run
