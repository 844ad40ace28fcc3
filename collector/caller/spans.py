"""The caller's spans: `caller.request` with its start told at once, and a `caller.poll` for each look.

Sent only where the environment names an OTLP endpoint, by a provider of our own: the one of the program around us is
left alone, though its current span becomes the parent. Losing a span, or the collector, changes nothing for the caller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from collector.caller.errors import CallerError
from collector.caller.replies import Seen
from collector.caller.wire import NoReply, within
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

ENDPOINT_NAMES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
FLUSH_SECONDS: Final = 2.0
"""Longest time that handing in the spans may take at the end."""
EXPORT_EVERY_MS: Final = 1000


@dataclass(slots=True)
class Told:
    """What a look has learnt, filled in by whoever looks."""

    status_code: int | None = None
    seen: Seen | None = None


class RequestSpan:
    """The spans of one request; this one sends nothing."""

    trace_context: str = ""
    """The W3C `traceparent` of the request's span."""

    def submitted(self, seen: Seen) -> None:
        """The request has its id."""

    @contextmanager
    def poll(self, *, enabled: bool) -> Iterator[Told]:
        """One look at the request."""
        yield Told()

    def end(self, seen: Seen) -> None:
        """The request is over."""

    def end_badly(self, error: BaseException, seen: Seen | None = None) -> None:
        """The caller has stopped waiting; `seen` is the last answer."""


class Spans:
    """Where the spans of an endpoint's requests go; this one sends nothing."""

    def request(self, job_id: str | None = None) -> RequestSpan:
        """A request that is about to be sent, or with its id one that somebody else has sent."""
        return RequestSpan()

    def close(self) -> None:
        """Hand in what is there, in bounded time."""


def spans_from(environ: Mapping[str, str], endpoint_id: str) -> Spans:
    """Spans where the environment names an OTLP endpoint, else none."""
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not any(environ.get(name, "").strip() for name in ENDPOINT_NAMES):
        return Spans()
    return SentSpans(endpoint_id)


class SentSpans(Spans):
    """Spans sent over OTLP/HTTP, as the standard variables say."""

    def __init__(self, endpoint_id: str) -> None:
        # Loaded here: OpenTelemetry takes longer to load than most calls take, and most callers set no endpoint.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        self._endpoint_id = endpoint_id
        named = Resource.create({Key.SERVICE_NAME: "stallscope-caller", Key.FAAS_NAME: endpoint_id})
        self._provider: TracerProvider | None = TracerProvider(
            resource=named.merge(OTELResourceDetector().detect()),  # what the environment says wins
            sampler=ALWAYS_ON,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(timeout=FLUSH_SECONDS), schedule_delay_millis=EXPORT_EVERY_MS)
        )
        self._tracer = self._provider.get_tracer("stallscope.caller")

    def request(self, job_id: str | None = None) -> RequestSpan:
        from opentelemetry.trace import SpanKind

        span = None if job_id else self._tracer.start_span(SpanName.CALLER_REQUEST, kind=SpanKind.CLIENT)
        return _SentRequest(self, span, job_id)

    def instant(
        self, name: str, facts: Mapping[str, str | int | float], parent: Span | None, times: tuple[int, int]
    ) -> None:
        """A span that is over; `times` are its start and end in nanoseconds since 1970."""
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent) if parent is not None else None
        span = self._tracer.start_span(
            name, context, attributes={Key.FAAS_NAME: self._endpoint_id, **facts}, start_time=times[0]
        )
        span.end(times[1])

    def close(self) -> None:
        provider, self._provider = self._provider, None
        if provider is None:
            return
        try:
            # `shutdown` itself is bounded by the exporter's retries alone.
            within(FLUSH_SECONDS, provider.shutdown)
        except NoReply:
            return


class _SentRequest(RequestSpan):
    def __init__(self, spans: SentSpans, span: Span | None, job_id: str | None) -> None:
        self._spans = spans
        self._span = span
        self._job_id = job_id
        self._began_ns = time.time_ns()
        self._is_open = span is not None
        if span is not None:
            context = span.get_span_context()
            self.trace_context = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"

    def submitted(self, seen: Seen) -> None:
        self._job_id = seen.id
        if self._span is None:
            return
        facts = self._facts(seen)
        self._span.set_attributes(facts)
        started = {**facts, Key.SPAN_ID: f"{self._span.get_span_context().span_id:016x}"}
        times = (self._began_ns, self._began_ns)
        self._spans.instant(SpanName.CALLER_REQUEST + STARTED_SUFFIX, started, self._span, times)

    @contextmanager
    def poll(self, *, enabled: bool) -> Iterator[Told]:
        told, began = Told(), time.time_ns()
        try:
            yield told
        finally:
            if enabled:
                facts = self._facts(told.seen)
                if told.status_code is not None:
                    facts[Key.HTTP_STATUS] = told.status_code
                self._spans.instant(SpanName.CALLER_POLL, facts, self._span, (began, time.time_ns()))

    def end(self, seen: Seen) -> None:
        if self._span is not None and self._is_open:
            self._is_open = False
            self._span.set_attributes(self._facts(seen))
            if not seen.is_completed:
                self._set_error(seen.status or "unknown")
            self._span.end()

    def end_badly(self, error: BaseException, seen: Seen | None = None) -> None:
        if self._span is not None and self._is_open:
            self._is_open = False
            self._span.set_attributes(self._facts(seen))
            self._set_error(error.code if isinstance(error, CallerError) else type(error).__name__)
            self._span.end()

    def _set_error(self, kind: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        if self._span is not None:
            self._span.set_attribute(Key.ERROR_TYPE, kind)
            self._span.set_status(Status(StatusCode.ERROR))

    def _facts(self, seen: Seen | None) -> dict[str, str | int | float]:
        facts: dict[str, str | int | float] = {}
        if self._job_id is not None:
            facts[Key.INVOCATION_ID] = self._job_id
        if seen is not None and seen.status is not None:
            facts[Key.CALLER_STATUS] = seen.status
        if seen is not None and seen.queue_seconds is not None:
            facts[Key.CALLER_QUEUE_SECONDS] = seen.queue_seconds
        return facts
