"""The worker SDK of the platform, watched: one small function per wrapped function of it, and why there.

The SDK binds names with `from x import y`, so each is patched in the module that calls it. Every wrapped call is made
exactly once; what we think about it is guarded. What this version of the SDK does not have is left out.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import wrapt

from sdk_exporter import beats, events, importing, ledger
from sdk_exporter.contract import Key
from sdk_exporter.events import Attempt
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import adoption, checks, delivery, handler, http, life, polls, prestart, stops, traces
from sdk_exporter.hooks.delivery import Chunk, Delivery
from sdk_exporter.hooks.life import Arguments, Keywords, worker

StandIn = Callable[[Callable[[Any], Any], Attempt], Callable[[Any], Any]]

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
    beats.every_tick.extend((polls.job_take.tick, polls.stop_channel.tick, stops.tick))


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
def _patch_api() -> None:
    _patch(f"{_MODULES}.rp_fastapi", "WorkerAPI.start_uvicorn", around_api)


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
    _started(args[0] if args else kwargs.get("config"))
    adopted = _adopted(args)
    return wrapped(*(args if adopted is None else (adopted, *args[1:])), **kwargs)


def around_api(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_fastapi.WorkerAPI.start_uvicorn: the API modes never come by `main`."""
    _started(getattr(instance, "config", None))
    return prestart.around_api(wrapped, instance, args, kwargs)


@never_raise
def _adopted(args: Arguments) -> dict[str, Any] | None:
    return adoption.adopted_config(args[0]) if args and isinstance(args[0], dict) else None


@never_raise
def _started(config: Any) -> None:
    if isinstance(config, dict):
        worker.config = config
    seconds = (time.time_ns() - events.boot.start_ns) / 1e9
    events.end_boot({Key.COLDSTART: True, Key.BOOT_IMPORT_SECONDS: seconds})


# ------------------------------------------------------------------------------------------------------- the loop


async def around_run(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.run: the worker's loop. Prestart runs beside it, so that requests can be claimed meanwhile."""
    beat = _loop_begins()
    prestart.supervise(instance)
    try:
        answer = await wrapped(*args, **kwargs)
    except BaseException as error:
        _loop_ended(beat, error)
        raise
    _loop_ended(beat, None)
    return answer


@never_raise
def _loop_begins() -> beats.LoopBeat:
    rp_job = importlib.import_module(f"{_MODULES}.rp_job")
    # Asked, never set: the SDK compares the scaler's fetcher with its own to decide this.
    polls.begin(has_stop_channel=not hasattr(rp_job, "_job_stop_url") or rp_job._job_stop_url() is not None)
    return beats.LoopBeat(asyncio.get_running_loop())


def _loop_ended(beat: beats.LoopBeat | None, error: BaseException | None) -> None:
    if beat is not None:
        beat.stop()
    life.loop_ended(error)


def around_session(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.AsyncClientSession: the one session of take, stop, done and stream, made with our trace."""
    session = wrapped(*args, **(_traced(kwargs) or kwargs))
    http.note_connections(session)
    return session


@never_raise
def _traced(kwargs: Keywords) -> Keywords:
    return {**kwargs, "trace_configs": [*(kwargs.get("trace_configs") or []), http.trace_config()]}


# ------------------------------------------------------------------------------------------------- handling a job


async def around_handle_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.handle_job, copied by JobScaler: the whole of a job, inside the SDK's own cleaning up."""
    attempt = _attempt_of(args, kwargs)
    if attempt is None:
        return await wrapped(*args, **kwargs)
    token = events.current.set(attempt)
    try:
        adoption.passed(attempt.job_id, is_open=True)
        if not prestart.is_open():
            await prestart.pass_gate(attempt)
        answer = await wrapped(*args, **kwargs)
    except BaseException as error:
        handler.drop_own_frame(error)
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
    attempt = _running(job) or ledger.attempt_of(events.job_id_text(job["id"]))
    return (make(users, attempt), job), {}


def _running(job: Any) -> Attempt | None:
    """The attempt that the running task works for, where `job` is its own."""
    attempt = events.current.get()
    if attempt is None or job["id"] == attempt.job_id or events.job_id_text(job["id"]) == attempt.job_id:
        return attempt
    return None


def _bound(args: Arguments, kwargs: Keywords) -> tuple[Callable[[Any], Any], Any]:
    if len(args) == 2:
        return args[0], args[1]
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
    attempt = _running(job)
    if attempt is None:
        job_id = events.job_id_text(job["id"])
        attempt = ledger.in_hand.get(job_id) or Attempt(job_id)
    result = attempt.delivery = Delivery(attempt)
    return result


def around_progress(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_progress._thread_target: what `progress_update` runs on a thread, whoever holds that by name."""
    events.progress()
    return wrapped(*args, **kwargs)


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


_MODULES: Final = "runpod.serverless.modules"

HOOKS: Final[tuple[tuple[str, str, Callable[..., Any]], ...]] = (
    ("runpod.serverless.worker", "main", around_main),
    ("runpod.serverless.worker", "run_fitness_checks", checks.around_run),
    (f"{_MODULES}.rp_fitness", "register_fitness_check", checks.around_register),
    (f"{_MODULES}.rp_scale", "JobScaler.run", around_run),
    (f"{_MODULES}.rp_scale", "AsyncClientSession", around_session),
    (f"{_MODULES}.rp_scale", "get_job", polls.around_get_job),
    (f"{_MODULES}.rp_scale", "handle_job", around_handle_job),
    (f"{_MODULES}.rp_job", "run_job", around_run_job),
    (f"{_MODULES}.rp_local", "run_job", around_run_job),
    (f"{_MODULES}.rp_job", "run_job_generator", around_run_generator),
    (f"{_MODULES}.rp_job", "send_result", around_send_result),
    (f"{_MODULES}.rp_scale", "send_result", around_send_result),
    (f"{_MODULES}.rp_job", "stream_result", around_stream_result),
    (f"{_MODULES}.rp_progress", "_thread_target", around_progress),
    (f"{_MODULES}.rp_scale", "get_stop_signals", polls.around_get_stops),
    (f"{_MODULES}.rp_scale", "JobScaler.stop_job", polls.around_stop_job),
    (f"{_MODULES}.rp_scale", "JobScaler.handle_shutdown", life.around_shutdown),
    (f"{_MODULES}.rp_scale", "JobScaler.kill_worker", life.around_kill),
    (f"{_MODULES}.rp_local", "run_local", prestart.around_local),
)
"""Module, name and wrapper. rp_fastapi is patched when an API worker imports it."""
