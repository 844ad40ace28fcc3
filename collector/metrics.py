"""What the server says of itself to Prometheus. No ids, tenants or messages as labels."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from sdk_exporter.contract import VERSION

from .auth import MetricsReader

router = APIRouter(include_in_schema=False)


class Metrics:
    """One app's numbers, in a registry of its own: two apps in one process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "stallscope_ingest_requests_total",
            "Requests over OTLP, by signal and the status that they were answered with, over gRPC too as one of HTTP.",
            ["signal", "status"],
            registry=self.registry,
        )
        self.stored = Counter(
            "stallscope_spans_stored_total",
            "Spans and log records acknowledged, which is: stored.",
            registry=self.registry,
        )
        self.refused = Counter(
            "stallscope_spans_refused_total",
            "Spans and log records refused alone while others of their request were stored, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.insert_seconds = Histogram(
            "stallscope_insert_seconds",
            "Time of one insert, failed ones too.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.insert_failures = Counter(
            "stallscope_insert_failures_total", "Inserts that the store did not take.", registry=self.registry
        )
        self.quarantined = Counter(
            "stallscope_spans_quarantined_total",
            "Spans that the store refused for ever, set aside in the table `quarantine`: a bug of ours.",
            registry=self.registry,
        )
        self.journal_bytes = Gauge(
            "stallscope_journal_bytes", "Acknowledged and not in the store yet.", registry=self.registry
        )
        self.journal_age = Gauge(
            "stallscope_journal_age_seconds",
            "How long the oldest record of the journal has waited for the store; 0: none waits.",
            registry=self.registry,
        )
        self.waiting_rows = Gauge(
            "stallscope_insert_waiting_rows", "Spans that wait for their insert.", registry=self.registry
        )
        self.in_flight = Gauge(
            "stallscope_in_flight_bytes", "Bytes of request bodies held in memory now.", registry=self.registry
        )
        self.grpc_calls = Gauge("stallscope_grpc_calls", "OTLP/gRPC calls that are open now.", registry=self.registry)
        self.store_ready = Gauge(
            "stallscope_store_ready", "1 once the store answered and has its tables, else 0.", registry=self.registry
        )
        self.task_failures = Counter(
            "stallscope_task_failures_total",
            "Times that a background task ended with an error and was started again.",
            ["task"],
            registry=self.registry,
        )
        self.token_changes = Counter(
            "stallscope_token_changes_total",
            "Changes of the files of tokens, by whether they are in force (changed) or could not be used (failed).",
            ["result"],
            registry=self.registry,
        )
        Gauge("stallscope_build_info", "The version that runs.", ["version"], registry=self.registry).labels(
            VERSION
        ).set(1)


@router.get("/metrics", dependencies=[MetricsReader])
def metrics_page(request: Request) -> Response:
    """The Prometheus text format."""
    metrics = request.app.state.parts.metrics
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)
