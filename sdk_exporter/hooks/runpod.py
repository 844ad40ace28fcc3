"""The worker SDK of the platform, watched: one small function per wrapped function of it, and why there.

The SDK binds names with `from x import y`, so each is patched in the module that calls it. Every wrapped call is made
exactly once; what we think about it is guarded. What this version of the SDK does not have is left out.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import wrapt

from sdk_exporter import beats, events, importing, ledger, supervisor
from sdk_exporter.contract import ChannelViolation, Key, SpanName
from sdk_exporter.events import Attempt, Span
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import adoption, checks, delivery, handler, http, stops, traces
from sdk_exporter.hooks.channels import Channel, Poll, violation_of_stop, violation_of_take
from sdk_exporter.hooks.delivery import Chunk, Delivery
from sdk_exporter.settings import warn_once

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
StandIn = Callable[[Callable[[Any], Any], Attempt], Callable[[Any], Any]]

job_take = Channel(SpanName.JOB_TAKE)
stop_channel = Channel(SpanName.STOP_CHANNEL)


class Worker:
    """What this worker's life consists of, as far as several hooks need it."""

    __slots__ = ("config", "is_shutting_down", "scaler", "shutdown", "supervisor")

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.scaler: Any = None
        self.supervisor: supervisor.Supervisor | None = None
        self.shutdown: Span | None = None
        self.is_shutting_down = False


worker = Worker()
_installed: list[str] = []
_told_boots: set[str] = set()


def install() -> None:
    """Patch what there is to patch, once. Called again, when telling begins later, it says which SDK this is."""
    _tell_sdk()
    if _installed:
        return
    _installed.append("runpod")
    for module, name, wrapper in HOOKS:
        _patch(module, name, wrapper)
    if adoption.runs_hooks() or adoption.runs_initializer():
        for module, name, wrapper in adoption.HOOKS:
            _patch(module, name, wrapper)
    if sys.version_info < (3, 11):
        _patch_traces()
    checks.watch_registered()
    adoption.adopt_prestart()
    importing.when_imported(f"{_MODULES}.rp_fastapi", _patch_api)
    beats.every_tick.extend((job_take.tick, stop_channel.tick, stops.tick))


@never_raise
def _patch(module_name: str, name: str, wrapper: Callable[..., Any]) -> None:
    module = importlib.import_module(module_name)
    parts = name.split(".")
    holder = getattr(module, parts[0], None) if len(parts) == 2 else module
    if holder is not None and hasattr(holder, parts[-1]):
        wrapt.wrap_function_wrapper(module, name, wrapper)


@never_raise
def _patch_traces() -> None:
    rp_job: Any = importlib.import_module(f"{_MODULES}.rp_job")
    rp_job.traceback = traces.Traces()


@never_raise
def _tell_sdk() -> None:
    if events.boot.boot_id in _told_boots:
        return
    _told_boots.add(events.boot.boot_id)
    version = importlib.import_module("runpod.version").__version__
    events.resource({Key.SDK_NAME: "runpod", Key.SDK_VERSION: str(version)})


# ------------------------------------------------------------------------------------------------------- the boot


def around_main(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """worker.main: looked up when `start()` calls it, so it is ours even where the user holds `start` by name."""
    _started(args, kwargs)
    adopted = _adopted(args)
    return wrapped(*(args if adopted is None else (adopted, *args[1:])), **kwargs)


@never_raise
def _adopted(args: Arguments) -> dict[str, Any] | None:
    return adoption.adopted_config(args[0]) if args and isinstance(args[0], dict) else None


@never_raise
def _started(args: Arguments, kwargs: Keywords) -> None:
    config = args[0] if args else kwargs.get("config")
    if isinstance(config, dict):
        worker.config = config
    seconds = (time.time_ns() - events.boot.start_ns) / 1e9
    events.end_boot({Key.COLDSTART: True, Key.BOOT_IMPORT_SECONDS: seconds})


# ------------------------------------------------------------------------------------------------------- the loop


async def around_run(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.run: the worker's loop. Prestart runs beside it, so that requests can be claimed meanwhile."""
    beat = _loop_begins(instance)
    _supervise(instance)
    try:
        answer = await wrapped(*args, **kwargs)
    except BaseException as error:
        _loop_ended(beat, error)
        raise
    _loop_ended(beat, None)
    return answer


@never_raise
def _loop_begins(scaler: Any) -> beats.LoopBeat:
    worker.scaler = scaler
    rp_job = importlib.import_module("runpod.serverless.modules.rp_job")
    # Asked, never set: the SDK compares the scaler's fetcher with its own to decide this.
    if hasattr(rp_job, "_job_stop_url") and rp_job._job_stop_url() is None:
        stop_channel.disabled()
    return beats.LoopBeat(asyncio.get_running_loop())


@never_raise
def _loop_ended(beat: beats.LoopBeat | None, error: BaseException | None) -> None:
    if beat is not None:
        beat.stop()
    if isinstance(error, Exception):
        if worker.shutdown is None:
            worker.shutdown = _begin_shutdown(None)
        worker.shutdown.end(error=error, attributes={Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})
    elif worker.shutdown is not None:
        worker.shutdown.end(attributes={Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})


def around_session(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.AsyncClientSession: the one session of take, stop, done and stream, made with our trace."""
    traces = kwargs.get("trace_configs")
    added = {**kwargs, "trace_configs": [*(traces or []), http.trace_config()]}
    return wrapped(*args, **added)


# ------------------------------------------------------------------------------------------------------- claiming


async def around_get_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.get_job: JobScaler copies this global when it is made."""
    poll = Poll()
    token = http.poll.set(poll)
    try:
        jobs = await wrapped(*args, **kwargs)
    except BaseException as error:
        _take_failed(poll, error)
        raise
    finally:
        http.poll.reset(token)
    _taken(poll, jobs)
    return jobs


@never_raise
def _take_failed(poll: Poll, error: BaseException) -> None:
    if poll.status == 200 and isinstance(error, Exception):
        # "Job has missing field(s)": the platform holds it for claimed, and nobody will ever answer for it.
        job_take.polled(poll.seconds(), violation=ChannelViolation.WRONG_KEY, is_idle=True)
        _lost_on_intake(poll, str(error))
    elif not (isinstance(error, asyncio.CancelledError) and worker.is_shutting_down):
        job_take.polled(poll.seconds(), is_failure=True, is_idle=True)


@never_raise
def _taken(poll: Poll, jobs: Any) -> None:
    if not jobs:
        violation = None
        if poll.status == 200 and poll.body:
            violation = violation_of_take(poll)
            _lost_on_intake(poll, "the answer could not be read")
        elif poll.status == 200:
            violation = ChannelViolation.CONTENT_TYPE
        job_take.polled(poll.seconds(), is_empty=violation is None, is_idle=True, violation=violation)
        return
    job_take.polled(poll.seconds())
    malformed = not all(isinstance(job, dict) and isinstance(job.get("id"), str) for job in jobs)
    for job in jobs:
        if isinstance(job, dict) and job.get("id") is not None:
            _claimed(job["id"], poll, len(jobs), "an item of the same batch has no id" if malformed else None)


def _lost_on_intake(poll: Poll, why: str) -> None:
    """Ids that the platform handed out in an answer that the SDK throws away."""
    try:
        answer = json.loads(poll.body)
    except ValueError:
        return
    for item in answer if isinstance(answer, list) else [answer]:
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            attempt = _claimed(item["id"], poll, 1, why, "empty_input_dropped" if "input" not in item else None)
            ledger.release(attempt, "claim_lost")


def _claimed(job_id: Any, poll: Poll, batch_size: int, lost: str | None, kind: str | None = None) -> Attempt:
    attempt = ledger.claim(events.job_id_text(job_id))
    attributes = {Key.CLAIM_WAIT_SECONDS: poll.seconds(), Key.CLAIM_BATCH_SIZE: batch_size}
    if lost is None:
        events.point(SpanName.JOB_CLAIMED, attributes, attempt=attempt, status="ok")
    else:
        told = {"type": kind or "claim_lost_on_intake", "message": events.redacted(lost, 4096), "stacktrace": ""}
        events.point(SpanName.JOB_CLAIMED, attributes, attempt=attempt, status="error", error=told)
    events.hand(attempt)
    return attempt


# ------------------------------------------------------------------------------------------------- handling a job


async def around_handle_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.handle_job, copied by JobScaler: the whole of a job, inside the SDK's own cleaning up."""
    attempt = _attempt_of(args, kwargs)
    if attempt is None:
        return await wrapped(*args, **kwargs)
    token = events.current.set(attempt)
    try:
        adoption.passed(attempt.job_id, is_open=True)
        await _pass_gate(attempt)
        answer = await wrapped(*args, **kwargs)
    except BaseException as error:
        error.__traceback__ = handler.below(error)
        _job_ended(attempt, error)
        raise
    finally:
        events.current.reset(token)
    _job_ended(attempt, None)
    return answer


@never_raise
def _attempt_of(args: Arguments, kwargs: Keywords) -> Attempt:
    job = args[2] if len(args) > 2 else kwargs["job"]
    return ledger.attempt_of(events.job_id_text(job["id"]))


async def _pass_gate(attempt: Attempt) -> None:
    """Wait until prestart has succeeded. It never opens after a failure: the process ends then."""
    supervising = worker.supervisor
    if supervising is None or supervising.gate.is_set():
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


_gated: dict[Attempt, Span] = {}


@never_raise
def _job_ended(attempt: Attempt, error: BaseException | None) -> None:
    handler.job_ended(attempt, error)
    stops.job_ended(attempt, error)
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        return  # the process ends with the job in its hand
    result: Delivery | None = attempt.delivery
    if isinstance(error, asyncio.CancelledError):
        ledger.release(attempt, "stopped" if attempt.stop is not None else "cancelled")
    elif result is not None:
        ledger.release(attempt, result.outcome)
    else:
        ledger.release(attempt, "failed")


async def around_run_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_job.run_job(handler, job), in every module that calls it: the only place where the handler is called."""
    watched, given = _with_stand_in(handler.called, args, kwargs) or (args, kwargs)
    return await wrapped(*watched, **given)


def around_run_generator(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_job.run_job_generator(handler, job): the same for handlers that stream."""
    watched, given = _with_stand_in(handler.streamed, args, kwargs) or (args, kwargs)
    return wrapped(*watched, **given)


@never_raise
def _with_stand_in(make: StandIn, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
    """The call with a stand-in for the handler. The user's config stays as it is."""
    users, job = _bound(args, kwargs)
    job_id = events.job_id_text(job["id"])
    attempt = events.current.get()
    if attempt is None or attempt.job_id != job_id:
        attempt = ledger.attempt_of(job_id)
    return (make(users, attempt), job), {}


def _bound(args: Arguments, kwargs: Keywords) -> tuple[Callable[[Any], Any], Any]:
    given = dict(zip(("handler", "job"), args, strict=False)) | kwargs
    return given["handler"], given["job"]


# ------------------------------------------------------------------------------------------------------ delivering


async def around_send_result(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_job.send_result: says nothing about success, so the tries are read from the HTTP trace inside it."""
    result = _delivery_of(args, kwargs)
    token = delivery.current.set(result)
    error: BaseException | None = None
    try:
        return await wrapped(*args, **kwargs)
    except BaseException as raised:
        error = raised
        raise
    finally:
        delivery.current.reset(token)
        if result is not None:
            result.over(args[1] if len(args) > 1 else kwargs.get("job_data"), error)


@never_raise
def _delivery_of(args: Arguments, kwargs: Keywords) -> Delivery:
    job = args[2] if len(args) > 2 else kwargs["job"]
    job_id = events.job_id_text(job["id"])
    attempt = events.current.get()
    if attempt is None or attempt.job_id != job_id:
        attempt = ledger.in_hand.get(job_id) or Attempt(job_id)
    result = attempt.delivery = Delivery(attempt)
    return result


async def around_stream_result(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_job.stream_result: a chunk that the platform does not take is skipped, and the SDK goes on with the next."""
    chunk = Chunk()
    token = delivery.current.set(chunk)
    try:
        return await wrapped(*args, **kwargs)
    finally:
        delivery.current.reset(token)
        _count_lost(chunk)


@never_raise
def _count_lost(chunk: Chunk) -> None:
    attempt = events.current.get()
    run = attempt.run if attempt is not None else None
    if run is not None and not chunk.is_delivered:
        run.attributes[Key.HANDLER_CHUNKS_LOST] = run.attributes.get(Key.HANDLER_CHUNKS_LOST, 0) + 1


# --------------------------------------------------------------------------------------------------------- stopping


async def around_get_stops(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.get_stop_signals, the global: JobScaler compares its copy with it, so both must be the same object."""
    poll = Poll()
    token = http.poll.set(poll)
    try:
        ids = await wrapped(*args, **kwargs)
    except BaseException as error:
        if not (isinstance(error, asyncio.CancelledError) and worker.is_shutting_down):
            stop_channel.polled(poll.seconds(), is_failure=True, is_idle=True)
        raise
    finally:
        http.poll.reset(token)
    _stops_polled(poll, ids)
    return ids


@never_raise
def _stops_polled(poll: Poll, ids: Sequence[str]) -> None:
    if poll.status is None:
        return  # no request was made: the channel is disabled
    violation = None if poll.status == 204 else violation_of_stop(poll)
    is_work = any(job_id in ledger.in_hand for job_id in ids)
    stop_channel.polled(
        poll.seconds(), is_empty=not ids and violation is None, is_idle=not is_work, violation=violation
    )


async def around_stop_job(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.stop_job: True where it found the job's task and cancelled it."""
    job_id = args[0] if args else kwargs.get("job_id")
    task = getattr(instance, "jobs_tasks", {}).get(job_id)
    answer = await wrapped(*args, **kwargs)
    stops.signalled(job_id, answer, task)
    return answer


# --------------------------------------------------------------------------------------------------- shutting down


def around_shutdown(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.handle_shutdown, the SDK's signal handler: one of ours would be inherited by its heartbeat's fork."""
    _shutdown_begins(args[0] if args else kwargs.get("signum"))
    answer = wrapped(*args, **kwargs)
    _interrupt_prestart()
    return answer


def around_kill(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.kill_worker: after a signal, and for `refresh_worker`, which has none."""
    _shutdown_begins(None)
    return wrapped(*args, **kwargs)


@never_raise
def _shutdown_begins(number: Any) -> None:
    worker.is_shutting_down = True
    if worker.shutdown is None:
        worker.shutdown = _begin_shutdown(number)


def _begin_shutdown(number: Any) -> Span:
    name = signal.Signals(number).name if isinstance(number, int) else None
    return events.begin(SpanName.SHUTDOWN, {Key.SHUTDOWN_SIGNAL: name, Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})


@never_raise
def _interrupt_prestart() -> None:
    if worker.supervisor is not None and worker.shutdown is not None:
        worker.supervisor.interrupt(str(worker.shutdown.attributes.get(Key.SHUTDOWN_SIGNAL)))


# --------------------------------------------------------------------------------------------------------- prestart


def _phases() -> list[supervisor.Phase]:
    config = worker.config
    initializer = None if adoption.runs_initializer() else config.get("initializer")
    return supervisor.phases(initializer, config.get("init_timeout"), config.get("prestart_timeout"))


def _supervise(scaler: Any) -> None:
    """Today's SDK has no prestart of its own: run ours, if the user has asked for one.

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
        at_exit=_prestart_exit,
        is_claiming=scaler.is_alive,
    )
    worker.supervisor.start()


async def _fail_request(job_id: str, payload: dict[str, str]) -> None:
    """Over the SDK's own way of handing in results, with its retries. The session belongs to the loop we run on."""
    scale = importlib.import_module("runpod.serverless.modules.rp_scale")
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
    scale = importlib.import_module("runpod.serverless.modules.rp_scale")
    async with scale.AsyncClientSession() as session:
        await scale.get_job(session, 1)


@never_raise
def _prestart_exit(_failure: supervisor.Failure) -> None:
    if worker.shutdown is not None:
        worker.shutdown.end(attributes={Key.SHUTDOWN_JOBS_IN_HAND: ledger.ids()})
    events.report_losses()


async def around_local(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """worker.rp_local.run_local: a local run has no claiming to go on beside it; prestart comes first."""
    await _prestart_first()
    return await wrapped(*args, **kwargs)


async def _prestart_first() -> None:
    phases = _phases()
    if not phases:
        return
    supervising = supervisor.Supervisor(
        phases,
        loop=asyncio.get_running_loop(),
        in_hand=list,
        fail=_fail_request,
        claim=_claim_one,
        at_exit=_prestart_exit,
        is_claiming=lambda: False,
    )
    supervising.start()
    await supervising.gate.wait()


def around_api(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_fastapi.WorkerAPI.start_uvicorn: the API modes never come by the loop that prestart runs beside."""
    _started((getattr(instance, "config", None),), {})
    if not _phases():
        return wrapped(*args, **kwargs)
    port_is_realtime = importlib.import_module("runpod.serverless")._get_realtime_port() != 0
    workers = kwargs.get("api_concurrency", args[2] if len(args) > 2 else 1)
    if port_is_realtime or workers != 1:
        warn_once("prestart hooks are not supported in the realtime API and with several API workers; not starting")
        raise SystemExit(supervisor.EXIT_FAILED)
    asyncio.run(_prestart_first())
    return wrapped(*args, **kwargs)


@never_raise
def _patch_api() -> None:
    _patch(f"{_MODULES}.rp_fastapi", "WorkerAPI.start_uvicorn", around_api)


_MODULES: Final = "runpod.serverless.modules"

HOOKS: Final[tuple[tuple[str, str, Callable[..., Any]], ...]] = (
    ("runpod.serverless.worker", "main", around_main),
    ("runpod.serverless.worker", "run_fitness_checks", checks.around_run),
    (f"{_MODULES}.rp_fitness", "register_fitness_check", checks.around_register),
    (f"{_MODULES}.rp_scale", "JobScaler.run", around_run),
    (f"{_MODULES}.rp_scale", "AsyncClientSession", around_session),
    (f"{_MODULES}.rp_scale", "get_job", around_get_job),
    (f"{_MODULES}.rp_scale", "handle_job", around_handle_job),
    (f"{_MODULES}.rp_job", "run_job", around_run_job),
    (f"{_MODULES}.rp_local", "run_job", around_run_job),
    (f"{_MODULES}.rp_job", "run_job_generator", around_run_generator),
    (f"{_MODULES}.rp_job", "send_result", around_send_result),
    (f"{_MODULES}.rp_scale", "send_result", around_send_result),
    (f"{_MODULES}.rp_job", "stream_result", around_stream_result),
    (f"{_MODULES}.rp_scale", "get_stop_signals", around_get_stops),
    (f"{_MODULES}.rp_scale", "JobScaler.stop_job", around_stop_job),
    (f"{_MODULES}.rp_scale", "JobScaler.handle_shutdown", around_shutdown),
    (f"{_MODULES}.rp_scale", "JobScaler.kill_worker", around_kill),
    (f"{_MODULES}.rp_local", "run_local", around_local),
)
"""Module, name and wrapper. rp_fastapi is patched when an API worker imports it."""
