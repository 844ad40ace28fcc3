"""What others went through sharpens a verdict: requests on the same worker, and the endpoint's recent life."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import histories as h
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_lifecycle import HISTORIES
from test_lifecycle_order import hostile_spans

from collector.diagnosis import answer_of, diagnose
from collector.diagnosis.answer import Missing, Verdict
from collector.diagnosis.beside import Beside, Outcome, Start
from collector.diagnosis.evidence import Evidence
from collector.diagnosis.fingerprint import fingerprint
from collector.diagnosis.records import Record, records_of
from collector.diagnosis.standing_out import DIMENSIONS, Tally
from collector.rows import SpanRow
from sdk_exporter.contract import Key

ASSERT = ("RuntimeError", "CUDA error: device-side assert triggered")
ASSERT_TAIL = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1284: indexSelectLargeIndex: block: [134,0,0], thread: [0,0,0]"
    " Assertion `srcIndex < srcSelectDimSize` failed.\n"
    "RuntimeError: CUDA error: device-side assert triggered\n"
)
OOM = ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB")
W2: dict[str, Any] = {"worker": "w2", "boot": "c" * 32}


def other_runs(*spans: list[SpanRow]) -> tuple[Record, ...]:
    return records_of([span for run in spans for span in run])


def beside(evidence: Evidence, **told: Any) -> Verdict:
    return diagnose(replace(evidence, beside=Beside(**told)))


def failing(**more: Any) -> Evidence:
    """A request whose handler had a CUDA call fail."""
    return h.evidence(h.claim(30), h.run(30.1, 31, error=more.pop("error", ASSERT), **more), h.deliver(31, 31.1))


# ------------------------------------------------------------------------------------------- others on its worker


FIRST = h.run(0.1, 2, job="first", error=ASSERT, attributes={Key.LOG_TAIL: ASSERT_TAIL, Key.LOG_SCOPE: "job"})


def test_a_worker_that_an_earlier_request_had_broken() -> None:
    alone = diagnose(failing())
    verdict = beside(failing(), siblings=other_runs(FIRST, h.run(10.1, 11, job="second", error=ASSERT)))
    assert (alone.code, alone.cause, alone.retry) == ("handler_failed", "cuda_error", "no")
    assert (verdict.code, verdict.cause, verdict.retry) == ("handler_failed", "cuda_error", "yes")
    assert verdict.sentence == alone.sentence + (
        " The worker's use of its GPU had been broken since request `first` failed at 12:00:02.0Z; all 3 requests that"
        " used the GPU there failed since, and so will the next."
    )
    cited = verdict.evidence[-1]
    assert cited.span_id == FIRST[1].span_id
    assert cited.text.startswith("request `first` was the first to fail on this worker: ../aten/src/ATen/")
    assert "`first`" in verdict.advice[0]


def test_an_error_that_only_names_the_gpu_gets_its_cause_from_the_request_that_broke_it() -> None:
    later = failing(error=("RuntimeError", "cuDNN is not to be used now"))
    assert diagnose(later).cause == "handler_exception"
    verdict = beside(later, siblings=other_runs(FIRST))
    assert (verdict.cause, verdict.confidence, verdict.retry) == ("cuda_error", "likely", "yes")


@pytest.mark.parametrize(
    ("why", "siblings"),
    [
        ("it is the first", ()),
        ("one between went well", other_runs(FIRST, h.run(5, 6, job="ok"))),
        ("out of memory does not last", other_runs(h.run(0.1, 2, job="first", error=OOM))),
        ("another boot", other_runs(h.run(0.1, 2, job="first", error=ASSERT, **W2))),
        ("it came later", other_runs(h.run(40, 41, job="later", error=ASSERT))),
        ("its own record", other_runs(h.run(0.1, 2, error=ASSERT))),
        ("the other still runs", other_runs(h.run(0.1, job="open"))),
    ],
)
def test_what_broke_no_worker(why: str, siblings: tuple[Record, ...]) -> None:
    assert beside(failing(), siblings=siblings) == diagnose(failing()), why


EXIT = h.run(2, 4, job="culprit", error=("SystemExit", "3"))


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        ("self_cancelled", h.evidence(h.claim(0), h.run(0.1, 4.1, error=("CancelledError", "")))),
        ("handler_exited", h.evidence(h.claim(0), h.run(0.1), h.death(4.5, code=3, jobs=[h.JOB, "culprit"]))),
    ],
)
def test_a_request_that_another_took_down(code: str, evidence: Evidence) -> None:
    assert diagnose(evidence).code == code
    verdict = beside(evidence, siblings=other_runs(EXIT))
    assert (verdict.code, verdict.retry, verdict.fault) == ("worker_crashed", "yes", "user_code")
    assert verdict.title == "The worker crashed in mid-request"
    assert "the handler of request `culprit` on worker `w1` raised SystemExit" in verdict.sentence
    assert EXIT[1].span_id in {item.span_id for item in verdict.evidence}
    assert verdict.confidence == "likely"


def test_the_one_that_ended_the_worker_is_no_victim() -> None:
    own = h.evidence(h.claim(0), h.run(0.1, 4, error=("SystemExit", "3")), h.death(4.5, code=3, jobs=[h.JOB]))
    assert beside(own, siblings=other_runs(EXIT)) == diagnose(own)
    long_ago = h.evidence(h.claim(100), h.run(100.1, 104, error=("CancelledError", "")), now=200)
    assert beside(long_ago, siblings=other_runs(EXIT)) == diagnose(long_ago)


def test_whose_handler_ended_the_worker_is_not_known_where_it_ran_several() -> None:
    verdict = diagnose(h.evidence(h.claim(0), h.run(0.1), h.death(5, code=7, jobs=[h.JOB, "b", "c"])))
    assert (verdict.code, verdict.confidence) == ("handler_exited", "likely")
    assert "because one of the 3 handlers on worker `w1` ended it" in verdict.sentence


# --------------------------------------------------------------------------------------------- the request itself


def test_a_request_that_ends_each_of_its_workers() -> None:
    spans = [h.claim(0), *h.run(0.1), h.death(5, signal="SIGSEGV", jobs=[h.JOB])]
    spans += [h.claim(20, **W2), *h.run(20.1, **W2), h.death(25, signal="SIGSEGV", jobs=[h.JOB], **W2)]
    verdict = diagnose(h.evidence(spans))
    assert (verdict.code, verdict.retry) == ("worker_crashed", "no")
    assert verdict.sentence.endswith(" Both workers that ran this request ended so.")
    assert verdict.evidence[-1].span_id == spans[2].span_id
    drained = [*spans[:2], h.shutdown(4), *spans[2:]]
    assert "Both" not in diagnose(h.evidence(drained)).sentence


# ------------------------------------------------------------------------------------------------- its endpoint


def starts(number: int) -> tuple[Start, ...]:
    return tuple(Start(f"w{n}", f"{n:032x}", h.ns(n * 10.0), f"{n:016x}") for n in range(number))


CRASHED = HISTORIES["module-level crash, the request waits"][1]


def test_worker_after_worker_ends_before_it_asks_for_work() -> None:
    verdict = beside(CRASHED, starts=starts(6))
    assert (verdict.code, verdict.retry) == ("boot_crashed", "no")
    assert verdict.sentence.endswith(" It is the 6th worker of the endpoint to end before start() in 10 min.")
    assert [item.span_id for item in verdict.evidence[-2:]] == [f"{0:016x}", f"{5:016x}"]
    assert beside(CRASHED, starts=starts(2)) == diagnose(CRASHED)


def tally(failed: int, total: int, first: float = 0.0, **where: str) -> Tally:
    return Tally({**dict.fromkeys(DIMENSIONS, ""), **where}, failed, total, h.ns(first))


BROKEN = HISTORIES["handler raised"][1]


def test_a_failure_of_one_host_alone() -> None:
    told = {"tallies": (tally(9, 9, host="bad"), tally(0, 120, host="good")), "where": {"host": "bad"}}
    alone, verdict = diagnose(BROKEN), beside(BROKEN, **told)
    assert (
        verdict.sentence
        == f"{alone.sentence} It happens only on host `bad`: 9 of 9 requests there, 0 of 120 elsewhere."
    )
    assert (alone.retry, verdict.retry) == ("no", "yes")
    assert verdict.evidence[-1].text == (
        "host `bad`: 9 of 9 requests there, 0 of 120 elsewhere failed so; 26.3 to any times the rate elsewhere"
    )
    assert beside(BROKEN, **{**told, "where": {"host": "good"}}) == alone
    assert fingerprint(verdict) == fingerprint(alone)


def test_a_failure_that_one_host_has_more_often() -> None:
    tallies = (tally(12, 100, host="bad"), tally(5, 500, host="a"), tally(5, 500, host="b"))
    verdict = beside(BROKEN, tallies=tallies, where={"host": "bad"})
    assert (
        " It happens 12 times as often on host `bad` as elsewhere: 12 of 100 requests there, 10 of 1000 elsewhere."
        in (verdict.sentence)
    )


def test_a_failure_that_came_with_an_image() -> None:
    tallies = (tally(0, 120, image="acme:v42"), tally(5, 5, first=50, image="acme:v43"))
    verdict = beside(BROKEN, tallies=tallies, where={"image": "acme:v43"})
    assert verdict.sentence.endswith(" First seen with image `acme:v43`: 5 of 5 requests with it, 0 of 120 before it.")
    assert verdict.retry == "no"
    assert verdict.advice[0] == "Compare image `acme:v43` with the one before, or go back to it."


def outcomes(*same: bool, since: float = -10.0) -> tuple[Outcome, ...]:
    return tuple(Outcome(f"o{n}", h.ns(since - n), one) for n, one in enumerate(same))


def test_every_request_of_the_endpoint_fails_so() -> None:
    verdict = beside(BROKEN, outcomes=outcomes(True, True, False, True))
    assert verdict.sentence.endswith(" Every request of the endpoint since 11:59:49.0Z has ended so, 3 of them.")
    only = beside(BROKEN, outcomes=outcomes(True, True))
    assert only.sentence.endswith(" has ended so, at least 3 of them.")


@pytest.mark.parametrize(
    "told",
    [outcomes(True, False, True), outcomes(False, True, True, True), outcomes(True, True, False, since=100.0), ()],
)
def test_not_every_request_of_the_endpoint_fails_so(told: tuple[Outcome, ...]) -> None:
    assert beside(BROKEN, outcomes=told) == diagnose(BROKEN)


def test_what_could_not_be_read_is_said() -> None:
    verdict = beside(BROKEN, gaps=("the endpoint's other requests",))
    assert verdict.missing[-1] == Missing("the endpoint's other requests: the store did not answer in time", "")


# ------------------------------------------------------------------------------------------------------------ all


@pytest.mark.parametrize("name", HISTORIES)
def test_page_api_and_command_line_say_the_same(name: str) -> None:
    told = Beside(
        siblings=other_runs(FIRST, EXIT),
        starts=starts(4),
        tallies=(tally(9, 9, host="bad"), tally(0, 120, host="good")),
        where={"host": "bad"},
        outcomes=outcomes(True, True, False),
    )
    evidence = replace(HISTORIES[name][1], beside=told)
    answer = answer_of(evidence, tenant="t")
    assert answer.verdict == diagnose(evidence)
    assert "\n" not in answer.verdict.sentence
    if answer.attempts:
        assert answer.attempts[-1].verdict == answer.verdict


@given(spans=st.lists(hostile_spans(), max_size=8), others=st.lists(hostile_spans(), max_size=8))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_input_makes_it_raise(spans: list[SpanRow], others: list[SpanRow]) -> None:
    verdict = beside(h.evidence(spans), siblings=records_of(others), starts=starts(5))
    assert "\n" not in verdict.sentence
