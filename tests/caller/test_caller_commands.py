"""`run`, `status`, `health` and `cancel`: payloads, streams, codes, and what is refused before anything is sent."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoke_side import ENDPOINT, Heard, InvokeSide, JumpingTime, stallscope

from collector.caller import Endpoint
from collector.caller import timing as times
from collector.caller.inputs import BODY_BYTES, input_bytes, run_body
from collector.demo.platform import Fault

RUN = ("run", ENDPOINT, "--input", '{"a":1}')
WAIT_SECONDS = 60.0


def completed(side: InvokeSide, body: str, route: str = "status") -> None:
    side.answer(route, body)


# ------------------------------------------------------------------------------------------------------- submission


def test_a_request_is_submitted_by_run_and_its_id_is_known_at_once(side: InvokeSide) -> None:  # A70
    done = stallscope(*RUN, "--no-wait")
    assert done.code == 0
    assert json.loads(done.out) == {"id": side.job.id, "status": "IN_QUEUE"}
    assert side.count("runsync") == 0
    assert not side.job.id.startswith("sync-")


def test_the_wait_is_five_minutes_unless_told_otherwise(side: InvokeSide, clock: JumpingTime) -> None:  # A71
    done = stallscope(*RUN, "--json", clock=clock)
    assert (done.code, done.error["code"]) == (1, "timeout")
    assert "within 5 min" in done.error["error"]
    assert 300 <= clock.passed < 302


@pytest.mark.parametrize("extra", [["--no-wait"], ["--wait", "0"], ["--no-wait", "--wait", "0"], ["--wait", "0s"]])
def test_no_wait_is_a_wait_of_zero(extra: list[str], side: InvokeSide) -> None:  # A71
    assert stallscope(*RUN, *extra).code == 0
    assert (side.count("run"), side.count("status")) == (1, 0)


def test_no_wait_and_a_wait_exclude_each_other(side: InvokeSide) -> None:  # A71
    done = stallscope(*RUN, "--no-wait", "--wait", "5m", "--json")
    assert (done.code, done.out, done.error["code"]) == (2, b"", "usage_error")
    assert side.count("run") == 0


def test_the_id_is_learnt_once_whatever_later_answers_leave_out(side: InvokeSide) -> None:  # A74
    for body in ({"status": "IN_PROGRESS"}, {"id": "", "status": "IN_PROGRESS"}, {"id": None, "status": "IN_QUEUE"}):
        side.answer("status", body)
    side.answer("status", {"status": "COMPLETED", "output": 1})
    done = stallscope(*RUN)
    assert (done.code, json.loads(done.out)) == (0, {"status": "COMPLETED", "output": 1})
    assert {event.job for event in side.events("status")} == {side.job.id}


@pytest.mark.parametrize("body", ["{}", '{"output":1}', '{"id":null,"status":null}'])
def test_an_answer_with_neither_id_nor_status_is_an_error(body: str, side: InvokeSide) -> None:  # A75
    for route, command in (("status", ("status", ENDPOINT, "j")), ("run", RUN)):
        side.answer(route, body)
        done = stallscope(*command, "--json")
        assert (done.code, done.error["code"], done.out) == (1, "api_error", body.encode())


@pytest.mark.parametrize("extra", [[], ["--no-wait"]])
def test_a_submission_without_id_is_an_error_that_shows_the_payload(extra: list[str], side: InvokeSide) -> None:  # A75
    side.answer("run", '{"status" : "IN_QUEUE"}')
    done = stallscope(*RUN, *extra, "--json")
    assert (done.code, done.error["code"], done.out) == (1, "api_error", b'{"status" : "IN_QUEUE"}')


# ---------------------------------------------------------------------------------------------------------- payload

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    output=json_values,
    more=st.dictionaries(st.text().filter(lambda key: key not in ("id", "status")), json_values, max_size=3),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 0, 3]),
    ending=st.sampled_from(["", "\n", " \r\n\t"]),
)
def test_the_payload_on_stdout_is_what_the_platform_wrote_to_the_byte(  # A76
    side: InvokeSide, output: Any, more: dict[str, Any], ascii_only: bool, indent: int | None, ending: str
) -> None:
    said = {"status": "COMPLETED", **more, "output": output, "id": "j"}
    try:
        body = json.dumps(said, ensure_ascii=ascii_only, indent=indent) + ending
        body.encode()
    except UnicodeEncodeError:  # lone surrogates exist as escapes only
        body = json.dumps(said, indent=indent) + ending
    side.answer("status", body)
    done = stallscope("status", ENDPOINT, "j")
    assert (done.code, done.out) == (0, body.encode())


def test_numbers_and_keys_of_any_kind_pass_in_both_directions(side: InvokeSide) -> None:  # A76
    written = '{"seed":9007199254740993,"big":' + "7" * 4000 + ',"gpuTypeId":1.10,"f":1E400,"a":1,"a":2,"z":0,"b":-0}'
    side.answer("status", '{"status":"COMPLETED","output":' + written + "}")
    done = stallscope("run", ENDPOINT, "--input", written)
    assert (done.code, done.out) == (0, b'{"status":"COMPLETED","output":' + written.encode() + b"}")
    sent = side.do(lambda platform: platform.find_events("run")[-1].detail)
    assert sent["bytes"] == len(b'{"input":}') + len(written)
    assert sent["body"].startswith('{"input":' + written[:3000])


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=4), st.sampled_from([None, 2]), st.booleans())
def test_an_input_is_sent_as_written_but_for_blanks(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    # A76, A82
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        written.decode()
    except UnicodeDecodeError:
        written = json.dumps(value, indent=indent).encode()
        ascii_only = True
    compact = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode()
    assert input_bytes(written) == compact


# ------------------------------------------------------------------------------------------------- bad ends and codes


def test_a_failed_request_exits_with_1_its_payload_on_stdout_and_a_coded_error_on_stderr(  # A77
    side: InvokeSide, clock: JumpingTime
) -> None:
    side.arm("status", Fault(status=503, body="busy"))
    body = '{"id":"j","status":"FAILED","error":"CUDA out of memory","output":{"part":1}}'
    side.answer("status", body)
    done = stallscope(*RUN, clock=clock)
    assert (done.code, done.out) == (1, body.encode())
    assert "HTTP 503: busy" in done.err
    assert "ended FAILED: CUDA out of memory [job_failed]" in done.err


def test_a_spent_wait_shows_the_last_payload_and_the_command_to_go_on_with(
    side: InvokeSide, clock: JumpingTime
) -> None:
    # A77
    done = stallscope(*RUN, "--wait", "20s", "--json", clock=clock)
    assert (done.code, json.loads(done.out)["status"]) == (1, "IN_QUEUE")
    command = done.error["error"].split("Look again with: stallscope ")[1].split()
    side.become("COMPLETED", output=1)
    again = stallscope(*command, clock=clock)
    assert (again.code, json.loads(again.out)["output"]) == (0, 1)


def test_a_spent_wait_is_not_to_be_repeated_and_a_single_call_is(  # A78
    side: InvokeSide, clock: JumpingTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = stallscope(*RUN, "--wait", "1s", "--json", clock=clock).error
    assert (spent["code"], spent["retryable"]) == ("timeout", False)
    monkeypatch.setattr(times, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(times, "CALL_FLOOR_SECONDS", 0.2)
    side.arm("status", Fault(delay_seconds=5, serve=True))
    one_call = stallscope("status", ENDPOINT, "j", "--json", clock=clock)
    assert (one_call.code, one_call.error["code"], one_call.error["retryable"]) == (3, "call_timeout", True)


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [(500, "api_error", True), (429, "api_error", True), (404, "not_found", False), (401, "auth_error", False),
     (403, "auth_error", False), (400, "api_error", False)],
)  # fmt: skip
@pytest.mark.parametrize("command", [RUN, ("status", ENDPOINT, "j"), ("health", ENDPOINT), ("cancel", ENDPOINT, "j")])
def test_codes_are_the_same_for_every_command(  # A78
    command: tuple[str, ...], status: int, code: str, retryable: bool, side: InvokeSide, clock: JumpingTime
) -> None:
    side.arm(command[0], Fault(status=status, times=9))
    done = stallscope(*command, "--json", clock=clock)
    assert (done.code, done.out) == (1, b"")
    assert set(done.error) == {"error", "code", "retryable"}
    assert (done.error["code"], done.error["retryable"]) == (code, retryable)


def test_a_missing_key_is_named_where_it_is_refused(side: InvokeSide, monkeypatch: pytest.MonkeyPatch) -> None:  # A78
    monkeypatch.delenv("RUNPOD_API_KEY")
    side.arm("run", Fault(status=401, body="who are you"))
    done = stallscope(*RUN, "--json")
    assert done.error["code"] == "auth_error"
    assert "RUNPOD_API_KEY is not set" in done.error["error"]


def test_the_key_is_never_shown_even_where_it_is_sent_back(side: InvokeSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "key-" + "z" * 20)
    side.arm("run", Fault(status=400, body="bad header: Bearer key-" + "z" * 20))
    done = stallscope(*RUN)
    assert "z" * 20 not in done.err + done.out.decode()


def test_a_submission_without_answer_has_no_id_and_no_hint_that_needs_one(  # A79
    side: InvokeSide,
) -> None:
    side.arm("run", Fault(delay_seconds=30, serve=True))
    done = stallscope(*RUN, "--wait", "1s", "--json")
    assert (done.code, done.error["code"], done.out) == (1, "timeout", b"")
    assert "is not known, nor its id" in done.error["error"]
    assert "stallscope status" not in done.error["error"]


# ------------------------------------------------------------------------------------------------------------- input


def test_the_input_comes_from_a_literal_a_file_or_stdin(side: InvokeSide, tmp_path: Path) -> None:  # A81
    file = tmp_path / "input.json"
    file.write_bytes(b'\xef\xbb\xbf{\r\n "prompt": "\xc3\xa4 \\" x"\r\n}\r\n')
    expected = {"prompt": 'ä " x'}
    for arguments, stdin in (
        (["--input", file.read_bytes().decode("utf-8-sig")], None),
        (["--input-file", str(file)], None),
        (["--input-file", "-"], file.read_bytes()),
    ):
        assert stallscope("run", ENDPOINT, *arguments, "--no-wait", stdin=stdin).code == 0
        assert side.job.input == expected


@pytest.mark.parametrize(
    ("literal", "said"),
    [
        ("[1]", "must be a JSON object, and is an array"),
        ('"x"', "and is a string"),
        ("null", "and is null"),
        ("7", "and is a number"),
        ("true", "and is a boolean"),
        ("", "line 1 column 1"),
        ('{"a": 1,\n "b": oops}', "line 2 column 7"),
        ('{"a": 1,\n\n "b": NaN}', "NaN, line 3"),
        ('{"a": 1} {"b": 2}', "line 1 column 10"),
        ("{'a': 1}", "line 1 column 2"),
    ],
)
def test_an_input_that_is_no_json_object_is_refused_by_line_and_not_sent(  # A81
    literal: str, said: str, side: InvokeSide
) -> None:
    done = stallscope("run", ENDPOINT, "--input", literal, "--json")
    assert (done.code, done.error["code"], done.out) == (2, "usage_error", b"")
    assert said in done.error["error"]
    assert side.count("run") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--input", "{}", "--input-file", "-"],
        ["--input-file", "no-such-file.json"],
        ["--input-file", "."],
        ["--input", "{}", "--wait", "5 parsecs"],
        ["--input", "{}", "--queue-limit", "-1"],
    ],
)
def test_an_input_that_cannot_be_read_is_wrong_usage(arguments: list[str], side: InvokeSide) -> None:  # A81
    done = stallscope("run", ENDPOINT, *arguments, "--json")
    assert (done.code, done.error["code"], side.count("run")) == (2, "usage_error", 0)


def test_an_input_that_is_not_utf_8_or_too_deep_is_refused(side: InvokeSide) -> None:  # A81
    for stdin, said in ((b'{"a":\n"\xff"}', "not UTF-8, line 2"), (b'{"a":' + b"[" * 200_000, "nested too deeply")):
        done = stallscope("run", ENDPOINT, "--input-file", "-", "--json", stdin=stdin)
        assert (done.code, done.error["code"]) == (2, "usage_error")
        assert said in done.error["error"]
    assert side.count("run") == 0


def test_ten_mebibytes_are_counted_on_the_bytes_that_are_sent(side: InvokeSide) -> None:  # A82
    room = BODY_BYTES - len(run_body(b'{"a":""}'))
    fits = b'{"a":"' + b"x" * room + b'"}'
    assert stallscope("run", ENDPOINT, "--input-file", "-", "--no-wait", stdin=fits).code == 0
    assert side.events("run")[-1].detail["bytes"] == BODY_BYTES
    # Blanks do not count, as they are not sent; characters count as the bytes that they are sent as.
    assert stallscope("run", ENDPOINT, "--input-file", "-", "--no-wait", stdin=b" " * (5 << 20) + fits).code == 0
    umlauts = '{"a":"' + "ä" * (room // 2 + 1) + '"}'
    for too_large in (fits.replace(b'"a"', b'"aa"'), umlauts.encode(), b'{"a":' + b"9" * BODY_BYTES + b"}"):
        done = stallscope("run", ENDPOINT, "--input-file", "-", "--json", stdin=too_large)
        assert (done.code, done.error["code"]) == (2, "usage_error")
        assert f"{BODY_BYTES:,} are the most" in done.error["error"]
    assert side.count("run") == 2


def test_wrong_json_without_end_is_refused_in_linear_time() -> None:  # A82
    began = time.monotonic()
    for hostile in (b'{"a":"' + b'\\"' * (2 << 20), b'"' * (4 << 20), b'{"a":"' + b"\\" * (4 << 20)):
        with pytest.raises(Exception, match="not JSON"):
            input_bytes(hostile)
    assert time.monotonic() - began < 30


def test_the_body_of_a_curl_command_as_input_is_warned_of_and_sent_as_given(side: InvokeSide) -> None:  # A83
    given_input = {"input": {"prompt": "x"}, "webhook": "https://example.com", "policy": {"ttl": 1}, "s3Config": {}}
    done = stallscope("run", ENDPOINT, "--input", json.dumps(given_input), "--no-wait")
    assert "policy, webhook, s3Config beside it will be ignored" in done.err
    assert "job['input']['input']" in done.err
    assert side.job.input == given_input
    quiet = stallscope("run", ENDPOINT, "--input", '{"prompt":{"input":1}}', "--no-wait")
    assert quiet.err == ""
    as_json = stallscope("run", ENDPOINT, "--input", '{"input":{}}', "--no-wait", "--json")
    assert set(json.loads(as_json.err)) == {"note"}


def test_an_empty_input_is_warned_of_with_what_to_send_instead(side: InvokeSide, clock: JumpingTime) -> None:  # A65
    side.answer("status", {"id": "j", "status": "FAILED", "error": "job timed out after 1 retries"})
    done = stallscope("run", ENDPOINT, "--input", "{ }", clock=clock)
    note, error = (
        next(line for line in done.err.splitlines() if line.startswith(start)) for start in ("Note", "Error")
    )
    assert note.startswith("Note: the input is empty")
    assert '{"__empty":true}' in note
    assert "Its input was empty" in error


def test_the_same_text_of_a_replaced_worker_is_not_put_down_to_one_cause(side: InvokeSide, clock: JumpingTime) -> None:
    # A68
    side.answer("status", {"id": "j", "status": "FAILED", "error": "job timed out after 1 retries"})
    done = stallscope(*RUN, clock=clock)
    assert "a new release replaced it while it ran" in done.err
    assert "worker died" in done.err
    assert "Its input was empty" not in done.err


# --------------------------------------------------------------------------------------------------- ids and health


@pytest.mark.parametrize("name", ["a/b", "a b?c#d", "ä%2F", "../x", "..%2e", "a;b$(c)`d'e"])
def test_ids_are_escaped_in_addresses_and_for_the_shell(name: str, side: InvokeSide, clock: JumpingTime) -> None:  # A84
    done = stallscope("run", name, "--input", '{"a":1}', "--wait", "1s", "--json", clock=clock)
    assert {event.endpoint for event in side.events("run") + side.events("status")} == {name}
    printed = done.error["error"].split("Look again with: ")[1]
    words = subprocess.run(
        ["sh", "-c", f'set -- {printed}; printf "%s\\n" "$@"'], capture_output=True, text=True, check=True
    )
    assert words.stdout.splitlines() == ["stallscope", "status", name, side.job.id, "--wait", "5m"]
    assert stallscope("status", ENDPOINT, name, "--json").error["code"] == "not_found"
    assert side.events("status")[-1].job == name


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_an_id_that_would_change_the_address_is_refused(name: str, side: InvokeSide) -> None:  # A84
    for command in (
        ("run", name, "--input", '{"a":1}'),
        ("status", ENDPOINT, name),
        ("cancel", name, "j"),
        ("health", name),
    ):
        done = stallscope(*command, "--json")
        assert (done.code, done.error["code"]) == (2, "usage_error")


def test_an_id_of_the_platform_that_would_change_the_address_is_no_id(side: InvokeSide) -> None:  # A84
    for bad in ("..", ".", "\ud800", "\x1b[31m", "x" * 2000):
        side.answer("run", {"id": bad, "status": "IN_QUEUE"})
        assert stallscope(*RUN, "--json").error["code"] == "api_error"
    assert side.count("status") == 0


@pytest.mark.parametrize("body", ['{"jobs":{"x":12345678901234567890},"workers":{}, "new":1}', "[1, 2]", '"fine"'])
def test_health_passes_through_to_the_byte(body: str, side: InvokeSide) -> None:  # A85
    side.answer("health", body)
    done = stallscope("health", ENDPOINT)
    assert (done.code, done.out, done.err) == (0, body.encode(), "")


def test_health_that_is_no_json_is_an_error_and_help_says_it_proves_no_existence(side: InvokeSide) -> None:  # A85
    side.answer("health", "<html>")
    assert stallscope("health", ENDPOINT, "--json").error["code"] == "api_error"
    assert "does not tell whether the endpoint exists" in stallscope("health", "--help").out.decode()
    assert stallscope("health", "deleted-long-ago").code == 0


def test_health_is_read_in_a_wait_only_for_who_watches_and_within_it(side: InvokeSide) -> None:
    # A85
    clock, heard = JumpingTime(), Heard()
    heard.wants_health = True
    with Endpoint(ENDPOINT, timing=clock.timing, watcher=heard) as endpoint:
        request = endpoint.submit({"a": 1})
        with pytest.raises(Exception, match="within 2 min 30 s"):
            request.wait(150)
        assert len(heard.healths) == 2
        side.arm("health", Fault(delay_seconds=60, serve=True))
        began = time.monotonic()
        clock.sleep(60)
        with pytest.raises(Exception, match="within 2 s"):
            request.wait(2)
        assert time.monotonic() - began < 2 + 1 + 5
    assert stallscope(*RUN, "--wait", "5m", clock=clock).code == 1
    assert side.count("health") == 3  # nobody watches a pipe


def test_a_cancellation_is_told_by_its_status(side: InvokeSide) -> None:
    stallscope(*RUN, "--no-wait")
    done = stallscope("cancel", ENDPOINT, side.job.id)
    assert (done.code, json.loads(done.out)["status"], done.err) == (0, "CANCELLED", "")
    side.become("COMPLETED")
    late = stallscope("cancel", ENDPOINT, side.job.id, "--json")
    assert (late.code, late.error["code"], json.loads(late.out)["status"]) == (1, "api_error", "COMPLETED")


@pytest.mark.parametrize("address", ["ftp://x/v2", "no-address", "http://", "http://u:p@h/v2", "http://h/v2?x=1"])
def test_an_unusable_address_is_wrong_usage(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_INVOKE_URL", address)
    done = stallscope("health", ENDPOINT, "--json")
    assert (done.code, done.error["code"]) == (2, "usage_error")


@pytest.mark.parametrize(
    ("name", "value"), [("HTTP_PROXY", "socks9://nowhere"), ("HTTP_PROXY", "://"), ("SSL_CERT_FILE", "/no/such/file")]
)
def test_an_unusable_proxy_or_certificate_is_wrong_usage(
    name: str, value: str, side: InvokeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    done = stallscope("health", ENDPOINT, "--json")
    assert (done.code, done.error["code"]) == (2, "usage_error")


# --------------------------------------------------------------------------------------------- people, pipes, Ctrl-C


class Terminal:
    """The command line as a program with a terminal on stdin and stderr, and a pipe on stdout."""

    def __init__(self, *arguments: str, **extra: str) -> None:
        self._mine, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collector.cli", *arguments],
            env={**os.environ, **extra},
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, words: str) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while words not in self.text:
            assert time.monotonic() < deadline, f"{words!r} did not come: {self.text!r}"
            if select.select([self._mine], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self._mine, 65536).decode()
                except OSError:  # the other end is closed
                    assert words in self.text, self.text
        return self.text

    def type(self, text: str) -> None:
        os.write(self._mine, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, bytes]:
        out, _ = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, out

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._mine)


@pytest.fixture
def running(side: InvokeSide) -> Iterator[Terminal]:
    """A `run` that waits for a request in the queue."""
    terminal = Terminal(*RUN)
    terminal.read_until("IN_QUEUE after")
    yield terminal
    terminal.close()


def test_ctrl_c_offers_to_cancel_and_does_it(running: Terminal, side: InvokeSide) -> None:  # A67
    running.interrupt()
    running.read_until("Cancel request")
    running.type("y\n")
    code, out = running.end()
    assert (code, out) == (130, b"")
    assert side.job.status == "CANCELLED"


@pytest.mark.parametrize("second", ["n", "ctrl-c"])
def test_ctrl_c_leaves_the_request_running_where_the_offer_is_not_taken(  # A67
    second: str, running: Terminal, side: InvokeSide
) -> None:
    running.interrupt()
    running.read_until("Cancel request")
    if second == "n":
        running.type("n\n")
    else:
        running.interrupt()
    running.read_until("stallscope cancel")
    assert running.end()[0] == 130
    assert side.job.status == "IN_QUEUE"


def test_ctrl_c_without_a_terminal_says_how_to_cancel(side: InvokeSide) -> None:  # A67
    process = subprocess.Popen(
        [sys.executable, "-m", "collector.cli", *RUN],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + WAIT_SECONDS
    while side.count("status") == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (130, "")
    assert f"stallscope cancel {ENDPOINT} {side.job.id}" in err


def test_a_terminal_is_shown_the_way_of_a_request_and_its_times_apart(side: InvokeSide) -> None:  # A87
    terminal = Terminal(*RUN)
    try:
        terminal.read_until("IN_QUEUE after")
        side.answer(
            "status",
            {"id": side.job.id, "status": "COMPLETED", "delayTime": 95_400, "executionTime": 1300, "output": 1},
        )
        text = terminal.read_until("ran 1.3 s")
        assert "COMPLETED" in text
        assert "in the queue 95 s; ran 1.3 s" in text
        assert f"request {side.job.id}" in text
        assert terminal.end()[0] == 0
    finally:
        terminal.close()


def test_a_pipe_is_shown_no_progress(side: InvokeSide, clock: JumpingTime) -> None:  # A87
    clock.at(200, lambda: side.become("COMPLETED"))
    done = stallscope(*RUN, clock=clock)
    assert (done.code, done.err) == (0, "")


def test_a_reader_that_went_away_changes_nothing(side: InvokeSide) -> None:
    side.answer("health", '{"a":"' + "x" * (1 << 20) + '"}')
    command = f"{sys.executable} -m collector.cli health e; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"{{ {command}; }} | true"], capture_output=True, text=True, timeout=60)
    assert done.stderr == "code 0\n"


# ---------------------------------------------------------------------------------------------------------- verdict


def failing(side: InvokeSide) -> tuple[str, ...]:
    side.answer("status", '{"id":"job-1","status":"FAILED","error":"boom"}', times=2)
    return ("status", ENDPOINT, "job-1")


def test_a_server_that_hangs_costs_two_seconds_and_no_exit_code(
    side: InvokeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = failing(side)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("STALLSCOPE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        done = stallscope(*command)
        took = time.monotonic() - began
    assert done.code == 1
    assert done.err.splitlines()[0].endswith("[job_failed]")
    assert "No verdict" in done.err
    assert took < 20, "not the 30 s that a call may take elsewhere"


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense", "http://[::1", ""])
def test_a_server_that_is_not_there_changes_no_exit_code(
    address: str, side: InvokeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STALLSCOPE_URL", address)
    done = stallscope(*failing(side), "--json")
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert (done.error["code"], done.error["retryable"]) == ("job_failed", False)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"verdict":5,"final":true}', b'{"verdict":{},"final":true}', b'{"verdict":{"code":[]}}', b"\xff"],
)
def test_a_server_that_answers_nonsense_changes_no_exit_code(
    body: bytes, side: InvokeSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nonsense(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("STALLSCOPE_URL", f"http://127.0.0.1:{server.server_address[1]}")
        done = stallscope(*failing(side))
        as_json = stallscope(*failing(side), "--json")
        server.shutdown()
    assert (done.code, done.err.splitlines()[0].endswith("[job_failed]")) == (1, True)
    assert "No verdict" in done.err
    assert set(as_json.error) == {"error", "code", "retryable"}
