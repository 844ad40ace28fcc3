"""Batches to the collector, one at a time: retried as OTLP says, split below its limits, refusals counted.

Its own thread, since a black hole takes the full timeout and the recorder has output to watch meanwhile. Why not the
stock OTLP exporter: it gives up after ten seconds and drops the batch, while here the event file is the queue and waits
for as long as it has to.
"""

from __future__ import annotations

import email.utils
import gzip
import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sdk_exporter.contract import VERSION, Loss
from sdk_exporter.recorder import kernel
from sdk_exporter.recorder.settings import RecorderSettings

MOST_BODY_BYTES: Final = 4 << 20
"""A body before compression; collectors take more, and a smaller batch loses less when it is refused."""
_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 30.0
_LONGEST_RETRY_AFTER_SECONDS: Final = 300.0
_ANSWER_BYTES: Final = 1 << 20
_HURRY_PAUSE_SECONDS: Final = 0.1


@dataclass(slots=True)
class Outcome:
    """What became of a batch. `done` False: nothing was decided, the records are still ours."""

    done: bool = False
    sent: int = 0
    losses: dict[str, int] = field(default_factory=dict)

    def lose(self, reason: Loss, count: int) -> None:
        if count > 0:
            self.losses[str(reason)] = self.losses.get(str(reason), 0) + count


@dataclass(frozen=True, slots=True)
class Body:
    """One OTLP request, serialised."""

    data: bytes
    spans: int


class Delivery:
    """Hands one batch of bodies after the other to the collector."""

    def __init__(self, settings: RecorderSettings, on_done: Callable[[], None]) -> None:
        self._settings, self._on_done = settings, on_done
        self._opener: urllib.request.OpenerDirector | None = None
        self._bodies: list[Body] | None = None
        self._outcome: Outcome | None = None
        self._asked = threading.Condition()
        self._hurry = self._stop = False
        self._asked_at: float | None = None
        self.failures = 0
        """Tries in a row that reached nobody or were put off."""
        self.delivered = 0
        self.trouble: str | None = None
        """The last reason for a try to fail, in words."""
        self._token_refused = False
        self._thread = threading.Thread(target=self._run, name="stallscope-delivery", daemon=True)
        self._thread.start()

    @property
    def waiting_seconds(self) -> float:
        """How long the collector has owed an answer."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    @property
    def busy(self) -> bool:
        return self._bodies is not None

    def submit(self, bodies: list[Body]) -> None:
        """Takes the next batch; only when not busy."""
        with self._asked:
            self._bodies, self._outcome = bodies, None
            self._asked.notify()

    def outcome(self) -> Outcome | None:
        """Of the batch submitted last, once; None while it is under way."""
        with self._asked:
            outcome, self._outcome = self._outcome, None
            return outcome

    def hurry(self) -> None:
        """The worker has ended: wait for nothing but what the collector itself asked for."""
        with self._asked:
            self._hurry = True
            self._asked.notify()

    def stop(self) -> None:
        """No further try."""
        with self._asked:
            self._stop = True
            self._asked.notify()

    def _run(self) -> None:
        while True:
            with self._asked:
                self._asked.wait_for(lambda: self._stop or self._bodies is not None)
                bodies = self._bodies
            if self._stop or bodies is None:
                return
            outcome = Outcome()
            for body in bodies:
                if not self._deliver(body, outcome):
                    return
            outcome.done = True
            with self._asked:
                self._bodies, self._outcome = None, outcome
            self._on_done()

    def _say_of_token(self, status: int) -> None:
        """Once, and not only for debugging: with a wrong token nothing ever arrives, and no page could say so."""
        if status in (401, 403) and not self._token_refused:
            self._token_refused = True
            kernel.say(f"stallscope: the collector refuses the token in OTEL_EXPORTER_OTLP_HEADERS (HTTP {status})")

    def _deliver(self, body: Body, outcome: Outcome) -> bool:
        """Until taken or refused for good; False when told to stop."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stop:
            self._asked_at = time.monotonic()
            answer = self._post(body)
            self._asked_at = None
            if answer.status is not None and 200 <= answer.status < 300:
                self._taken(body, answer.rejected, outcome)
                return True
            self.failures += 1
            if answer.status is not None and answer.status not in _RETRYABLE:
                self.trouble = f"the collector answered {answer.status}"
                self._say_of_token(answer.status)
                outcome.lose(Loss.EXPORT_REFUSED, body.spans)
                return True
            self.trouble = answer.trouble
            self._wait(answer.retry_after, pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
        return False

    def _taken(self, body: Body, rejected: int, outcome: Outcome) -> None:
        rejected = min(rejected, body.spans)
        outcome.sent += body.spans - rejected
        outcome.lose(Loss.PARTIAL_REFUSED, rejected)
        self.failures = 0
        self.delivered += body.spans - rejected

    def _wait(self, retry_after: float | None, pause: float) -> None:
        """The collector's own wish always counts; our back-off does not once the worker has ended."""
        begun = time.monotonic()
        with self._asked:
            while not self._stop:
                wanted = retry_after if retry_after is not None else pause
                if self._hurry and retry_after is None:
                    wanted = min(pause, _HURRY_PAUSE_SECONDS)
                left = begun + wanted - time.monotonic()
                if left <= 0:
                    return
                self._asked.wait(left)

    def _post(self, body: Body) -> _Answer:
        data = gzip.compress(body.data, 1) if self._settings.gzip else body.data
        request = urllib.request.Request(self._settings.endpoint, data=data, method="POST")  # noqa: S310
        request.add_header("Content-Type", "application/x-protobuf")
        request.add_header("User-Agent", f"stallscope-exporter/{VERSION}")
        if self._settings.gzip:
            request.add_header("Content-Encoding", "gzip")
        for name, value in self._settings.headers:
            request.add_header(name, value)
        try:
            if self._opener is None:
                self._opener = _opener(self._settings)  # here, since a bad certificate file is no reason to give up
            with self._opener.open(request, timeout=self._settings.timeout_seconds) as response:
                return _Answer(response.status, rejected=_rejected(response.read(_ANSWER_BYTES)))
        except urllib.error.HTTPError as error:
            with error:
                return _Answer(
                    error.code,
                    retry_after=retry_after_seconds(error.headers.get("Retry-After")),
                    trouble=f"the collector answered {error.code}",
                )
        except Exception as error:  # noqa: BLE001 - refused, reset, timed out, not HTTP at all: to be tried again
            reason = getattr(error, "reason", error)
            return _Answer(None, trouble=f"could not reach the collector: {reason}")


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int | None
    retry_after: float | None = None
    rejected: int = 0
    trouble: str | None = None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body: it counts as refused, and the answer says 3xx."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener(settings: RecorderSettings) -> urllib.request.OpenerDirector:
    """Proxies come from the environment, as every HTTP client has them."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
    if settings.endpoint.startswith("https:"):
        context = ssl.create_default_context(cafile=settings.certificate)
        if settings.client_certificate:
            context.load_cert_chain(settings.client_certificate, settings.client_key)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def retry_after_seconds(header: str | None) -> float | None:
    """`Retry-After` in either form, bounded; None when absent or senseless."""
    text = (header or "").strip()
    if not text:
        return None
    if text.isdigit():
        return min(float(text), _LONGEST_RETRY_AFTER_SECONDS)
    try:
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_RETRY_AFTER_SECONDS)


def _rejected(answer: bytes) -> int:
    """`partial_success.rejected_spans` of the answer."""
    # Deliberate: loaded with the first answer, not with the recorder.
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        rejected: int = ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans
    except Exception:  # noqa: BLE001 - 2xx with a body that is no answer: taken, as far as anybody can tell
        return 0
    return max(0, rejected)
