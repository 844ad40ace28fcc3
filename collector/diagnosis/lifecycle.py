"""What happened to the request: the rules in their order. The first that fits wins."""

from __future__ import annotations

from typing import Final

from collector.diagnosis.evidence import AttemptEvidence, Evidence
from collector.diagnosis.lifecycle_case import Case, Rule, Ruling
from collector.diagnosis.lifecycle_end import (
    backend_dead,
    claim_forgotten,
    cold_start_slow,
    execution_timeout,
    process_gone,
    result_expired,
    run_silent,
    stranded_claim,
    under_way,
    worker_hung,
)
from collector.diagnosis.lifecycle_logged import with_logged
from collector.diagnosis.lifecycle_outcome import (
    block_ended,
    delivered,
    failed_for_caller,
    lost_on_intake,
    result_lost,
    result_never_sent,
    result_undeliverable,
    run_failed,
)
from collector.diagnosis.lifecycle_queue import (
    Waiting,
    WaitingRule,
    boot_crashed,
    boot_hung,
    cancelled_in_queue,
    completed_unseen,
    expired,
    failed_unseen,
    nothing_decides,
    pending_returned,
    start_failed,
    still_queued,
    stray_stop,
)
from collector.diagnosis.lifecycle_start import fitness_failed, prestart_failed
from collector.diagnosis.lifecycle_stop import stop_pending, stop_signal_lost, stop_told
from collector.diagnosis.lifecycle_unread import claim_left_unread
from collector.diagnosis.lifecycle_waiting import crash_loop, queue_stalled, start_under_way, waits_unsent
from sdk_exporter.contract import SpanName

RULES: Final[tuple[Rule, ...]] = (
    stop_told,
    stop_pending,
    stop_signal_lost,
    lost_on_intake,
    delivered,
    block_ended,
    result_undeliverable,
    result_lost,
    result_expired,
    result_never_sent,
    fitness_failed,
    prestart_failed,
    run_failed,
    process_gone,
    stranded_claim,
    run_silent,
    execution_timeout,
    failed_for_caller,
    claim_forgotten,
    worker_hung,
    backend_dead,
    cold_start_slow,
)
"""For an attempt. A request that is simply under way fits none of them."""

WAITING_RULES: Final[tuple[WaitingRule, ...]] = (
    cancelled_in_queue,
    completed_unseen,
    claim_left_unread,
    crash_loop,
    boot_crashed,
    start_failed,
    boot_hung,
    expired,
    failed_unseen,
    pending_returned,
    start_under_way,
    queue_stalled,
    stray_stop,
    still_queued,
    waits_unsent,
)
"""For a request that nobody is known to have claimed."""


def judge(evidence: Evidence, attempt: AttemptEvidence) -> Ruling:
    """What happened to this attempt."""
    case = Case(evidence, attempt)
    for rule in RULES:
        found = rule(case)
        if found is not None:
            return with_logged(found, attempt.logs)
    return under_way(case)


def judge_unclaimed(evidence: Evidence) -> Ruling:
    """What happened to a request that nobody is known to have claimed."""
    case = Waiting(evidence)
    logs = [record for record in evidence.records if record.job_id and record.name == SpanName.LOG_RECORD]
    for rule in WAITING_RULES:
        found = rule(case)
        if found is not None:
            return with_logged(found, logs)
    return with_logged(nothing_decides(case), logs)
