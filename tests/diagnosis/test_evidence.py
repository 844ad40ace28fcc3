"""Joining records to one request: merging, attempts, and what belongs to which worker boot."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import histories as h

from collector.diagnosis.evidence import evidence_of, heard_of
from collector.diagnosis.records import moment, records_of
from sdk_exporter.contract import Key, LogScope, SpanName


def test_start_and_end_of_one_thing_are_one_record() -> None:
    start, end = h.run(1, 3)
    for spans in ([start, end], [end, start], [end, start, start, end]):
        (record,) = records_of(spans)
        assert (record.name, record.span_id) == (SpanName.JOB_RUN, end.span_id)
        assert (record.start, record.end) == (h.at(1), h.at(3))


def test_a_start_without_its_end_stays_open_under_the_id_that_its_end_will_have() -> None:
    start, end = h.run(1, 3)
    (record,) = records_of([start])
    assert (record.name, record.end, record.span_id) == (SpanName.JOB_RUN, None, end.span_id)


def test_what_only_the_start_told_is_kept() -> None:
    start = h.began(SpanName.JOB_RUN, 1, attributes={Key.HANDLER_KIND: "async"})
    _, end = h.run(1, 3)
    (record,) = records_of([start, end])
    assert record.text(Key.HANDLER_KIND) == "async"


def test_a_claim_by_another_boot_is_a_new_attempt() -> None:
    other: dict[str, Any] = {"worker": "w2", "boot": "c" * 32}
    evidence = h.evidence(h.claim(0), h.run(0.1), h.claim(100, **other), h.run(101, **other))
    assert [(a.number, a.worker_id) for a in evidence.attempts] == [(1, "w1"), (2, "w2")]


def test_a_claim_by_the_same_boot_after_a_terminal_state_is_a_new_attempt() -> None:
    evidence = h.evidence(h.claim(0), h.run(0.1, 1), h.deliver(1, 1.1), h.claim(10, span_id="c2"), h.run(10.1), now=12)
    assert [a.number for a in evidence.attempts] == [1, 2]
    first, second = evidence.attempts
    assert first.delivered is not None
    assert (second.delivered, second.run is not None) == (None, True)


def test_a_second_claim_by_the_same_boot_before_any_end_is_the_same_attempt() -> None:
    evidence = h.evidence(h.claim(0), h.claim(5, span_id="c2"), h.run(6))
    assert len(evidence.attempts) == 1


def test_attempts_of_one_boot_are_told_apart_by_trace() -> None:
    evidence = h.evidence(
        h.claim(0, trace="a" * 32),
        h.run(0.1, 1, trace="a" * 32),
        h.claim(10, trace="b" * 32),
        h.deliver(1, 11, trace="a" * 32),
        h.run(10.1, trace="b" * 32),
    )
    first, second = evidence.attempts
    assert (len(first.deliveries), len(second.deliveries)) == (1, 0)


def test_overlapping_attempts_are_both_kept() -> None:
    other: dict[str, Any] = {"worker": "w2", "boot": "c" * 32}
    evidence = h.evidence(h.claim(0), h.run(1, 50), h.claim(10, **other), h.run(11, 20, **other))
    assert [a.run.end for a in evidence.attempts if a.run] == [h.at(50), h.at(20)]


def test_worker_records_join_only_what_they_touch() -> None:
    evidence = h.evidence(h.claim(0), h.run(0.1, 1), h.deliver(1, 1.1), h.death(50, code=0))
    assert evidence.attempts[0].death is None
    evidence = h.evidence(h.claim(0), h.run(0.1), h.death(50, code=0))
    assert evidence.attempts[0].death is not None
    evidence = h.evidence(h.claim(0), h.run(0.1), h.death(50, code=0, boot="c" * 32))
    assert evidence.attempts[0].death is None


def test_of_several_ends_that_one_counts_which_names_the_request() -> None:
    before, other, naming = h.death(-5, code=0), h.death(40, code=1), h.death(50, signal="SIGKILL", jobs=[h.JOB])
    for deaths in ([before, other, naming], [naming, other], [naming]):
        death = h.evidence(h.claim(0), h.run(0.1), *deaths).attempts[0].death
        assert death is not None
        assert death.span_id == naming.span_id
    assert h.evidence(h.claim(0), h.run(0.1), before).attempts[0].death is None


def test_the_ledger_of_a_dead_worker_tells_a_lost_claim() -> None:
    evidence = h.evidence(h.request(-1), h.death(5, signal="SIGKILL", jobs=[h.JOB]))
    (attempt,) = evidence.attempts
    assert (attempt.claim, attempt.worker_id) == (None, "w1")


def test_records_without_a_worker_id_belong_to_the_one_worker_of_their_boot() -> None:
    evidence = h.evidence(h.claim(0), h.run(0.1), h.death(5, code=1, worker=""))
    assert evidence.attempts[0].death is not None


def test_spans_of_another_sdk_join_by_trace_and_worker() -> None:
    trace = "d" * 32
    foreign = h.span("POST /generate", 0.5, 0.9, boot="", worker="", trace=trace)
    evidence = h.evidence(h.claim(0, trace=trace), h.run(0.1, trace=trace), foreign)
    assert foreign.span_id in {r.span_id for r in evidence.attempts[0].records}
    alone = h.evidence(foreign)
    assert alone.attempts == ()
    assert [r.name for r in alone.records] == ["POST /generate"]


def test_another_jobs_records_are_no_evidence() -> None:
    evidence = h.evidence(h.claim(0), h.run(0.1, 1, job="job-2", error=("ValueError", "theirs")))
    assert {r.job_id for r in evidence.records} == {h.JOB}


def test_a_workers_tail_is_never_shown_as_the_jobs_own() -> None:
    told = {Key.LOG_TAIL: "x", Key.LOG_SCOPE: LogScope.JOB.value}
    (death,) = records_of([h.worker_span(SpanName.DEATH, 1, attributes=told)])
    (run,) = records_of([h.span(SpanName.JOB_RUN, 1, attributes=told)])
    assert death.tail is not None
    assert death.tail.scope == "worker"
    assert run.tail is not None
    assert run.tail.scope == "job"


def test_a_tail_that_was_withheld_is_told_though_it_is_empty() -> None:
    (death,) = records_of([h.death(1, code=1, withheld=77)])
    assert death.tail is not None
    assert (death.tail.text, death.tail.bytes_withheld, death.tail.complete) == ("", 77, False)


def test_last_heard_of_follows_the_senders_clock() -> None:
    records = records_of([h.claim(0), h.heartbeat(15)])
    assert heard_of(records) == h.at(15)


def test_a_backlog_handed_in_late_does_not_make_a_silent_worker_fresh() -> None:
    records = records_of([h.claim(0, arrived=600), h.worker_span(SpanName.HEARTBEAT, 15, arrived=600)])
    assert heard_of(records) == h.at(15)


def test_a_clock_that_is_ahead_does_not_hide_silence() -> None:
    records = records_of([h.claim(3600, arrived=0)])
    assert heard_of(records) == h.at(0)


def test_a_live_worker_with_a_slow_clock_is_not_silent() -> None:
    beats = [h.worker_span(SpanName.HEARTBEAT, t - 3600, arrived=t) for t in (0, 15, 30, 45)]
    assert heard_of(records_of(beats)) == h.at(45)


def test_times_out_of_range_are_clamped() -> None:
    assert moment(-5).year == 1970
    assert moment(2**80).year == 9999
    assert moment(1_000_000_000) - moment(0) == timedelta(seconds=1)


def test_no_spans_are_no_evidence() -> None:
    evidence = evidence_of("nobody", [], h.at(0))
    assert (evidence.attempts, evidence.records, evidence.endpoint_id) == ((), (), None)


def test_a_span_nested_beyond_reason_is_read() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    spans = [h.span(SpanName.JOB_RUN, 1, attributes={"x": deep}, span_id="a", arrived=i) for i in range(2)]
    assert len(records_of(spans)) == 1


def test_64_bit_integers_stay_exact() -> None:
    (record,) = records_of([h.span(SpanName.JOB_DELIVER, 1, attributes={Key.DELIVER_BYTES: 2**63 - 1})])
    assert record.integer(Key.DELIVER_BYTES) == 2**63 - 1
