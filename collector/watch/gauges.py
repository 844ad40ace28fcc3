"""What the watcher says of itself to Prometheus. No tenants, keys or messages as labels."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from collector.watch.ledger import FindingRow

RESULTS: Final = ("ok", "error")


def _evaluations() -> Counter:
    made = Counter(
        "stallscope_alert_evaluations_total",
        "Alert rules evaluated, by whether the store could be asked.",
        ["result"],
        registry=None,
    )
    for result in RESULTS:  # there from the start: what was never counted cannot be told from what is gone
        made.labels(result)
    return made


@dataclass(frozen=True, slots=True)
class WatchMetrics:
    """One watcher's numbers; `register` puts them beside those of its app."""

    last_round: Gauge = field(
        default_factory=lambda: Gauge(
            "stallscope_watch_last_success_timestamp_seconds",
            "When the watcher last saw the store and judged it; 0 before the first time.",
            registry=None,
        )
    )
    evaluations: Counter = field(default_factory=_evaluations)
    findings: Gauge = field(
        default_factory=lambda: Gauge(
            "stallscope_findings_open", "Findings that are open, by code.", ["code"], registry=None
        )
    )
    alerts: Gauge = field(
        default_factory=lambda: Gauge(
            "stallscope_alerts_open", "Alerts that are open, by rule.", ["rule"], registry=None
        )
    )
    notices: Counter = field(
        default_factory=lambda: Counter(
            "stallscope_notices_total",
            "Tries to tell of an alert by this process, by channel and what became of them.",
            ["channel", "result"],
            registry=None,
        )
    )

    def register(self, registry: CollectorRegistry) -> None:
        """Show them with this registry's numbers."""
        for one in (self.last_round, self.evaluations, self.findings, self.alerts, self.notices):
            registry.register(one)

    def show(self, findings: Iterable[FindingRow], alerts: Iterable[FindingRow]) -> None:
        """The numbers of what is open; a code that has none any more goes to 0 rather than away."""
        for gauge, label, rows in ((self.findings, "code", findings), (self.alerts, "rule", alerts)):
            counts = Tally(str(getattr(row, label)) for row in rows if row.state == "open")
            for known in [sample.labels[label] for metric in gauge.collect() for sample in metric.samples]:
                counts.setdefault(known, 0)
            for name, count in counts.items():
                gauge.labels(name).set(count)
