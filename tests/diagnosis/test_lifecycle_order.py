"""Where several rules fit, the contract says which wins; and the order in which records came never matters."""

from __future__ import annotations

from typing import Any

import histories as h
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_lifecycle import HISTORIES

from collector.diagnosis import answer_of, diagnose
from collector.diagnosis.evidence import evidence_of
from collector.diagnosis.fingerprint import fingerprint
from collector.rows import Attributes, SpanEvent, SpanRow
from sdk_exporter.contract import STARTED_SUFFIX, Key, SpanName, StopOutcome

FAILED_HOOK = h.prestart(-1, 1, error=("ValueError", "bad"), attributes={Key.PRESTART_HOOK: "load"})
KILLED = h.death(50, signal="SIGKILL", oom=False, jobs=[h.JOB])

ORDER: dict[str, tuple[str, list[SpanRow]]] = {
    "a stop beats a delivered result": (
        "stop_swallowed",
        [*h.run(0.1, 3), h.stop(2, 3, "swallowed"), h.deliver(3, 3.1)],
    ),
    "a stop beats a failed handler": (
        "stop_cleanup_failed",
        [*h.run(0.1, 3, error=("ValueError", "x")), h.stop(2, 3, "cleanup_failed"), h.deliver(3, 3.1)],
    ),
    "a stop beats a lost result": (
        "stop_late",
        [*h.run(0.1, 3), h.stop(2, 3, "late"), h.deliver(3, 3.1, 404, last=True)],
    ),
    "a stop beats a killed worker": ("stop_ignored", [*h.run(0.1), h.stop(2, 12, "ignored"), KILLED]),
    "the latest word about a stop counts": (
        "stop_late",
        [*h.run(0.1, 20), h.stop(2, 12, "ignored"), h.stop(13, 20, "late")],
    ),
    "a repeated stop for a request that has left changes nothing": (
        "stopped",
        [*h.run(0.1, 3, error=("CancelledError", "")), h.stop(2.9, 3, "stopped"), h.stop(8, 8, "late")],
    ),
    "a stop that the platform sent for a completed request changes nothing": (
        "completed",
        [*h.run(0.1, 3), h.deliver(3, 3.1), h.poll(4, "COMPLETED"), h.stop(5, 5, "late")],
    ),
    "a stop that came after the result changes nothing": (
        "completed",
        [*h.run(0.1, 3), h.deliver(3, 3.1), h.stop(4, 4, "unknown_job")],
    ),
    "a delivered outcome beats what became of the worker": ("completed", [*h.run(0.1, 3), h.deliver(3, 3.1), KILLED]),
    "a delivered outcome beats earlier refused tries": (
        "completed",
        [*h.run(0.1, 3), h.deliver(3, 3.1, 500), h.deliver(5, 5.1)],
    ),
    "a lost result beats the handler's own failure": (
        "result_lost",
        [*h.run(0.1, 3, error=("ValueError", "x")), h.deliver(3, 3.1, 400, last=True)],
    ),
    "a refused failure of prestart is a lost result": (
        "result_lost",
        [*FAILED_HOOK, h.deliver(3, 3.1, 400, last=True)],
    ),
    "a failed prestart beats the death that follows": ("prestart_failed", [*FAILED_HOOK, h.death(3, code=1)]),
    "a failed prestart beats the shutdown that follows": ("prestart_failed", [*FAILED_HOOK, h.shutdown(1.1)]),
    "a run means that prestart is no matter": ("worker_killed", [*FAILED_HOOK, *h.run(2), KILLED]),
    "a failed run beats the death that follows": (
        "handler_failed",
        [*h.run(0.1, 3, error=("ValueError", "x")), KILLED],
    ),
    "never run is stranded, whatever ended the worker": ("stranded_claim", [h.death(5, code=1, jobs=[h.JOB])]),
    "never run and segmentation fault is stranded": ("stranded_claim", [h.death(5, signal="SIGSEGV", jobs=[h.JOB])]),
    "a death beats an old heartbeat of a hang": (
        "worker_killed",
        [*h.run(0.1), h.heartbeat(49, process=49.0), KILLED],
    ),
    "the caller's COMPLETED beats a missing delivery": ("completed", [*h.run(0.1, 3), h.poll(5, "COMPLETED"), KILLED]),
    "the caller's FAILED does not hide what killed the worker": (
        "worker_killed",
        [*h.run(0.1), KILLED, h.poll(55, "FAILED")],
    ),
    "a stranded claim explains the time limit that ended it": (
        "stranded_claim",
        [h.poll(45, "TIMED_OUT"), h.death(5, code=1, jobs=[h.JOB])],
    ),
    "a killed worker explains the time limit that ended it": (
        "worker_killed",
        [*h.run(0.1), KILLED, h.poll(55, "TIMED_OUT")],
    ),
    "the ledger's word is enough without a run or a claim": ("stranded_claim", [KILLED]),
}


@pytest.mark.parametrize("name", ORDER)
def test_precedence(name: str) -> None:
    code, spans = ORDER[name]
    assert diagnose(h.evidence(h.claim(0), spans)).code == code


def test_a_stop_for_one_attempt_is_no_stop_of_the_next() -> None:
    other: dict[str, Any] = {"worker": "w2", "boot": "c" * 32}
    evidence = h.evidence(
        h.claim(0), h.run(0.1, 2), h.stop(1, 2, "stopped"), h.claim(10, **other), h.run(11, 12, **other),
        h.deliver(12, 12.1, **other),
    )  # fmt: skip
    answer = answer_of(evidence, tenant="default")
    assert [a.verdict.code for a in answer.attempts] == ["stopped", "completed"]
    assert answer.verdict.code == "completed"


def test_late_records_revise_only_their_own_attempt() -> None:
    other: dict[str, Any] = {"worker": "w2", "boot": "c" * 32}
    spans = [h.claim(0), *h.run(0.1), h.claim(200, **other), *h.run(201, 202, **other), h.deliver(202, 203, **other)]
    before = answer_of(h.evidence(spans, now=210), tenant="default")
    after = answer_of(h.evidence(spans, h.death(90, signal="SIGSEGV", jobs=[h.JOB]), now=210), tenant="default")
    assert (before.attempts[0].verdict.code, after.attempts[0].verdict.code) == ("worker_killed", "worker_crashed")
    assert before.attempts[1] == after.attempts[1]
    assert before.verdict == after.verdict


def test_three_in_hand_fail_with_the_same_reason() -> None:
    jobs = ["a", "b", "c"]
    spans = [h.claim(0, job=job) for job in jobs] + FAILED_HOOK
    verdicts = [diagnose(evidence_of(job, spans, h.at(10))) for job in jobs]
    assert {v.code for v in verdicts} == {"prestart_failed"}
    assert len({v.sentence for v in verdicts}) == 1


# --------------------------------------------------------------------------------------------- order, duplicates

SPANS: dict[str, list[SpanRow]] = {name: spans for name, (_, spans) in ORDER.items()}


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_order_and_repeats_change_nothing(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ORDER)))
    spans = [h.claim(0), *ORDER[name][1], h.request(-1), h.heartbeat(40, process=1.0)]
    expected = answer_of(evidence_of(h.JOB, spans, h.at(60)), tenant="default")
    repeats = data.draw(st.lists(st.sampled_from(spans), max_size=6))
    shuffled = data.draw(st.permutations([*spans, *repeats]))
    assert answer_of(evidence_of(h.JOB, shuffled, h.at(60)), tenant="default") == expected


def test_diagnosing_twice_gives_the_same() -> None:
    for _, evidence in HISTORIES.values():
        assert answer_of(evidence, tenant="t") == answer_of(evidence, tenant="t")


# ------------------------------------------------------------------------------------------------------- hostile

NAMES = sorted(
    {value for key, value in vars(SpanName).items() if key.isupper()}
    | {value + STARTED_SUFFIX for key, value in vars(SpanName).items() if key.isupper()}
    | {"", "POST /", STARTED_SUFFIX}
)
KEYS = sorted({value for key, value in vars(Key).items() if key.isupper()})
WORDS = [
    *(o.value for o in StopOutcome),
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMED_OUT",
    "SIGKILL",
    "SIGNOPE",
    "",
    h.JOB,
]

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=True)
    | st.sampled_from(WORDS)
    | st.text(max_size=20)
)
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
attributes: st.SearchStrategy[Attributes] = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)
times = st.integers(h.ns(-100), h.ns(2000)) | st.integers(-(2**64), 2**65)
ids = st.sampled_from(["", "w1", "w2", "b" * 32, "0" * 16, "ABCDEF0123456789"])


@st.composite
def hostile_spans(draw: st.DrawFn) -> SpanRow:
    return SpanRow(
        tenant="default",
        arrived_ms=draw(st.integers(0, 2**45)),
        start_ns=draw(times),
        end_ns=draw(times),
        trace_id=draw(ids),
        span_id=draw(ids | st.text(max_size=4)),
        parent_id=draw(ids),
        job_id=draw(st.sampled_from(["", h.JOB, h.JOB, "job-2"])),
        endpoint_id=draw(ids),
        worker_id=draw(ids),
        boot_id=draw(ids),
        name=draw(st.sampled_from(NAMES)),
        kind=draw(st.integers(-5, 9)),
        status=draw(st.sampled_from(["unset", "ok", "error", "weird"])),
        status_message=draw(st.text(max_size=10)),
        attributes=draw(attributes),
        resource=draw(attributes),
        events=draw(st.lists(st.builds(SpanEvent, st.just("exception"), times, attributes), max_size=2)),
    )


@given(spans=st.lists(hostile_spans(), max_size=12))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_input_makes_it_raise(spans: list[SpanRow]) -> None:
    evidence = evidence_of(h.JOB, spans, h.at(60))
    answer = answer_of(evidence, tenant="default")
    assert answer.verdict.evidence
    assert "\n" not in answer.verdict.sentence
    assert len(answer.spans) == len({s.span_id for s in answer.spans})
    assert fingerprint(answer.verdict, evidence)
