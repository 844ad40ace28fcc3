"""The command line as a program: exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

COMMAND = (sys.executable, "-m", "collector.cli")
WAIT_SECONDS = 60.0


def environment(**extra: str) -> dict[str, str]:
    """This environment without any setting of Stallscope, and what a test adds."""
    return {name: value for name, value in os.environ.items() if not name.startswith("STALLSCOPE_")} | extra


def stallscope(*arguments: str, stdin: str | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment(**extra), input=stdin, capture_output=True, text=True, timeout=120
    )


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line of stdout, waited for with a bound."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
    assert ready, "no line on stdout"
    return process.stdout.readline().strip()


def wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{address} did not become ready")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`stallscope serve` on an embedded store of its own; its address."""
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    url = f"chdb://{tmp_path_factory.mktemp('serve') / 'store'}"
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"],
        env=environment(STALLSCOPE_DATABASE_URL=url),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = read_line(process)
        wait_until_ready(address)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS)


def test_help_is_on_stdout_and_names_every_command() -> None:
    done = stallscope("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("serve", "migrate", "demo", "explain", "doctor"):
        assert command in done.stdout
        assert stallscope(command, "--help").returncode == 0


def test_help_loads_neither_the_web_framework_nor_the_store() -> None:
    heavy = "('fastapi', 'clickhouse_connect', 'chdb', 'aiohttp')"
    probe = f"import sys, collector.cli; print([module for module in {heavy} if module in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["explain"],
        ["explain", "a", "--log", "b"],
        ["explain", "a", "--wait", "5x"],
        ["explain", "--log", "no-such-file"],
        ["explain", "a", "--json", "--markdown"],
        ["serve", "--port", "99999"],
        ["serve", "--host", "0.0.0.0"],
        ["demo", "--json"],
    ],
)
def test_wrong_usage_exits_with_2_and_says_nothing_on_stdout(arguments: list[str]) -> None:
    done = stallscope(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "rror" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["alert"]])
def test_a_group_without_a_command_shows_its_help_and_no_error(arguments: list[str]) -> None:
    done = stallscope(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("Usage:") == 1
    assert "Commands:" in done.stderr
    assert "Error" not in done.stderr


def test_an_error_in_json_mode_is_one_line_on_stderr() -> None:
    done = stallscope("explain", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert json.loads(done.stderr) == {
        "error": "give either a JOB_ID or --log FILE",
        "code": "usage_error",
        "retryable": False,
    }


def test_a_server_that_cannot_be_reached_exits_with_3() -> None:
    done = stallscope("explain", "some-job", "--json", STALLSCOPE_URL="http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (3, "")
    said = json.loads(done.stderr)
    assert (said["code"], said["retryable"]) == ("network_error", True)


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    done = stallscope("migrate", "--plan", STALLSCOPE_DATABSE_URL="chdb:///nowhere")
    assert done.returncode == 2
    assert "STALLSCOPE_DATABSE_URL" in done.stderr


def test_a_request_never_seen_is_not_found(server: str) -> None:
    done = stallscope("explain", "no/such%job", "--json", STALLSCOPE_URL=server)
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(done.stderr)["code"] == "not_found"


def post_spans(server: str, *spans: dict[str, Any]) -> None:
    """Send spans as OTLP/JSON, as any client could."""
    resource = {
        "attributes": [
            {"key": "service.instance.id", "value": {"stringValue": "worker-1"}},
            {"key": "stallscope.exporter.boot_id", "value": {"stringValue": "b" * 32}},
            {"key": "faas.name", "value": {"stringValue": "endpoint-1"}},
        ]
    }
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}
    request = urllib.request.Request(
        f"{server}/v1/traces", json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def span(name: str, job: str, number: int, seconds: tuple[float, float], **extra: Any) -> dict[str, Any]:
    """A span that began and ended so many seconds ago."""
    began, ended = (time.time_ns() - int(ago * 1e9) for ago in seconds)
    attributes = {"faas.invocation_id": {"stringValue": job}, **extra.pop("attributes", {})}
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(began),
        "endTimeUnixNano": str(ended),
        "attributes": [{"key": key, "value": value} for key, value in attributes.items()],
        **extra,
    }


def test_a_failed_request_is_explained_and_exits_with_1(server: str) -> None:
    exception = {"exception.type": "KeyError", "exception.message": "'image_size'"}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in exception.items()]
    events = [{"name": "exception", "timeUnixNano": str(time.time_ns()), "attributes": attributes}]
    post_spans(
        server,
        span("job.claimed", "job/1", 1, (3, 3)),
        span("job.run", "job/1", 2, (3, 2), status={"code": 2}, events=events),
        span("job.deliver", "job/1", 3, (2, 2), attributes={"http.response.status_code": {"intValue": "200"}}),
    )
    done = stallscope("explain", "job/1", STALLSCOPE_URL=server)
    assert (done.returncode, done.stderr) == (1, "")
    assert "handler_failed" in done.stdout
    assert "image_size" in done.stdout
    as_json = stallscope("explain", "job/1", "--json", STALLSCOPE_URL=server)
    answer = json.loads(as_json.stdout)
    assert (as_json.returncode, answer["job_id"], answer["verdict"]["code"]) == (1, "job/1", "handler_failed")
    as_markdown = stallscope("explain", "job/1", "--markdown", STALLSCOPE_URL=server)
    assert as_markdown.returncode == 1
    assert "image_size" in as_markdown.stdout


def test_a_completed_request_exits_with_0(server: str) -> None:
    post_spans(
        server,
        span("job.claimed", "job-2", 11, (3, 3)),
        span("job.run", "job-2", 12, (3, 2), status={"code": 1}),
        span(
            "job.deliver",
            "job-2",
            13,
            (2, 2),
            status={"code": 1},
            attributes={
                "http.response.status_code": {"intValue": "200"},
                "stallscope.deliver.last": {"boolValue": True},
            },
        ),
    )
    done = stallscope("explain", "job-2", "--wait", "30s", STALLSCOPE_URL=server)
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed" in done.stdout


def test_waiting_longer_than_asked_is_a_timeout(server: str) -> None:
    post_spans(server, span("job.claimed", "job-3", 21, (1, 1)), span("job.run.started", "job-3", 22, (1, 1)))
    done = stallscope("explain", "job-3", "--wait", "500ms", "--json", STALLSCOPE_URL=server)
    assert done.returncode == 1
    assert json.loads(done.stderr) | {"error": ""} == {"error": "", "code": "timeout", "retryable": True}
    assert json.loads(done.stdout)["job_id"] == "job-3"


LOG = """loading weights
Traceback (most recent call last):
  File "/app/handler.py", line 7, in <module>
    import flash_attention
ModuleNotFoundError: No module named 'flash_attention'
"""


def test_a_log_is_explained_without_a_server(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text(LOG)
    done = stallscope("explain", "--log", str(log), STALLSCOPE_URL="http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (1, "")
    assert "import_error" in done.stdout
    assert "ModuleNotFoundError: No module named 'flash_attention'" in done.stdout
    piped = stallscope("explain", "--log", "-", "--json", stdin=LOG)
    assert json.loads(piped.stdout)["cause"] == "import_error"
    as_markdown = stallscope("explain", "--log", "-", "--markdown", stdin=LOG)
    assert "    ModuleNotFoundError: No module named 'flash_attention'" in as_markdown.stdout


def test_secrets_in_a_log_are_not_repeated() -> None:
    token = "hf_" + "Ab1" * 12
    done = stallscope("explain", "--log", "-", "--json", stdin=f"{LOG}HF_TOKEN={token} was refused\n")
    assert token not in done.stdout + done.stderr


def test_migrations_are_shown_then_applied_once(tmp_path: Path) -> None:
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    url = f"chdb://{tmp_path / 'store'}"
    planned = json.loads(stallscope("migrate", "--plan", "--json", STALLSCOPE_DATABASE_URL=url).stdout)["pending"]
    assert planned
    assert json.loads(stallscope("migrate", "--json", STALLSCOPE_DATABASE_URL=url).stdout) == {"applied": planned}
    again = stallscope("migrate", "--json", STALLSCOPE_DATABASE_URL=url)
    assert (again.returncode, json.loads(again.stdout)) == (0, {"applied": []})
    healthy = stallscope("doctor", "--json", STALLSCOPE_DATABASE_URL=url)
    found = {one["what"]: one["ok"] for one in json.loads(healthy.stdout)["findings"]}
    assert found["migrations"] is True


def test_a_taken_port_is_said_in_plain_words(server: str, tmp_path: Path) -> None:
    port = server.rpartition(":")[2]
    done = stallscope("serve", "--port", port, STALLSCOPE_DATABASE_URL=f"chdb://{tmp_path / 'store'}")
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr


def test_a_taken_grpc_port_is_said_in_plain_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        url = f"chdb://{tmp_path / 'store'}"
        done = stallscope("serve", "--port", "0", "--grpc-port", port, STALLSCOPE_DATABASE_URL=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot listen on 127.0.0.1 port {port}: " in done.stderr
    assert "take another with --grpc-port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_server_that_is_told_to_end_says_its_addresses_and_ends_well(
    tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--role", "collector"],
        env=environment(STALLSCOPE_DATABASE_URL=f"chdb://{tmp_path / 'store'}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    wait_until_ready(read_line(process))
    address = process.stdout.readline().strip()  # already there: both are told at once
    assert address.startswith("OTLP/gRPC: http://127.0.0.1:")
    exporter = OTLPSpanExporter(address.partition(": ")[2], insecure=True)
    with TracerProvider().get_tracer("mine").start_as_current_span("infer") as one:
        pass
    assert exporter.export([one]) is SpanExportResult.SUCCESS
    exporter.shutdown()
    process.send_signal(sign)
    _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, errors) == (code, "")
