"""The caller's side used from Python: spans, trace context, leaving early, and the verdict of a real server."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke_side import ENDPOINT, Heard, InvokeSide, JumpingTime, stallscope

from collector.caller import ApiFailed, Endpoint, JobFailed, WaitSpent, WrongInput, spans
from collector.cli import calling
from collector.demo.platform import Fault

sys.path.append(str(Path(__file__).parents[1] / "recorder"))  # the OTLP sink that the recorder's tests have
from otlp_sink import Sink

INPUT = {"prompt": "x"}


@pytest.fixture
def sink(side: InvokeSide, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    with Sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
        yield sink


def test_a_request_and_each_look_at_it_are_told_as_spans(sink: Sink, side: InvokeSide, clock: JumpingTime) -> None:
    clock.at(4, lambda: side.become("COMPLETED", output=1))
    with Endpoint(ENDPOINT, timing=clock.timing) as endpoint:
        request = endpoint.submit(INPUT)
        request.wait(60)
    whole, started = sink.only("caller.request"), sink.only("caller.request.started")
    polls = sink.named("caller.poll")
    assert [poll.attributes["stallscope.caller.status"] for poll in polls] == ["IN_QUEUE"] * 3 + ["COMPLETED"]
    assert {span.attributes["faas.invocation_id"] for span in sink.spans} == {request.id}
    assert {span.attributes["faas.name"] for span in polls} == {ENDPOINT}
    assert {poll.attributes["http.response.status_code"] for poll in polls} == {200}
    assert started.attributes["stallscope.span_id"] == whole.span_id
    assert (started.start, started.end, started.parent_id) == (started.start, started.start, whole.span_id)
    assert {poll.parent_id for poll in polls} == {whole.span_id}
    assert whole.attributes["stallscope.caller.status"] == "COMPLETED"
    assert whole.attributes["stallscope.caller.queue_seconds"] >= 0
    assert whole.status != 2
    assert whole.resource["service.name"] == "stallscope-caller"
    assert whole.resource["faas.name"] == ENDPOINT


def test_a_bad_end_and_a_wait_given_up_are_told_as_errors(sink: Sink, side: InvokeSide, clock: JumpingTime) -> None:
    for status, kind in (("FAILED", "FAILED"), ("IN_PROGRESS", "timeout")):
        with Endpoint(ENDPOINT, timing=clock.timing) as endpoint:
            request = endpoint.submit(INPUT)
            side.become(status)
            with pytest.raises((JobFailed, WaitSpent)):
                request.wait(10)
        (whole,) = (
            span for span in sink.named("caller.request") if span.attributes["faas.invocation_id"] == request.id
        )
        assert (whole.status, whole.attributes["error.type"]) == (2, kind)
        assert whole.attributes["stallscope.caller.status"] == status


def test_a_result_that_is_gone_is_told_by_the_look_of_status(sink: Sink) -> None:
    assert stallscope("status", ENDPOINT, "gone", "--json").error["code"] == "not_found"
    poll = sink.only("caller.poll")
    assert poll.attributes["http.response.status_code"] == 404
    assert poll.attributes["faas.invocation_id"] == "gone"


def test_the_environments_own_name_wins(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-batch")
    stallscope("run", ENDPOINT, "--input", '{"a":1}', "--no-wait")
    assert sink.only("caller.request.started").resource["service.name"] == "my-batch"


@pytest.mark.parametrize("silent", [True, False])
def test_a_collector_that_is_not_there_costs_two_seconds_and_no_word(
    silent: bool, side: InvokeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1] if silent else 9}"
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": address}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "collector.cli", "run", ENDPOINT, "--input", '{"a":1}', "--no-wait"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began < 2 + 15  # starting Python and OpenTelemetry is the machine's own


def test_without_an_otlp_endpoint_opentelemetry_is_not_loaded(side: InvokeSide) -> None:
    probe = (
        "import sys; from collector.caller import Endpoint\n"
        f"with Endpoint({ENDPOINT!r}) as e: e.submit({INPUT!r}).status()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_the_trace_context_goes_into_the_input_only_where_asked(
    sink: Sink, side: InvokeSide, clock: JumpingTime
) -> None:
    with Endpoint(ENDPOINT, timing=clock.timing) as endpoint:
        endpoint.submit(INPUT)
        assert side.job.input == INPUT
        endpoint.submit(INPUT, trace_context_key="traceparent")
        asked = side.job.input
        endpoint.submit({}, trace_context_key="traceparent")
        assert set(side.job.input) == {"traceparent"}
        with pytest.raises(WrongInput, match="already"):
            endpoint.submit({"traceparent": 1}, trace_context_key="traceparent")
    assert asked["prompt"] == "x"
    found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01", asked["traceparent"])
    assert found is not None
    assert found[1] in {span.trace_id for span in sink.named("caller.request.started")}


def test_leaving_early_cancels_only_where_that_was_asked_for(side: InvokeSide, clock: JumpingTime) -> None:
    with Endpoint(ENDPOINT, timing=clock.timing) as endpoint:
        with pytest.raises(KeyboardInterrupt), endpoint.submit(INPUT):
            raise KeyboardInterrupt
        assert side.job.status == "IN_QUEUE"
        with pytest.raises(KeyboardInterrupt), endpoint.submit(INPUT, cancel_on_exit=True):
            raise KeyboardInterrupt
        assert side.job.status == "CANCELLED"
        with endpoint.submit(INPUT, cancel_on_exit=True) as request:
            side.become("COMPLETED")
            request.wait(10)
    assert side.count("cancel") == 1


def test_a_cancellation_on_the_way_out_that_fails_is_a_note_and_hides_no_error(
    side: InvokeSide, endpoint: Endpoint, heard: Heard
) -> None:
    side.arm("cancel", Fault(status=400, body="no"))
    with pytest.raises(ZeroDivisionError), endpoint.submit(INPUT, cancel_on_exit=True):
        raise ZeroDivisionError
    assert "was not cancelled" in heard.notes[-1]


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": object()}, {"a": {1, 2}}])
def test_an_input_that_is_no_json_is_refused_before_it_is_sent(
    value: dict[str, object], endpoint: Endpoint, side: InvokeSide
) -> None:
    with pytest.raises(WrongInput):
        endpoint.submit(value)
    assert side.count("run") == 0


def test_a_policy_goes_beside_the_input(endpoint: Endpoint, side: InvokeSide) -> None:
    endpoint.submit(INPUT, policy={"ttl": 60_000, "executionTimeout": 5000})
    assert (side.job.ttl_ms, side.job.execution_timeout_ms, side.job.input) == (60_000, 5000, INPUT)


@pytest.mark.parametrize("key", ["ключ", "a\nb", "a\x00b"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(WrongInput, match="RUNPOD_API_KEY") as refused:
        Endpoint(ENDPOINT, api_key=key)
    assert key not in str(refused.value)


def test_an_answer_without_end_is_cut(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, side: InvokeSide) -> None:
    from collector.caller import wire

    monkeypatch.setattr(wire, "ANSWER_BYTES", 1000)
    request = endpoint.submit(INPUT)
    side.answer("status", '{"status":"COMPLETED","output":"' + "x" * 2000 + '"}')
    with pytest.raises(ApiFailed, match="an answer of more than"):
        request.status()


def test_answers_are_asked_for_unpacked_so_that_what_is_printed_is_what_was_sent() -> None:
    with Endpoint(ENDPOINT, invoke_url="http://127.0.0.1:9", api_key="k") as endpoint:
        assert endpoint._wire._http.headers["Accept-Encoding"] == "identity"


def test_a_redirection_does_not_carry_the_key_away(endpoint: Endpoint, side: InvokeSide) -> None:
    side.arm("run", Fault(status=307))
    with pytest.raises(ApiFailed, match="HTTP 307"):
        endpoint.submit(INPUT)


# ------------------------------------------------------------------------------------------------ with a real server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`stallscope serve` on an embedded store of its own; its address."""
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    store = f"chdb://{tmp_path_factory.mktemp('caller') / 'store'}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STALLSCOPE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "collector.cli", "serve", "--port", "0"],
        env={**kept, "STALLSCOPE_DATABASE_URL": store},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{address}/readyz", timeout=10).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the two seconds, which a busy machine may need for itself."""
    monkeypatch.setattr(calling, "VERDICT_SECONDS", 30.0)
    monkeypatch.setattr(spans, "FLUSH_SECONDS", 30.0)


def tell_of_a_failed_run(server: str, job_id: str) -> None:
    """What a worker would tell of a request whose handler raised."""
    now = time.time_ns()
    event = {
        "name": "exception",
        "timeUnixNano": str(now),
        "attributes": [
            {"key": "exception.type", "value": {"stringValue": "KeyError"}},
            {"key": "exception.message", "value": {"stringValue": "'image_size'"}},
        ],
    }
    spans = [
        {
            "traceId": "1" * 32,
            "spanId": f"{number:016x}",
            "name": name,
            "startTimeUnixNano": str(now - 2_000_000),
            "endTimeUnixNano": str(now - 1_000_000),
            "attributes": [
                {"key": "faas.invocation_id", "value": {"stringValue": job_id}},
                {"key": "http.response.status_code", "value": {"intValue": "200"}},
            ],
            **more,
        }
        for number, (name, more) in enumerate(
            [("job.claimed", {}), ("job.run", {"status": {"code": 2}, "events": [event]}), ("job.deliver", {})], start=1
        )
    ]
    named = {"service.instance.id": "worker-1", "stallscope.exporter.boot_id": "b" * 32, "faas.name": ENDPOINT}
    resource = {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]}
    body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()
    request = urllib.request.Request(f"{server}/v1/traces", body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_a_bad_end_comes_with_its_verdict_under_the_error(
    server: str, patient: None, side: InvokeSide, monkeypatch: pytest.MonkeyPatch, clock: JumpingTime
) -> None:
    monkeypatch.setenv("STALLSCOPE_URL", server)
    side.answer("run", {"id": "job-1", "status": "IN_QUEUE"}, times=2)
    side.answer("status", {"id": "job-1", "status": "FAILED", "error": "x"}, times=2)
    tell_of_a_failed_run(server, "job-1")
    command = ("run", ENDPOINT, "--input", '{"a":1}')
    told = stallscope(*command, clock=clock)
    lines = told.err.splitlines()
    assert (told.code, lines[0].endswith("ended FAILED: x [job_failed]")) == (1, True)
    assert "handler_failed" in told.err
    assert "image_size" in told.err
    as_json = stallscope(*command, "--json", clock=clock)
    assert (as_json.code, len(as_json.err.splitlines())) == (1, 1)
    assert set(as_json.error) == {"error", "code", "retryable", "verdict"}
    assert as_json.error["verdict"]["code"] == "handler_failed"


def test_the_callers_own_spans_are_with_the_server_before_it_is_asked_for_the_verdict(
    server: str, patient: None, side: InvokeSide, monkeypatch: pytest.MonkeyPatch, clock: JumpingTime
) -> None:
    monkeypatch.setenv("STALLSCOPE_URL", server)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server)
    clock.at(2, lambda: side.become("TIMED_OUT", error="job timed out"))
    told = stallscope("run", ENDPOINT, "--input", '{"a":1}', "--json", clock=clock)
    assert (told.code, told.error["code"]) == (1, "job_failed")
    assert "the caller saw TIMED_OUT" in told.error["verdict"]["sentence"]  # and no worker told anything
