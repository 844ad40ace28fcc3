"""The answer around the verdict: phases, cost, tail, spans, and the verdict about a pasted log."""

from __future__ import annotations

from pathlib import Path

import histories as h
import pytest
from test_lifecycle import HISTORIES, failed_prestart

from collector.diagnosis import answer_of, diagnose, diagnose_tail
from collector.diagnosis.answer import Answer, Group, Revision
from collector.diagnosis.clues import CluePhase, Clues
from collector.diagnosis.verdicts import CAUSES, VERDICTS
from collector.diagnosis.verdicts_page import markdown
from sdk_exporter.contract import SpanName

ROOT = Path(__file__).parents[2]


def phases(answer: Answer) -> list[tuple[str, float | None, bool]]:
    return [(p.name, None if p.seconds is None else round(p.seconds, 3), p.complete) for p in answer.phases]


def test_phases_of_a_success() -> None:
    answer = answer_of(
        h.evidence(
            h.request(-4), h.boot(-3, -1), h.claim(0), h.ended(SpanName.JOB_GATED, 0, 0.1), h.run(0.1, 2),
            h.deliver(2, 2.1),
        ),
        tenant="default",
    )  # fmt: skip
    assert phases(answer) == [
        ("queued", 4.0, True),
        ("boot", 2.0, True),
        ("claimed", 0.1, True),
        ("gated", 0.1, True),
        ("run", 1.9, True),
        ("deliver", 0.1, True),
    ]
    assert (answer.wasted.caller_seconds, answer.wasted.gpu_seconds) == (None, None)


def test_missing_edges_are_shown_as_missing() -> None:
    answer = answer_of(h.evidence(h.claim(0), h.run(0.1), h.death(5, signal="SIGKILL", jobs=[h.JOB])), tenant="t")
    assert phases(answer) == [("queued", None, False), ("claimed", 0.1, True), ("run", 4.9, False)]
    open_run = answer_of(h.evidence(h.claim(0), h.run(0.1), now=9), tenant="t").phases[-1]
    assert (open_run.end, open_run.seconds, open_run.complete) == (None, None, False)


def test_a_queued_request_has_one_open_phase() -> None:
    answer = answer_of(h.evidence(h.request(0), now=3), tenant="t")
    assert phases(answer) == [("queued", None, False)]
    assert answer.attempts == ()
    assert answer.worker_ids == ()


def test_a_start_that_crashed_is_on_the_timeline_of_the_request_that_waits() -> None:
    answer = answer_of(HISTORIES["module-level crash, the request waits"][1], tenant="t")
    assert phases(answer) == [("queued", None, False), ("boot", 0.6, False), ("boot", 0.7, False)]


def test_cost_of_a_failure() -> None:
    answer = answer_of(h.evidence(h.request(-2), h.claim(0), failed_prestart(), h.deliver(3.2, 3.3)), tenant="t")
    assert answer.wasted.caller_seconds == pytest.approx(5.3)
    assert answer.wasted.gpu_seconds == pytest.approx(3.3)


def test_cost_of_an_ignored_stop() -> None:
    answer = answer_of(
        h.evidence(h.claim(0), h.run(0.1), h.stop(3, 13, "ignored"), h.heartbeat(29, process=0.1), now=30), tenant="t"
    )
    assert answer.wasted.seconds_since_cancel == pytest.approx(27)
    assert answer.wasted.slot_held is True


def test_cost_of_a_lost_stop_signal() -> None:
    answer = answer_of(HISTORIES["cancelled, the signal was dropped, and the late result was taken"][1], tenant="t")
    assert answer.wasted.seconds_since_cancel == pytest.approx(25)
    assert answer.wasted.slot_held is False


def test_a_caller_goes_on_waiting_after_the_worker_is_gone() -> None:
    killed = h.death(5, signal="SIGKILL", jobs=[h.JOB])
    answer = answer_of(h.evidence(h.request(-1), h.claim(0), h.run(0.1), killed, h.poll(40, "IN_PROGRESS")), tenant="t")
    assert answer.wasted.caller_seconds == pytest.approx(41)
    assert answer.wasted.gpu_seconds == pytest.approx(5)


def test_cost_of_starts_that_crashed() -> None:
    answer = answer_of(HISTORIES["module-level crash, the request waits"][1], tenant="t")
    assert answer.wasted.gpu_seconds == pytest.approx(1.3)


def test_the_tail_is_the_one_that_the_verdict_was_read_from() -> None:
    answer = answer_of(h.evidence(h.claim(0), failed_prestart(), h.deliver(3.2, 3.3)), tenant="t")
    assert answer.log_tail is not None
    line = answer.verdict.evidence[0]
    assert line.line is not None
    assert answer.log_tail.text.splitlines()[line.line - 1] == line.text
    assert (answer.log_tail.scope, answer.log_tail.bytes) == ("worker", len(answer.log_tail.text))


def test_what_was_withheld_names_the_setting() -> None:
    for name in ("kill -9 in mid-request", "handler ran out of GPU memory, its output withheld"):
        verdict = diagnose(HISTORIES[name][1])
        assert "STALLSCOPE_HANDLER_LOGS=on" in {item.how for item in verdict.missing}


def test_silence_names_the_launcher() -> None:
    verdict = diagnose(h.evidence(h.claim(0), h.run(0.1), now=200))
    assert [item.how for item in verdict.missing] == ["python -m sdk_exporter -- python handler.py"]


def test_one_entry_of_spans_per_span_id_under_the_ending_name() -> None:
    answer = answer_of(h.evidence(h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1)), tenant="t")
    assert [s.name for s in answer.spans] == [SpanName.JOB_CLAIMED, SpanName.JOB_RUN, SpanName.JOB_DELIVER]
    answer = answer_of(h.evidence(h.claim(0), h.run(0.1)), tenant="t")
    assert [(s.name, s.end is None) for s in answer.spans] == [(SpanName.JOB_CLAIMED, False), (SpanName.JOB_RUN, True)]


def test_group_history_and_revision_are_handed_through() -> None:
    group, past = Group("1:aa", 12, h.at(0)), (Revision(h.at(1), "stranded_claim", "a late record came"),)
    answer = answer_of(h.evidence(h.claim(0)), tenant="acme", revision=2, history=past, group=group)
    assert (answer.tenant, answer.revision, answer.history, answer.group) == ("acme", 2, past, group)
    assert answer.endpoint_id == h.ENDPOINT


# ------------------------------------------------------------------------------------------------------- a tail


@pytest.mark.parametrize(
    ("phase", "code"),
    [
        ("boot", "boot_crashed"),
        ("prestart", "prestart_failed"),
        ("handler", "handler_failed"),
        ("queue", "unknown"),
        ("stop", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_code_of_a_pasted_log_comes_from_its_phase_and_the_cause_does_not(
    phase: CluePhase | None, code: str
) -> None:
    verdict = diagnose_tail(Clues(text=f"loading\n{h.OOM_LINE}\n", phase=phase))
    assert (verdict.code, verdict.cause) == (code, "cuda_oom")
    assert (verdict.evidence[0].what, verdict.evidence[0].text, verdict.evidence[0].line) == ("log_line", h.OOM_LINE, 2)


def test_a_log_that_tells_nothing_is_unknown_and_says_what_was_looked_for() -> None:
    verdict = diagnose_tail(Clues(text="all is quiet\n", phase="handler"))
    assert (verdict.cause, verdict.confidence) == ("unknown", "unknown")
    assert verdict.evidence[-1].what == "absence"
    assert verdict.sentence.startswith("Why the handler failed is not known")


def test_page_and_pasted_log_agree() -> None:
    tail = f"loading weights\n{h.OOM_LINE}\n"
    job = diagnose(h.evidence(h.claim(0), failed_prestart()))
    pasted = diagnose_tail(Clues(text=tail, phase="prestart"))
    assert (job.code, job.cause, job.evidence[0].text) == (pasted.code, pasted.cause, pasted.evidence[0].text)


# ---------------------------------------------------------------------------------------------------- catalogue


def test_docs_are_printed_from_the_catalogue() -> None:
    assert (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8") == markdown()


CODES = """
completed queued running stopped boot_crashed boot_hung fitness_failed init_failed init_timeout prestart_failed
prestart_timeout handler_failed handler_returned_error generator_failed handler_exited self_cancelled stop_swallowed
stop_ignored stop_late stop_cleanup_failed stop_signal_lost cancelled_in_queue stranded_claim worker_killed
worker_crashed worker_hung worker_replaced backend_dead result_lost result_undeliverable result_expired
claim_lost_on_intake empty_input_dropped queue_stalled cold_start_slow execution_timeout expired pending_returned
unknown
"""


def test_the_codes_are_those_of_the_contract() -> None:
    """Scripts and dashboards of others depend on them: adding is free, renaming or removing breaks a user."""
    assert set(CODES.split()) <= set(VERDICTS)
    assert len(CAUSES) >= 37


def test_every_code_has_an_anchor_of_its_own() -> None:
    text = markdown()
    for code in VERDICTS:
        assert text.count(f'<a id="{code}"></a>') == 1
    for code in CAUSES:
        assert text.count(f'<a id="cause-{code}"></a>') == 1


def test_every_code_is_reached_by_a_history_and_its_example_is_what_is_really_said() -> None:
    said: dict[str, set[str]] = {}
    for _, evidence in HISTORIES.values():
        verdict = diagnose(evidence)
        said.setdefault(verdict.code, set()).add(verdict.sentence)
    for entry in VERDICTS.values():
        assert entry.example in said[entry.code], entry.code
