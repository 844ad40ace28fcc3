"""Heartbeats of the worker as the recorder sees them from outside."""

from __future__ import annotations

import time
from typing import Any, Final

from sdk_exporter import spool
from sdk_exporter.contract import Key
from sdk_exporter.recorder.ledger import Ledger
from sdk_exporter.recorder.processes import rss_bytes

_BEATS: Final = (
    (Key.HEARTBEAT_PROCESS, spool.Page.PROCESS_BEAT),
    (Key.HEARTBEAT_LOOP, spool.Page.LOOP_BEAT),
    (Key.HEARTBEAT_PROGRESS, spool.Page.PROGRESS_BEAT),
)


def heartbeat(page: spool.Page, ledger: Ledger) -> dict[str, Any]:
    """Attributes of a `worker.heartbeat`. A beat that was never given is absent: it has no age."""
    now = time.monotonic_ns()
    facts: dict[str, Any] = {
        key: round(max(0, now - page.get(offset)) / 1e9, 3) for key, offset in _BEATS if page.get(offset)
    }
    facts[Key.HEARTBEAT_JOBS] = ledger.jobs_in_hand
    rss = rss_bytes(page.get(spool.Page.WORKER_PID))
    if rss is not None:
        facts[Key.HEARTBEAT_RSS_BYTES] = rss
    return facts


def losses(page: spool.Page, ledger: Ledger) -> dict[str, int]:
    """`stallscope.loss.<reason>`, since the boot."""
    counts = dict(ledger.losses)
    dropped = page.get(spool.Page.DROPPED)
    if dropped:
        counts["spool_full"] = counts.get("spool_full", 0) + dropped
    return {f"{Key.LOSS_PREFIX}{reason}": count for reason, count in counts.items()}
