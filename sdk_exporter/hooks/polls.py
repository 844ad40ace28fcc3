"""The SDK's two long polls, for requests and for stop signals: what the platform answered, and what the SDK made of it.

The SDK itself tells little: a claim that it throws away looks like an empty answer, and a stop signal of a wrong shape
like none. So both are read a second time here, from the HTTP trace.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

import aiohttp

from sdk_exporter import events, ledger
from sdk_exporter.contract import MESSAGE_BYTES, ChannelViolation, Key, SpanName
from sdk_exporter.events import Attempt
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import http, stops
from sdk_exporter.hooks.channels import Channel, Poll, violation_of_stop, violation_of_take
from sdk_exporter.hooks.life import Arguments, Keywords, worker

ON_THE_WAY: Final = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
"""Errors of the connection: the answer's body broke off, and nobody knows what it would have said."""

_open_takes: set[Poll] = set()
job_take = Channel(SpanName.JOB_TAKE)
stop_channel = Channel(SpanName.STOP_CHANNEL)


@never_raise
def begin(*, has_stop_channel: bool) -> None:
    """The SDK's loop starts, and with it both polls; a worker without a stop channel has none for its whole life."""
    job_take.expected()
    if has_stop_channel:
        stop_channel.expected(always=True)
    else:
        stop_channel.disabled()


# ------------------------------------------------------------------------------------------------------- requests


async def around_get_job(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.get_job: JobScaler copies this global when it is made."""
    await http.stay_while_leaving()
    poll = Poll()
    token = http.poll.set(poll)
    _open_takes.add(poll)
    try:
        jobs = await wrapped(*args, **kwargs)
    except BaseException as error:
        _take_failed(poll, error)
        raise
    finally:
        _open_takes.discard(poll)
        http.poll.reset(token)
    _taken(poll, jobs)
    return jobs


@never_raise
def _take_failed(poll: Poll, error: BaseException) -> None:
    if poll.status == 200 and isinstance(error, Exception) and not isinstance(error, ON_THE_WAY):
        # "Job has missing field(s)": the platform holds it for claimed, and nobody will ever answer for it.
        job_take.answered(poll, violation=ChannelViolation.WRONG_KEY, is_idle=True)
        _lost_on_intake(poll, str(error))
    elif not _ends_with_worker(error):
        job_take.failed(poll, error)


def _ends_with_worker(error: BaseException) -> bool:
    """A poll that is given up because the worker leaves says nothing about the channel."""
    return isinstance(error, asyncio.CancelledError) and worker.is_shutting_down


@never_raise
def _taken(poll: Poll, jobs: Any) -> None:
    if not jobs:
        violation = violation_of_take(poll) if poll.status == 200 else None
        if violation is not None and poll.body:
            _lost_on_intake(poll, "the answer could not be read")
        job_take.answered(poll, is_empty=violation is None, is_idle=True, violation=violation)
        return
    job_take.answered(poll)
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
        message = events.redacted(lost, MESSAGE_BYTES)
        told = {"type": kind or "claim_lost_on_intake", "message": message, "stacktrace": ""}
        events.point(SpanName.JOB_CLAIMED, attributes, attempt=attempt, status="error", error=told)
    events.hand(attempt)
    return attempt


@never_raise
def tell_unread() -> None:
    """At the worker's end: an answer that came while something held the loop. Its requests are claimed, their ids
    unread: where the connection is encrypted, nobody but the loop could read them.
    """
    if any(_has_unread(poll) for poll in list(_open_takes)):
        job_take.unread()


def _has_unread(poll: Poll) -> bool:
    held = poll.transport.get_extra_info("socket") if poll.transport is not None else None
    if held is None:
        return False
    with socket.socket(fileno=os.dup(held.fileno())) as peeking:
        try:
            # Nothing (b"") is the end of the connection, no answer.
            return bool(peeking.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False


# ---------------------------------------------------------------------------------------------------- stop signals


async def around_get_stops(wrapped: Callable[..., Any], _instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """rp_scale.get_stop_signals, the global: JobScaler compares its copy with it, so both must be the same object."""
    poll = Poll()
    stop_channel.begins()
    token = http.poll.set(poll)
    try:
        ids = await wrapped(*args, **kwargs)
    except BaseException as error:
        if not _ends_with_worker(error):
            stop_channel.failed(poll, error)
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
    stop_channel.answered(poll, is_empty=not ids and violation is None, is_idle=not is_work, violation=violation)


async def around_stop_job(wrapped: Callable[..., Any], instance: Any, args: Arguments, kwargs: Keywords) -> Any:
    """JobScaler.stop_job: True where it found the job's task and cancelled it."""
    job_id = args[0] if args else kwargs.get("job_id")
    task = _task_of(instance, job_id)  # now: a task that is cancelled before its first step leaves the SDK's table
    answer = await wrapped(*args, **kwargs)
    stops.signalled(job_id, answer, task)
    return answer


@never_raise
def _task_of(scaler: Any, job_id: Any) -> asyncio.Task[Any] | None:
    found: asyncio.Task[Any] | None = scaler.jobs_tasks.get(job_id)
    return found
