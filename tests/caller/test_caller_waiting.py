"""Waiting for a request: what is asked, when, for how long, and when it is given up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from invoke_side import ENDPOINT, Heard, InvokeSide, JumpingTime, stallscope

from collector.caller import (
    TERMINAL,
    ApiFailed,
    CallerError,
    CallTimedOut,
    Endpoint,
    JobFailed,
    JobStatus,
    NotAllowed,
    NotFound,
    Unreachable,
    WaitSpent,
)
from collector.caller import timing as times
from collector.caller.timing import Pauses, Timing
from collector.demo.platform import Fault

INPUT = {"prompt": "x"}
DOCS = Path(__file__).parents[2] / "docs"
HANGUP = Fault(hangup=True)
TROUBLES = {
    "503": Fault(status=503, body="busy"),
    "500": Fault(status=500),
    "429": Fault(status=429, body="slow down"),
    "broken connection": HANGUP,
}


def in_a_row(fault: Fault, times: int) -> list[Fault]:
    return [fault] * times


@pytest.fixture
def short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call may take 0.2 s, so that a test of many that hang is over soon."""
    monkeypatch.setattr(times, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(times, "CALL_FLOOR_SECONDS", 0.2)


def test_a_cold_start_longer_than_any_held_call_is_waited_for(  # A53
    endpoint: Endpoint, side: InvokeSide, clock: JumpingTime
) -> None:
    clock.at(80.5, lambda: side.become("IN_PROGRESS"))
    clock.at(127.5, lambda: side.become("COMPLETED", output={"text": "done"}))
    seen = endpoint.submit(INPUT).wait(300)
    assert (seen.status, b'"text": "done"' in seen.body) == ("COMPLETED", True)
    assert 127 < clock.passed < 133
    assert side.count("runsync") == 0


@pytest.mark.parametrize("wait", ["0", "1s", "5s", "11s", "5m"])
def test_however_short_the_wait_the_request_goes_out_by_run(wait: str, side: InvokeSide) -> None:  # A54
    stallscope("run", ENDPOINT, "--input", '{"a":1}', "--wait", wait)
    assert (side.count("run"), side.count("runsync")) == (1, 0)


@pytest.mark.parametrize("status", ["IN_QUEUE", "IN_PROGRESS", "RUNNING", "A_WORD_OF_TOMORROW"])
def test_a_pending_reply_is_never_a_result(status: str, endpoint: Endpoint, side: InvokeSide) -> None:  # A55
    request = endpoint.submit(INPUT)
    side.become(status)
    with pytest.raises(WaitSpent) as spent:
        request.wait(20)
    assert status in str(spent.value)
    assert status.encode() in (spent.value.body or b"")


@pytest.mark.parametrize("body", [{"status": "IN_QUEUE"}, {"id": "", "status": "IN_QUEUE"}, {"id": 7, "status": "X"}])
def test_a_pending_reply_without_id_is_an_error(body: dict[str, object], endpoint: Endpoint, side: InvokeSide) -> None:
    # A56
    side.answer("run", body)
    with pytest.raises(ApiFailed, match="no id") as failed:
        endpoint.submit(INPUT)
    assert failed.value.body is not None
    assert side.count("status") == 0


def test_pauses_double_up_to_five_seconds_with_jitter_and_never_overflow() -> None:  # A57
    def pauses(chance: float, count: int) -> list[float]:
        made = Pauses(Timing(chance=lambda: chance))
        return [made.next() for _ in range(count)]

    assert pauses(0.5, 6) == pytest.approx([1, 2, 4, 5, 5, 5])
    assert pauses(0.0, 5) == pytest.approx([0.8, 1.6, 3.2, 4, 4])
    assert pauses(0.999999, 5) == pytest.approx([1.2, 2.4, 4.8, 6, 6], rel=1e-4)  # clamped first, then jittered
    assert pauses(0.5, 2000)[-1] == 5


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES.keys())
def test_four_failures_in_a_row_pass_and_a_fifth_is_raised(  # A58
    trouble: Fault, endpoint: Endpoint, side: InvokeSide, clock: JumpingTime, heard: Heard
) -> None:
    request = endpoint.submit(INPUT)
    side.arm("status", *in_a_row(trouble, 4), Fault(serve=True), *in_a_row(trouble, 4))
    clock.at(40, lambda: side.become("COMPLETED"))
    assert request.wait(300).status == "COMPLETED"
    assert sum("asking again" in note for note in heard.notes) == 8

    side.arm("status", *in_a_row(trouble, 5))
    with pytest.raises((ApiFailed, Unreachable)) as failed:
        request.wait(300)
    assert not failed.value.retryable  # the request exists: running it again would be a second one
    assert f"stallscope status {ENDPOINT} {request.id}" in str(failed.value)


def test_a_call_without_answer_counts_as_a_failure_of_the_network(  # A58
    short_calls: None, endpoint: Endpoint, side: InvokeSide
) -> None:
    request = endpoint.submit(INPUT)
    side.arm("status", *in_a_row(Fault(delay_seconds=5, serve=True), 4))
    side.become("COMPLETED")
    assert request.wait(300).is_completed
    side.arm("status", *in_a_row(Fault(delay_seconds=5, serve=True), 5))
    with pytest.raises(CallTimedOut, match=r"no answer in 0\.2 s"):
        request.wait(300)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, ApiFailed), (409, ApiFailed), (401, NotAllowed), (403, NotAllowed), (302, ApiFailed)]
)
def test_any_other_refusal_is_told_at_once_with_names_and_200_code_points(  # A59
    status: int, kind: type[CallerError], endpoint: Endpoint, side: InvokeSide
) -> None:
    request = endpoint.submit(INPUT)
    side.arm("status", Fault(status=status, body="ä€😀" * 100))
    with pytest.raises(kind) as failed:
        request.wait(60)
    message = str(failed.value)
    assert ENDPOINT in message
    assert request.id in message
    assert message.split(f"HTTP {status}: ")[1] == ("ä€😀" * 100)[:200] + "…"
    assert side.count("status") == 1


@pytest.mark.parametrize("body", ["<html>login</html>", "", "[1]", "null", '{"a":', "[" * 100_000])
def test_an_answer_that_is_no_json_object_is_an_error_with_names(
    body: str, endpoint: Endpoint, side: InvokeSide
) -> None:
    # A59
    request = endpoint.submit(INPUT)
    side.answer("status", body)
    with pytest.raises(ApiFailed, match="not a JSON object") as failed:
        request.wait(60)
    assert request.id in str(failed.value)
    assert ENDPOINT in str(failed.value)
    assert len(str(failed.value)) < 500


def test_a_request_queued_for_fifteen_minutes_since_its_submission_is_cancelled(  # A60
    endpoint: Endpoint, side: InvokeSide, clock: JumpingTime
) -> None:
    with pytest.raises(WaitSpent, match=r"still in the queue .* after 15 min.*and was cancelled") as spent:
        endpoint.submit(INPUT).wait(3600)
    assert 900 <= clock.passed < 907
    assert side.count("cancel") == 1
    assert side.job.status == "CANCELLED"
    assert spent.value.retryable  # it is gone, so another may be sent
    assert b"CANCELLED" in (spent.value.body or b"")


def test_the_time_in_the_queue_counts_from_the_submission_and_not_from_the_first_look(  # A60
    endpoint: Endpoint, clock: JumpingTime
) -> None:
    request = endpoint.submit(INPUT)
    clock.sleep(899)
    with pytest.raises(WaitSpent, match="cancelled"):
        request.wait(3600)
    assert clock.passed < 910


@pytest.mark.parametrize(
    ("route_answer", "why"),
    [(Fault(status=400, body="no"), "HTTP 400"), (Fault(status=404), "HTTP 404"), (HANGUP, "connection")],
)
def test_a_cancellation_that_failed_is_said(  # A60
    route_answer: Fault, why: str, endpoint: Endpoint, side: InvokeSide
) -> None:
    side.arm("cancel", *in_a_row(route_answer, 20))
    with pytest.raises(WaitSpent, match="NOT cancelled and may still run") as spent:
        endpoint.submit(INPUT).wait(3600)
    assert why in str(spent.value) or "no answer" in str(spent.value)
    assert not spent.value.retryable


def test_a_cancellation_answered_with_another_status_is_no_cancellation(endpoint: Endpoint, side: InvokeSide) -> None:
    # A60
    side.answer("cancel", {"id": "x", "status": "COMPLETED"})
    with pytest.raises(WaitSpent, match="NOT cancelled: the platform answers COMPLETED"):
        endpoint.submit(INPUT).wait(3600)


@pytest.mark.parametrize(("limit", "least", "cancelled"), [("20s", 20, 1), ("0", 1800, 0)])
def test_the_time_in_the_queue_can_be_set_for_scarce_machines(  # A60
    limit: str, least: float, cancelled: int, side: InvokeSide, clock: JumpingTime
) -> None:
    done = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--wait", "30m", "--queue-limit", limit, clock=clock)
    assert (done.code, side.count("cancel")) == (1, cancelled)
    assert least <= clock.passed < least + 8


def test_a_request_queued_again_after_it_ran_waits_anew(  # A61
    endpoint: Endpoint, side: InvokeSide, clock: JumpingTime
) -> None:
    clock.at(600, lambda: side.become("IN_PROGRESS"))
    clock.at(700, lambda: side.become("IN_QUEUE"))
    with pytest.raises(WaitSpent, match="cancelled"):
        endpoint.submit(INPUT).wait(7200)
    assert 700 + 900 <= clock.passed < 700 + 915


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "TIMED_OUT"])
def test_every_bad_end_is_raised(status: str, endpoint: Endpoint, side: InvokeSide) -> None:  # A62
    request = endpoint.submit(INPUT)
    side.become(status)
    with pytest.raises(JobFailed) as failed:
        request.wait(60)
    assert (failed.value.status, failed.value.job_id, failed.value.retryable) == (status, request.id, False)


def test_the_six_statuses_are_in_one_place() -> None:  # A62
    assert {str(status.value) for status in JobStatus} == {
        "IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT",
    }  # fmt: skip
    assert set(JobStatus) - TERMINAL == {JobStatus.IN_QUEUE, JobStatus.IN_PROGRESS}


def test_the_wait_is_a_total_over_calls_and_pauses(side: InvokeSide) -> None:  # A63
    clock = JumpingTime()
    side.arm("status", *in_a_row(Fault(delay_seconds=0.3, serve=True), 50))
    with Endpoint(ENDPOINT, timing=clock.timing) as endpoint, pytest.raises(WaitSpent, match="within 30 s"):
        endpoint.submit(INPUT).wait(30, queue_seconds=None)
    assert sum(clock.pauses) < 30 - 0.3 * 4  # what the calls took was taken off
    assert clock.passed >= 30
    assert "Longest total wait" in (DOCS / "cli.md").read_text(encoding="utf-8")


def test_a_run_without_limit_is_warned_of_once_and_its_404_explained(  # A64
    endpoint: Endpoint, side: InvokeSide, clock: JumpingTime, heard: Heard
) -> None:
    request = endpoint.submit(INPUT, policy={"executionTimeout": 0})
    assert "nothing ends it before its TTL" in heard.notes[0]
    clock.at(10, lambda: side.become("IN_PROGRESS"))
    side.become("IN_QUEUE")
    clock.at(1500, lambda: side.do(lambda platform: platform.jobs.clear()))
    with pytest.raises(NotFound, match=r"TTL .* removes a request even while it runs"):
        request.wait(7200)
    assert sum("has run for" in note for note in heard.notes) == 1


def test_no_real_pause_is_made_on_an_injected_clock(  # A69
    endpoint: Endpoint, side: InvokeSide, clock: JumpingTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_sleep(seconds: float) -> None:
        pytest.fail(f"slept {seconds} s")

    monkeypatch.setattr(time, "sleep", no_sleep)
    clock.at(120, lambda: side.become("COMPLETED"))
    assert endpoint.submit(INPUT).wait(300).is_completed
    assert sum(clock.pauses) > 115


# ------------------------------------------------------------------------------------------------- bounds of a call


@pytest.mark.parametrize(("left", "given"), [(300, 30), (30, 30), (7, 7), (1, 1), (0.2, 1), (0, 1), (None, 30)])
def test_a_call_gets_thirty_seconds_less_when_less_is_left_and_one_at_least(  # A72
    left: float | None, given: float
) -> None:
    still = JumpingTime()
    frozen = Timing(lambda: 100.0, still.sleep)
    assert times.Budget(frozen, left).call_seconds() == given


def test_a_short_wait_is_overrun_by_a_second_at_most_by_a_call_that_hangs(  # A72
    side: InvokeSide,
) -> None:
    side.arm("status", *in_a_row(Fault(delay_seconds=60, serve=True), 9))
    began = time.monotonic()
    done = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--wait", "3s", "--json")
    took = time.monotonic() - began
    assert (done.code, done.error["code"]) == (1, "timeout")
    assert took < 25, "not the 30 s that a call may take where more is left"


def test_an_answer_that_drips_does_not_outlast_its_call(short_calls: None, endpoint: Endpoint) -> None:  # A72
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
            while not over.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    threading.Thread(target=drip, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    began = time.monotonic()
    with Endpoint("e", invoke_url=url, api_key="k") as dripping, pytest.raises(CallTimedOut):
        dripping.request("j").status()
    over.set()
    listener.close()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("route", ["run", "status"])
def test_the_wait_bounds_the_submission_and_the_first_look_too(route: str, side: InvokeSide) -> None:  # A73
    side.arm(route, Fault(delay_seconds=60, serve=True))
    began = time.monotonic()
    done = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--wait", "2s", "--json")
    assert (done.code, done.error["code"], done.error["retryable"]) == (1, "timeout", False)
    assert time.monotonic() - began < 2 + 1 + 4


def test_a_submission_that_took_the_whole_wait_is_not_followed_by_a_look(  # A73
    side: InvokeSide, clock: JumpingTime
) -> None:
    side.arm("run", *in_a_row(Fault(status=503), 2))
    clock.at(2.9, lambda: None)
    done = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--wait", "1500ms", "--json", clock=clock)
    assert done.error["code"] == "timeout"
    assert side.count("status") == 0


# ------------------------------------------------------------------------------------------------- failures that pass


@pytest.mark.parametrize("status", [429, 502])
def test_a_busy_platform_is_asked_ever_more_seldom_by_every_loop_alike(  # A80
    status: int, side: InvokeSide, clock: JumpingTime
) -> None:
    for route, command in (
        ("run", ["run", ENDPOINT, "--input", '{"a":1}']),
        ("status", ["status", ENDPOINT, "j", "--wait", "1h"]),
    ):
        side.do(lambda platform: platform.reset())
        before = len(clock.pauses)
        side.arm(route, Fault(status=status, times=9))
        done = stallscope(*command, "--json", clock=clock)
        assert clock.pauses[before:] == pytest.approx([1, 2, 4, 5])
        assert (done.code, done.error["code"], done.error["retryable"]) == (1, "api_error", True)
        assert side.count(route) == 5


def test_pauses_of_failures_and_of_looks_are_one_sequence(
    endpoint: Endpoint, side: InvokeSide, clock: JumpingTime
) -> None:
    # A80
    request = endpoint.submit(INPUT)
    side.arm("status", Fault(serve=True), Fault(status=429), Fault(serve=True), Fault(status=429))
    clock.at(16, lambda: side.become("COMPLETED"))
    request.wait(60)
    assert clock.pauses == pytest.approx([1, 2, 4, 5, 5])


def test_an_unknown_request_is_not_asked_for_again(side: InvokeSide, clock: JumpingTime) -> None:  # A80
    done = stallscope("status", ENDPOINT, "nobody", "--wait", "5m", "--json", clock=clock)
    assert (done.code, done.error["code"], done.error["retryable"]) == (1, "not_found", False)
    assert (side.count("status"), clock.pauses) == (1, [])


@pytest.mark.parametrize("extra", [[], ["--no-wait"]])
def test_one_bad_gateway_on_the_first_call_is_asked_again(
    extra: list[str], side: InvokeSide, clock: JumpingTime
) -> None:
    # A80
    side.arm("run", Fault(status=502))
    clock.at(5, lambda: side.become("COMPLETED"))
    assert stallscope("run", ENDPOINT, "--input", '{"a":1}', *extra, clock=clock).code == 0
    assert side.count("run") == 2


def test_what_may_have_been_queued_is_not_sent_again(  # A79, A80
    short_calls: None, side: InvokeSide, clock: JumpingTime
) -> None:
    for fault, code, exit_code in (
        (HANGUP, "network_error", 3),
        (Fault(delay_seconds=5, serve=True), "call_timeout", 3),
        (Fault(status=504), "api_error", 1),
    ):
        side.do(lambda platform: platform.reset())
        side.arm("run", *in_a_row(fault, 3))
        done = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--json", clock=clock)
        assert (done.code, done.error["code"], done.error["retryable"]) == (exit_code, code, False)
        assert "not known" in done.error["error"]
        assert side.count("run") == 1


def test_a_spent_wait_is_told_as_such_and_the_last_failure_is_a_note(  # A86
    side: InvokeSide, clock: JumpingTime
) -> None:
    side.arm("status", *in_a_row(Fault(status=503, body="busy"), 4))
    done = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--wait", "500ms", clock=clock)
    assert done.code == 1
    assert "0.5 s" in done.err
    assert "[timeout]" in done.err
    assert "HTTP 503: busy" in done.err
    assert " 0s" not in done.err


def test_outside_a_wait_a_missing_connection_is_told_at_once(  # A78
    side: InvokeSide, clock: JumpingTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_INVOKE_URL", "http://127.0.0.1:9/v2")
    done = stallscope("status", ENDPOINT, "j", "--json", clock=clock)
    assert (done.code, done.error["code"], done.error["retryable"]) == (3, "network_error", True)
    assert clock.pauses == []
