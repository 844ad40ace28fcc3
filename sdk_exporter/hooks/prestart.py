"""Prestart on an SDK that has none: when it runs beside the claiming, or before a run that claims nothing."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from typing import Any, Final

from sdk_exporter import events, ledger, supervisor
from sdk_exporter.contract import Key, SpanName
from sdk_exporter.events import Attempt, Span
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import adoption, delivery, life, polls
from sdk_exporter.hooks.life import Arguments, Keywords, worker
from sdk_exporter.settings import warn_once

SCALE: Final = "runpod.serverless.modules.rp_scale"

_gated: dict[Attempt, Span] = {}


def _phases() -> list[supervisor.Phase]:
    config = worker.config
    initializer = None if adoption.runs_initializer() else config.get("initializer")
    return supervisor.phases(initializer, config.get("init_timeout"), config.get("prestart_timeout"))


def supervise(scaler: Any) -> None:
    """Run what the user has asked for beside the SDK's loop.

    Not guarded: a worker that is not ready must not serve because of a mistake of ours.
    """
    config = getattr(scaler, "config", None)
    if isinstance(config, dict):
        worker.config = config
    phases = _phases()
    if not phases:
        return
    worker.supervisor = supervisor.Supervisor(
        phases,
        loop=asyncio.get_running_loop(),
        in_hand=ledger.ids,
        fail=_fail_request,
        claim=_claim_one,
        leave=_leave,
        at_exit=_at_exit,
        is_claiming=scaler.is_alive,
    )
    worker.supervisor.start()


def is_open() -> bool:
    """Whether requests may run: prestart has succeeded, or there is none."""
    return worker.supervisor is None or worker.supervisor.gate.is_set()


async def pass_gate(attempt: Attempt) -> None:
    """Wait until prestart has succeeded. It never opens after a failure: the process ends then."""
    supervising = worker.supervisor
    if supervising is None:
        return
    span = events.begin(SpanName.JOB_GATED, attempt=attempt)
    _gated[attempt] = span
    try:
        await supervising.gate.wait()
    except BaseException:
        span.end("unset")
        raise
    finally:
        _gated.pop(attempt, None)
    span.end()


async def _fail_request(job_id: str, payload: dict[str, str]) -> None:
    """Over the SDK's own way of handing in results, with its retries. The session belongs to the loop we run on."""
    scale = importlib.import_module(SCALE)
    job = importlib.import_module("runpod.serverless.modules.rp_job")
    attempt = ledger.in_hand.get(job_id)
    async with scale.AsyncClientSession() as session:
        await job.send_result(session, {"error": json.dumps(payload)}, {"id": job_id})
    if attempt is not None:
        gated = _gated.get(attempt)
        if gated is not None:
            gated.end("error", attributes={Key.ERROR_TYPE: payload["error_type"]})
        ledger.release(attempt, delivery.outcome_of_failure(attempt.delivery))


async def _claim_one() -> None:
    """One poll of the SDK's own; what it brings is then in hand."""
    scale = importlib.import_module(SCALE)
    async with scale.AsyncClientSession() as session:
        await scale.get_job(session, 1)


def _leave() -> None:
    worker.is_leaving = True


@never_raise
def _at_exit() -> None:
    polls.tell_unread()
    life.end_shutdown()
    events.report_losses()


# ------------------------------------------------------------------------------------------ runs that claim nothing


async def around_local(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """worker.rp_local.run_local: a local run has no claiming to go on beside it; prestart comes first."""
    await _first()
    return await wrapped(*args, **kwargs)


async def _first() -> None:
    phases = _phases()
    if not phases:
        return
    supervising = supervisor.Supervisor(
        phases,
        loop=asyncio.get_running_loop(),
        in_hand=list,
        fail=_fail_request,
        claim=_claim_one,
        leave=_leave,
        at_exit=_at_exit,
        is_claiming=lambda: False,
    )
    supervising.start()
    await supervising.gate.wait()


def around_api(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_fastapi.WorkerAPI.start_uvicorn: the API modes never come by the loop that prestart runs beside."""
    if not _phases():
        return wrapped(*args, **kwargs)
    port_is_realtime = importlib.import_module("runpod.serverless")._get_realtime_port() != 0
    workers = kwargs.get("api_concurrency", args[2] if len(args) > 2 else 1)
    if port_is_realtime or workers != 1:
        warn_once("prestart hooks are not supported in the realtime API and with several API workers; not starting")
        raise SystemExit(supervisor.EXIT_FAILED)
    asyncio.run(_first())
    return wrapped(*args, **kwargs)
