"""The user's handler, watched from around: `job.run` from its first step to its end, with the real exception.

The SDK turns exceptions into text, so only the handler's own caller sees them; we stand there. Frames of ours are
taken out of the trace again: it goes to the caller of the job, word for word. (Before Python 3.11 the interpreter puts
one of them back; `hooks.traces` leaves it out.)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from sdk_exporter import events, ledger, tee
from sdk_exporter.contract import MESSAGE_BYTES, HandlerKind, Key, SpanName
from sdk_exporter.events import Attempt, Span
from sdk_exporter.guard import never_raise
from sdk_exporter.hooks import stops

RETURNED_ERROR = "handler_returned_error"


def streamed(handler: Callable[[Any], Any], attempt: Attempt) -> Callable[[Any], Any]:
    """A stand-in for `handler` in this attempt where the SDK streams it, of the same kind to the SDK's eye.

    A new function per run, with the attempt in its closure: the user's own object is never touched.
    """
    if inspect.isasyncgenfunction(handler):

        async def stream(job: Any) -> AsyncGenerator[Any]:
            run = _begin(attempt, HandlerKind.GENERATOR)
            inner = None
            try:
                inner = handler(job)
                async for chunk in inner:
                    _chunk(run)
                    yield chunk
            except BaseException as error:
                drop_own_frame(error)
                _failed(attempt, run, error)
                if inner is not None and isinstance(error, GeneratorExit):
                    await inner.aclose()
                raise
            _returned(attempt, run, None)

        return stream
    if inspect.isgeneratorfunction(handler):

        def iterate(job: Any) -> Generator[Any]:
            run = _begin(attempt, HandlerKind.GENERATOR)
            inner = None
            try:
                inner = handler(job)
                for chunk in inner:
                    _chunk(run)
                    yield chunk
            except BaseException as error:
                drop_own_frame(error)
                _failed(attempt, run, error)
                if inner is not None and isinstance(error, GeneratorExit):
                    inner.close()
                raise
            _returned(attempt, run, None)

        return iterate
    return called(handler, attempt)


def called(handler: Callable[[Any], Any], attempt: Attempt) -> Callable[[Any], Any]:
    """The same where the SDK calls it and awaits what can be awaited; a generator is then a result like another."""

    def call(job: Any) -> Any:
        run = _begin(attempt, _kind_of(handler))
        try:
            result = handler(job)
        except BaseException as error:
            drop_own_frame(error)
            _failed(attempt, run, error)
            raise
        if inspect.isawaitable(result):
            return _awaited(result, attempt, run)
        _returned(attempt, run, result)
        return result

    return call


def _kind_of(handler: Callable[[Any], Any]) -> HandlerKind | None:
    """Looked up once: a worker has one handler, and `inspect` takes its time."""
    global _known
    if _known is None or _known[0] is not handler:
        _known = handler, _look_up_kind(handler)
    return _known[1]


_known: tuple[Callable[[Any], Any], HandlerKind | None] | None = None


@never_raise
def _look_up_kind(handler: Callable[[Any], Any]) -> HandlerKind:
    called = getattr(handler, "__call__", None)  # noqa: B004 - an object's own, which may be async
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
    return HandlerKind.ASYNC if is_async else HandlerKind.SYNC


async def _awaited(awaitable: Any, attempt: Attempt, run: Span | None) -> Any:
    try:
        result = await awaitable
    except BaseException as error:
        drop_own_frame(error)
        _failed(attempt, run, error)
        raise
    _returned(attempt, run, result)
    return result


@never_raise
def drop_own_frame(error: BaseException) -> None:
    """Take the first entry out of the trace, the frame of ours that asks. Raised on, it does not come back."""
    trace = error.__traceback__
    if trace is not None:
        # Not by assignment: an exception may be a frozen dataclass, or have a method of this name.
        BaseException.with_traceback(error, trace.tb_next)


@never_raise
def _begin(attempt: Attempt, kind: HandlerKind | None) -> Span:
    tee.run_begins()
    about = {Key.HANDLER_KIND: (kind or HandlerKind.SYNC).value}
    run = attempt.run = events.begin(SpanName.JOB_RUN, about, attempt=attempt)
    events.progress()
    return run


@never_raise
def _chunk(run: Span | None) -> None:
    events.progress()
    if run is not None:
        run.attributes[Key.HANDLER_CHUNKS] = run.attributes.get(Key.HANDLER_CHUNKS, 0) + 1


@never_raise
def _returned(attempt: Attempt, run: Span | None, result: Any) -> None:
    events.progress()
    if run is not None:
        message = result.get("error") if isinstance(result, dict) else None
        if message:
            run.end(error=_returned_error(message), attributes={Key.HANDLER_RETURNED_ERROR: True})
        else:
            _count_chunks(run)
            run.end()
    stops.handler_ended(attempt, None)
    _release_unclaimed(attempt, "delivered")


def _returned_error(message: object) -> dict[str, str]:
    text = message if isinstance(message, str) else str(message)
    return {"type": RETURNED_ERROR, "message": events.redacted(text, MESSAGE_BYTES), "stacktrace": ""}


def _count_chunks(run: Span) -> None:
    """No chunk is a count as well."""
    if run.attributes[Key.HANDLER_KIND] == HandlerKind.GENERATOR.value:
        run.attributes.setdefault(Key.HANDLER_CHUNKS, 0)


@never_raise
def _failed(attempt: Attempt, run: Span | None, error: BaseException) -> None:
    events.progress()
    if run is not None:
        _count_chunks(run)
        if isinstance(error, GeneratorExit):
            _left_early(attempt, run)
        elif isinstance(error, asyncio.CancelledError) and attempt.stop is not None:
            run.end("unset")  # stopped as asked for: the stop's own span tells the rest
        else:
            run.end(error=error)
    stops.handler_ended(attempt, error)
    _release_unclaimed(attempt, "failed")


def _release_unclaimed(attempt: Attempt, outcome: str) -> None:
    """A local run or the API server: nobody claimed the job, and nothing but its run tells that it is over."""
    if not attempt.claimed:
        ledger.release(attempt, outcome)


def _left_early(attempt: Attempt, run: Span) -> None:
    """The SDK leaves a generator where it is: for a stop, or after a chunk with `error`."""
    if attempt.stop is not None:
        run.end("unset")
    else:
        told = _returned_error("a chunk with an error ended the stream")
        run.end(error=told, attributes={Key.HANDLER_RETURNED_ERROR: True})


@never_raise
def job_ended(attempt: Attempt, error: BaseException | None) -> None:
    """The SDK is done with the job: a run that is still open was left in the middle."""
    run = attempt.run
    if run is None or run.ended:
        return
    if error is None:
        _left_early(attempt, run)
    elif attempt.stop is not None:
        run.end("unset")
    else:
        run.end(error=error)
