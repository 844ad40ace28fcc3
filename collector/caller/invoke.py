"""An endpoint seen from the caller's side: submit, wait, look, cancel.

A request goes out by `/run`, never `/runsync`: there its id is known at once, so that it can be looked at, cancelled
and explained while it waits, and its result is kept for 30 minutes and not for one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final
from urllib.parse import quote

import httpx

from collector.caller.errors import (
    EXCERPT_POINTS,
    ApiFailed,
    CallerError,
    CallTimedOut,
    JobFailed,
    NotAllowed,
    NotFound,
    Unreachable,
    WaitSpent,
    WrongInput,
    excerpt,
)
from collector.caller.inputs import EMPTY_STAND_IN, encode_input, input_bytes, run_body, with_member
from collector.caller.replies import JobStatus, Seen, read_seen
from collector.caller.spans import RequestSpan, Spans, spans_from
from collector.caller.timing import Budget, Pauses, Timing, span_of
from collector.caller.wire import NoReply, Reply, TooLarge, Wire

DEFAULT_INVOKE_URL: Final = "https://api.runpod.ai/v2"
FAILURES: Final = 5
"""Network errors, HTTP 429 and 5xx in a row before a call is given up."""
QUEUE_SECONDS: Final = 15 * 60.0
"""How long a request may wait in the queue, counted from its submission, before it is cancelled."""
LONG_RUN_SECONDS: Final = 600.0
"""The platform's default `executionTimeout`: what runs longer may have no limit before its TTL (24 h by default)."""
CANCEL_SECONDS: Final = 10.0
"""Longest time of a cancellation on the way out."""
ID_CHARACTERS: Final = 1000
"""A longer id, or one with control characters, is none: it goes into addresses, messages and commands."""
HEALTH_AFTER_SECONDS: Final = 30.0
HEALTH_EVERY_SECONDS: Final = 60.0
"""While a request is queued, whoever watches is told of the endpoint's workers after the one, then every other."""


class Watcher:
    """Told how a call goes. Override what is of interest.

    `note`: something to know even when all ends well. `seen`: each answer, with the seconds since the wait began.
    `health`: the body of `/health` while a request is queued for long; only asked for where `wants_health` is set.
    """

    wants_health: bool = False

    def note(self, text: str) -> None:
        """Something to know."""

    def seen(self, seen: Seen, seconds: float) -> None:
        """An answer about the request."""

    def health(self, body: bytes) -> None:
        """What the endpoint's workers do."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: `what` completes the sentence "cannot …". `queues`: answering it may create a request."""

    what: str
    method: str
    path: str
    content: bytes | None = None
    job_id: str | None = None
    queues: bool = False
    needs: tuple[str, ...] = ("id", "status")


class _Transient(Exception):
    """A failure that may pass; `final` is raised when it does not."""

    def __init__(self, final: CallerError, *, connection: bool = False) -> None:
        super().__init__(str(final))
        self.final = final
        self.connection = connection


class Endpoint:
    """One endpoint of a Runpod-compatible invoke API.

        with Endpoint("my-endpoint") as endpoint:
            request = endpoint.submit({"prompt": "x"})
            answer = request.wait(300)          # typed errors; answer.body is the payload, byte for byte

    Base address and key come from RUNPOD_INVOKE_URL (with `/v2`) and RUNPOD_API_KEY unless given. No Stallscope server
    is needed. Spans are sent where an OTLP endpoint is set in the environment. Raises WrongInput for an unusable name,
    address or key. One object is for one thread.
    """

    def __init__(
        self,
        endpoint_id: str,
        *,
        invoke_url: str | None = None,
        api_key: str | None = None,
        timing: Timing | None = None,
        watcher: Watcher | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.id = endpoint_id
        self.newest: Request | None = None
        """The request submitted last: for who is interrupted before `submit` has returned."""
        self.timing = timing or Timing()
        self.watcher = watcher or Watcher()
        self._key = _usable_key(api_key if api_key is not None else os.environ.get("RUNPOD_API_KEY", ""))
        base = _usable_url(invoke_url or os.environ.get("RUNPOD_INVOKE_URL", "") or DEFAULT_INVOKE_URL)
        self._wire = _open_wire(f"{base}/{path_segment(endpoint_id, 'the endpoint')}", self._key)
        self._spans = spans or spans_from(os.environ, endpoint_id)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hand the spans in, for at most two seconds, and close the connections."""
        self._spans.close()
        self._wire.close()

    # ------------------------------------------------------------------------------------------------------- calls

    def submit(
        self,
        job_input: Mapping[str, Any] | bytes,
        *,
        policy: Mapping[str, Any] | None = None,
        wait_seconds: float | None = None,
        trace_context_key: str | None = None,
        cancel_on_exit: bool = False,
    ) -> Request:
        """Send a request; bytes are sent as written. `wait_seconds`: the total wait of which this is the beginning.

        `trace_context_key`: put the W3C trace context into the input under this key; otherwise the input stays as it
        is. `cancel_on_exit`: used in a `with`, the request is cancelled when the block ends before the request does.
        Raises CallerError. What may have been queued is not sent a second time.
        """
        return self.submit_within(
            Budget(self.timing, wait_seconds),
            job_input,
            policy=policy,
            trace_context_key=trace_context_key,
            cancel_on_exit=cancel_on_exit,
        )

    def submit_within(
        self,
        budget: Budget,
        job_input: Mapping[str, Any] | bytes,
        *,
        policy: Mapping[str, Any] | None = None,
        trace_context_key: str | None = None,
        cancel_on_exit: bool = False,
    ) -> Request:
        """As `submit`, out of a budget that goes on afterwards."""
        compact = input_bytes(job_input) if isinstance(job_input, bytes) else encode_input(dict(job_input))
        self._note_policy(policy)
        span = self._spans.request()
        if trace_context_key is not None and span.trace_context:
            compact = with_member(compact, trace_context_key, span.trace_context)
        body = run_body(compact, encode_input(dict(policy)) if policy is not None else None)
        call = _Call("submit the request", "POST", "/run", body, queues=True)
        pauses = Pauses(self.timing)
        try:
            seen = self._persist(call, budget, pauses, span)
            job_id = self._id_in(seen)
        except BaseException as error:
            span.end_badly(error)
            raise
        span.submitted(seen)
        request = Request(self, job_id, seen, span, pauses, is_empty=compact == b"{}")
        request.cancel_on_exit = cancel_on_exit
        self.newest = request
        self.watcher.seen(seen, 0.0)
        return request

    def request(self, job_id: str) -> Request:
        """A request that somebody has submitted. Nothing is asked yet. Raises WrongInput."""
        path_segment(job_id, "the request")
        return Request(self, job_id, None, self._spans.request(job_id), Pauses(self.timing))

    def health(self, wait_seconds: float | None = None) -> bytes:
        """What `/health` says, byte for byte. It answers for endpoints that do not exist, too. Raises CallerError."""
        return self.health_within(Budget(self.timing, wait_seconds))

    # ------------------------------------------------------------------------------------------------------ inside

    def health_within(self, budget: Budget) -> bytes:
        call = _Call("read the health", "GET", "/health", needs=())
        return self._persist(call, budget, Pauses(self.timing), RequestSpan()).body

    def look(self, request: Request, budget: Budget, pauses: Pauses) -> Seen:
        path = f"/status/{path_segment(request.id, 'the request')}"
        call = _Call(f"see request {request.id}", "GET", path, job_id=request.id)
        return self._persist(call, budget, pauses, request.span)

    def post_cancel(self, request: Request, budget: Budget) -> Seen:
        path = f"/cancel/{path_segment(request.id, 'the request')}"
        call = _Call(f"cancel request {request.id}", "POST", path, job_id=request.id)
        return self._persist(call, budget, Pauses(self.timing), request.span)

    def _persist(self, call: _Call, budget: Budget, pauses: Pauses, span: RequestSpan) -> Seen:
        """The answer, asked for again while failures may pass. Raises at the fifth in a row, or when the wait is over.

        Outside a wait only a busy platform (429, 5xx) is asked again: who is not waiting wants to know at once that
        there is no connection.
        """
        failures = 0
        while True:
            try:
                return self._once(call, budget, span)
            except _Transient as trouble:
                failures += 1
                if budget.waits and budget.left() <= 0:
                    self.watcher.note(f"the last try failed: {trouble}")
                    raise self._spent(call, budget, trouble) from None
                if failures >= FAILURES or (trouble.connection and not budget.waits):
                    raise trouble.final from None
                pause = min(pauses.next(), budget.left())
                self.watcher.note(f"{trouble}; asking again in {span_of(pause)} ({failures} of {FAILURES})")
                self.timing.sleep(pause)

    def _id_in(self, seen: Seen) -> str:
        """The id that a submission was answered with. Raises ApiFailed where there is none that can be used."""
        if seen.id is not None and len(seen.id) <= ID_CHARACTERS and seen.id.isprintable():
            try:
                path_segment(seen.id, "the request")
                return seen.id
            except WrongInput:
                pass
        raise ApiFailed(f"{self._named()} took the request and gave no id for it", status=200, body=seen.body)

    def _spent(self, call: _Call, budget: Budget, trouble: _Transient) -> WaitSpent:
        waited = span_of(budget.seconds or 0.0)
        if not call.queues:
            return WaitSpent(f"cannot {call.what} at {self._named()}: no answer within {waited}", job_id=call.job_id)
        unknown = "" if isinstance(trouble.final, ApiFailed) else f". {_MAYBE_QUEUED}"
        return WaitSpent(f"{self._named()} did not take the request within {waited}{unknown}")

    def _once(self, call: _Call, budget: Budget, span: RequestSpan) -> Seen:
        seconds = budget.call_seconds()
        with span.poll(enabled=call.job_id is not None) as told:
            try:
                reply = self._wire.exchange(call.method, call.path, content=call.content, seconds=seconds)
            except NoReply as failure:
                raise self._no_reply(call, failure, budget) from None
            except TooLarge as failure:
                raise ApiFailed(
                    f"cannot {call.what} at {self._named()}: {failure}", status=200, job_id=call.job_id
                ) from None
            told.status_code = reply.status
            seen = self._read(call, reply)
            told.seen = seen
            return seen

    def _no_reply(self, call: _Call, failure: NoReply, budget: Budget) -> Exception:
        unsure = call.queues and failure.sent
        message = f"cannot {call.what} at {self._named()}: {self._safe(str(failure))}"
        if unsure:
            message += f". {_MAYBE_QUEUED}"
        kind = CallTimedOut if failure.timed_out else Unreachable
        final = kind(message, retryable=not unsure, job_id=call.job_id)
        spent = budget.waits and budget.left() <= 0
        if unsure and not spent:
            return final  # sending it again could run it twice
        return _Transient(final, connection=True)

    def _read(self, call: _Call, reply: Reply) -> Seen:
        """What a reply says. Raises CallerError, or _Transient."""
        if not httpx.codes.is_success(reply.status):
            raise self._refused(call, reply)
        seen = read_seen(reply.body)
        if seen is None and not call.needs and _is_json(reply.body):
            return Seen(reply.body)
        if seen is None:
            raise ApiFailed(
                f"cannot {call.what} at {self._named()}: the answer is not a JSON object:"
                f" {self._safe(_decoded(reply.body))}",
                status=reply.status,
                body=None,
                job_id=call.job_id,
            )
        if call.needs and seen.id is None and seen.status is None:
            raise ApiFailed(
                f"cannot {call.what} at {self._named()}: the answer has neither id nor status",
                status=reply.status,
                body=reply.body,
                job_id=call.job_id,
            )
        return seen

    def _refused(self, call: _Call, reply: Reply) -> Exception:
        said = self._safe(_decoded(reply.body))
        message = f"cannot {call.what} at {self._named()}: HTTP {reply.status}" + (f": {said}" if said else "")
        status = reply.status
        if status in (401, 403):
            where = "" if self._key else " (RUNPOD_API_KEY is not set)"
            return NotAllowed(message + where, job_id=call.job_id)
        if status == httpx.codes.NOT_FOUND:
            return NotFound(message + (_GONE if call.job_id else ""), job_id=call.job_id)
        if status == httpx.codes.GATEWAY_TIMEOUT and call.queues:
            return ApiFailed(f"{message}. {_MAYBE_QUEUED}", status=status)
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= 500:
            return _Transient(ApiFailed(message, status=status, retryable=True, job_id=call.job_id))
        return ApiFailed(message, status=status, job_id=call.job_id)

    def _named(self) -> str:
        return f"endpoint {excerpt(self.id)}"

    def _safe(self, text: str) -> str:
        """A foreign text for people, cut, and without the key should it have been sent back."""
        return excerpt(text.replace(self._key, "[key]") if self._key else text)

    def _note_policy(self, policy: Mapping[str, Any] | None) -> None:
        if policy is not None and policy.get("executionTimeout") == 0:
            self.watcher.note(f"executionTimeout 0: {_UNBOUNDED}")


class Request:
    """One request. Its id is learnt once and never changes, whatever later answers say or leave out."""

    def __init__(
        self,
        endpoint: Endpoint,
        job_id: str,
        seen: Seen | None,
        span: RequestSpan,
        pauses: Pauses,
        *,
        is_empty: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self.id = job_id
        self.seen = seen
        self.span = span
        self.cancel_on_exit = False
        self._pauses = pauses
        self._is_empty = is_empty
        self._is_mine = seen is not None
        now = endpoint.timing.monotonic()
        # Only of a request of ours is the submission's time known, and only ours is cancelled for waiting too long.
        self._queued_since: float | None = now if self._is_mine else None
        self._running_since: float | None = None
        self._long_run_told = False
        self._health_again_at = 0.0

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Where that was asked for, cancel a request that is not over. What went wrong is a note, not an error."""
        if not self.cancel_on_exit or (self.seen is not None and self.seen.is_over):
            return
        try:
            self.cancel(CANCEL_SECONDS)
        except CallerError as failure:
            self.endpoint.watcher.note(f"request {self.id} was not cancelled: {failure}")

    def status(self, wait_seconds: float | None = None) -> Seen:
        """One look. Raises CallerError; how the request itself fares is in the answer."""
        return self._look(Budget(self.endpoint.timing, wait_seconds))

    def cancel(self, seconds: float | None = None) -> Seen:
        """Ask for its cancellation. Raises CallerError; the answer's status says what became of it."""
        seen = self.endpoint.post_cancel(self, Budget(self.endpoint.timing, seconds))
        self._keep(seen)
        return seen

    def wait(self, seconds: float, *, queue_seconds: float | None = QUEUE_SECONDS) -> Seen:
        """The answer once it is COMPLETED. `seconds` is the total wait, of calls and pauses together.

        `queue_seconds`: cancel it when it has waited in the queue for so long since its submission; None = never.
        Raises JobFailed, WaitSpent and any other CallerError; overruns the wait by one second at most.
        """
        return self.wait_within(Budget(self.endpoint.timing, seconds), queue_seconds=queue_seconds)

    def wait_within(self, budget: Budget, *, queue_seconds: float | None = QUEUE_SECONDS) -> Seen:
        """As `wait`, out of a budget of which a part is spent."""
        try:
            seen = self._until_over(budget, queue_seconds)
        except CallerError as error:
            self.span.end_badly(error, self.seen)
            raise self._about_this(error) from None
        except BaseException as error:
            self.span.end_badly(error, self.seen)
            raise
        self.span.end(seen)
        return self.checked(seen)

    def checked(self, seen: Seen) -> Seen:
        """The answer, unless it says that the request ended badly. Raises JobFailed."""
        if not seen.is_over or seen.is_completed:
            return seen
        raise JobFailed(self._ending(seen), status=seen.status or "", body=seen.body, job_id=self.id)

    # ------------------------------------------------------------------------------------------------------ inside

    def _until_over(self, budget: Budget, queue_seconds: float | None) -> Seen:
        timing = self.endpoint.timing
        began = timing.monotonic()
        if budget.seconds and budget.left() <= 0:  # the submission took all of it
            raise self._out_of_time(budget)
        while True:
            seen = self._look(budget)
            self.endpoint.watcher.seen(seen, timing.monotonic() - began)
            if seen.is_over:
                return seen
            self._give_up_in_queue(budget, queue_seconds)
            if budget.left() <= 0:
                raise self._out_of_time(budget)
            self._look_at_health(budget)
            # A pause cut short by the end of the wait is followed by one last look.
            timing.sleep(min(self._pauses.next(), budget.left()))

    def _look(self, budget: Budget) -> Seen:
        seen = self.endpoint.look(self, budget, self._pauses)
        if seen.id is not None and seen.id != self.id:
            self.endpoint.watcher.note(f"asked for request {self.id}, the answer names {excerpt(seen.id)}")
        self._keep(seen)
        return seen

    def _keep(self, seen: Seen) -> None:
        """Remember the answer, and since when the request waits or runs. One that is queued again waits anew."""
        now = self.endpoint.timing.monotonic()
        self.seen = seen
        if seen.status == JobStatus.IN_QUEUE:
            self._running_since = None
            if self._is_mine and self._queued_since is None:
                self._queued_since = now
        elif seen.status is not None and not seen.is_over:
            self._queued_since = None
            self._note_long_run(now)

    def _note_long_run(self, now: float) -> None:
        if self._running_since is None:
            self._running_since = now
        elif not self._long_run_told and now - self._running_since > LONG_RUN_SECONDS:
            self._long_run_told = True
            self.endpoint.watcher.note(
                f"request {self.id} has run for {span_of(now - self._running_since)}. If its endpoint has"
                f" executionTimeout 0, {_UNBOUNDED}"
            )

    def _give_up_in_queue(self, budget: Budget, queue_seconds: float | None) -> None:
        """Cancel what has waited too long for a worker, and say whether that worked. Raises WaitSpent."""
        since = self._queued_since
        if queue_seconds is None or since is None:
            return
        waited = self.endpoint.timing.monotonic() - since
        if waited < queue_seconds:
            return
        body = self.seen.body if self.seen is not None else None
        told = f"request {self.id} was still in the queue of {self._where} after {span_of(waited)}"
        try:
            seen = self.endpoint.post_cancel(self, Budget(self.endpoint.timing, min(CANCEL_SECONDS, budget.left())))
        except CallerError as failure:
            raise WaitSpent(f"{told}. It was NOT cancelled and may still run: {failure}", body=body) from None
        self._keep(seen)
        if seen.status != JobStatus.CANCELLED:
            said = excerpt(seen.status or "no status")
            raise WaitSpent(f"{told}. It was NOT cancelled: the platform answers {said}", body=body)
        raise WaitSpent(f"{told}, and was cancelled", retryable=True, body=seen.body)

    def _look_at_health(self, budget: Budget) -> None:
        """Tell whoever watches what the endpoint's workers do, once a minute while the request is queued."""
        watcher, now = self.endpoint.watcher, self.endpoint.timing.monotonic()
        since = self._queued_since
        if not watcher.wants_health or since is None or now < max(since + HEALTH_AFTER_SECONDS, self._health_again_at):
            return
        self._health_again_at = now + HEALTH_EVERY_SECONDS
        try:
            watcher.health(self.endpoint.health_within(Budget(self.endpoint.timing, min(5.0, budget.left()))))
        except CallerError as failure:
            watcher.note(str(failure))

    def _out_of_time(self, budget: Budget) -> WaitSpent:
        status = excerpt(self.seen.status or "unknown") if self.seen is not None else "unknown"
        body = self.seen.body if self.seen is not None else None
        told = f"request {self.id} was not over within {span_of(budget.seconds or 0.0)} (status {status})"
        return WaitSpent(f"{told}; it goes on. {self._follow_up}", body=body)

    def _ending(self, seen: Seen) -> str:
        told = f"request {self.id} at {self._where} ended {seen.status}"
        if seen.error:
            told += f": {excerpt(seen.error)}"
        if not _RETRIES.search(seen.error or ""):
            return told
        if self._is_empty:
            return f"{told}. Its input was empty, and the platform drops an empty input: send {EMPTY_STAND_IN}"
        return (
            f"{told}. The platform says the same when a worker died, when a new release replaced it while it ran, and"
            " when the input was empty; the verdict tells which"
        )

    def _about_this(self, error: CallerError) -> CallerError:
        """An error of the wait, with all that is known of the request. Running it again would be a second request."""
        error.job_id = self.id
        if error.body is None and self.seen is not None:
            error.body = self.seen.body
        if self._is_mine and not isinstance(error, WaitSpent) and error.retryable:
            error.retryable = False
            error.args = (f"{error}. {self._follow_up}",)
        return error

    @property
    def _where(self) -> str:
        return f"endpoint {excerpt(self.endpoint.id)}"

    @property
    def _follow_up(self) -> str:
        command = f"stallscope status {shlex.quote(self.endpoint.id)} {shlex.quote(self.id)} --wait 5m"
        return f"Look again with: {command}"


_MAYBE_QUEUED: Final = "Whether the request was queued is not known, nor its id: sending it again could run it twice"
_UNBOUNDED: Final = (
    "nothing ends it before its TTL (24 h by default), and then its result is gone too: its status answers 404"
)
_GONE: Final = (
    ". The platform no longer knows the request, or never did: results are kept for 30 minutes after the end, and a"
    " TTL (24 h by default) removes a request even while it runs"
)
_RETRIES: Final = re.compile(r"job timed out after \d+ retries", re.IGNORECASE)


def path_segment(text: str, what: str) -> str:
    """An id as one segment of a path. Raises WrongInput for what cannot be one."""
    if text in ("", ".", ".."):
        raise WrongInput(f"{what} cannot be named {text!r}")
    try:
        return quote(text, safe="", errors="surrogateescape")
    except UnicodeEncodeError:
        raise WrongInput(f"{what} has an id that is no text: {excerpt(text)!r}") from None


def _open_wire(address: str, key: str | None) -> Wire:
    """Connections by way of the proxies and certificates that the environment names. Raises WrongInput."""
    try:
        return Wire(address, key)
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise WrongInput(f"the environment's proxy or certificates cannot be used: {excerpt(str(error))}") from None


def _usable_url(text: str) -> str:
    """The base address. Raises WrongInput."""
    try:
        url = httpx.URL(text.strip().rstrip("/"))
    except (httpx.InvalidURL, UnicodeError):
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment or url.userinfo:
        raise WrongInput(f"RUNPOD_INVOKE_URL is no plain http address: {excerpt(text)!r}")
    return str(url)


def _usable_key(text: str) -> str | None:
    """The key without its scheme, None where there is none. Raises WrongInput, without showing it."""
    key = text.strip()
    if key[:7].lower() == "bearer ":
        key = key[7:].strip()
    if not (key.isascii() and key.isprintable()):
        raise WrongInput("RUNPOD_API_KEY holds characters that no key has")
    return key or None


def _decoded(body: bytes) -> str:
    return body[: 4 * (EXCERPT_POINTS + 1)].decode("utf-8", "replace")


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True
