"""What the recorder notices beside the worker: children that end badly, GPUs, and what an earlier start left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import ssl
import string
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import ANY

import pytest
from launched import Launch, clean_environment, until
from launched import launch as launch
from launched import sink as sink
from otlp_sink import Answer, Sink
from parts import skip_or_fail

from sdk_exporter import bounds
from sdk_exporter.recorder import kernel, leftovers
from sdk_exporter.recorder.death import oom_kills
from sdk_exporter.recorder.delivery import Body, retry_after_seconds
from sdk_exporter.recorder.processes import command_of
from sdk_exporter.recorder.settings import RecorderSettings, endpoint_of

SECONDS = 60


def tells_status_after_reaping() -> bool:
    """Whether this kernel answers for a process that its parent has reaped (Linux 6.15)."""
    child = subprocess.Popen(["sh", "-c", "read x; exit 3"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(child.pid)
    child.communicate(b"\n")
    try:
        return kernel.exit_status(pidfd) == 3 << 8
    finally:
        os.close(pidfd)


def test_engine_that_is_killed_while_the_worker_lives_is_told(launch: Launch, sink: Sink) -> None:
    """The worker does not reap it at once, as an `asyncio` child watcher or a busy loop would not."""
    code = """
    boot_ends()
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()", "engine"], stdin=subprocess.PIPE)
    say(child.pid)
    sys.stdin.readline()
    """
    process = launch(code, stdin=subprocess.PIPE, env={"STALLSCOPE_HEARTBEAT_SECONDS": "0.3"})
    assert process.stdout is not None
    child = int(process.stdout.readline())
    before = len(sink.named("worker.heartbeat"))
    sink.wait_for(lambda s: len(s.named("worker.heartbeat")) > before + 6)  # two seconds: it has been seen
    os.kill(child, signal.SIGKILL)
    death = sink.wait_for(lambda s: s.named("backend.death"))[0]
    process.communicate(b"\n", timeout=SECONDS)
    assert death.attributes["process.pid"] == child
    assert death.attributes["stallscope.death.signal"] == "SIGKILL"
    assert death.attributes["process.command"].endswith("engine")
    assert death.attributes["stallscope.log.tail"] == f"{child}\n"
    assert "process.exit.code" not in death.attributes
    assert death.parent_id == sink.only("worker.boot").span_id
    assert process.returncode == 0


def test_child_that_a_leaving_worker_ends_is_no_loss(launch: Launch, sink: Sink) -> None:
    """As `multiprocessing` does at exit, with the worker still there for a moment."""
    code = """
    boot_ends()
    import subprocess
    child = subprocess.Popen(["sleep", "600"])
    say("ready")
    sys.stdin.readline()
    child.terminate(); child.wait()
    time.sleep(0.8)
    """
    process = launch(code, stdin=subprocess.PIPE, env={"STALLSCOPE_HEARTBEAT_SECONDS": "0.3"})
    assert process.stdout is not None
    process.stdout.readline()
    seen = len(sink.named("worker.heartbeat"))
    sink.wait_for(lambda s: len(s.named("worker.heartbeat")) > seen + 6)
    process.communicate(b"\n", timeout=SECONDS)
    assert sink.named("worker.death")
    assert not sink.named("backend.death")


def test_engine_that_fails_and_is_reaped_is_told(launch: Launch, sink: Sink) -> None:
    if not tells_status_after_reaping():
        pytest.skip("this kernel does not tell the exit status of a reaped process (Linux 6.15 and newer do)")
    code = """
    boot_ends()
    import subprocess
    subprocess.run(["sh", "-c", "sleep 3; exit 5"])
    subprocess.run(["sh", "-c", "sleep 2; exit 0"])
    subprocess.run(["sh", "-c", "exit 9"])
    sys.stdin.readline()
    """
    process = launch(code, stdin=subprocess.PIPE)
    death = sink.wait_for(lambda s: s.named("backend.death"))[0]
    process.communicate(b"\n", timeout=SECONDS)
    assert death.attributes["process.exit.code"] == 5
    assert len({span.span_id for span in sink.named("backend.death")}) == 1


def test_orphan_that_crashes_is_told(launch: Launch, sink: Sink, tmp_path: Path) -> None:
    code = """
    boot_ends()
    import subprocess
    crash = "import os, sys, time; sys.stdin.read(); os.kill(os.getpid(), 11)"
    middle = f"import subprocess, sys, os; subprocess.Popen([sys.executable, '-c', {crash!r}], stdin=0); os._exit(0)"
    subprocess.run([sys.executable, "-c", middle], check=True)
    say("orphaned")
    sys.stdin.read()
    while not os.path.exists("told"):
        time.sleep(0.02)
    """
    process = launch(code, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    process.stdin.close()
    process.stdin = None
    sink.wait_for(lambda s: s.named("backend.death"))
    (tmp_path / "told").touch()
    process.communicate(timeout=SECONDS)
    deaths = sink.named("backend.death")
    assert {span.attributes.get("stallscope.death.signal") for span in deaths} == {"SIGSEGV"}
    assert len({span.span_id for span in deaths}) == 1


def test_oom_counter_is_a_number_or_unknown() -> None:
    count = oom_kills()
    assert count is None or count >= 0


# ------------------------------------------------------------------------------------------------- what is left over


def token() -> str:
    return "hf_" + "".join(random.SystemRandom().choices(string.ascii_letters + string.digits, k=34))


def test_unsent_evidence_is_kept_on_disk_and_shipped_by_the_next_start(
    launch: Launch, sink: Sink, tmp_path: Path
) -> None:
    secret, folder = token(), tmp_path / "spool"
    sink.always = Answer(503)
    environment = {"STALLSCOPE_SPOOL_DIR": str(folder), "SECRET_FOR_THE_TEST": secret}
    code = """
    boot_ends()
    put("hand", j="job-1")
    say("token " + os.environ["SECRET_FOR_THE_TEST"])
    os._exit(8)
    """
    process = launch(code, env=environment)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 8
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert secret.encode() not in file.read_bytes()
    assert sink.spans == []
    with file.open("ab") as torn:
        torn.write(b"\x0e\x5c torn by a kill")
    os.mkfifo(folder / "0.stallscope")  # whoever opens it waits for ever

    sink.always = None
    second = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE, env=environment)
    death = sink.wait_for(lambda s: s.named("worker.death"))[0]
    assert death.attributes["stallscope.death.jobs_in_hand"] == ["job-1"]
    assert death.attributes["process.exit.code"] == 8
    until(lambda: [left.name for left in folder.iterdir()] == ["0.stallscope"])
    second.communicate(timeout=SECONDS)


def test_black_hole_costs_the_exit_little_and_loses_nothing(launch: Launch, sink: Sink, tmp_path: Path) -> None:
    """A collector that takes the connection and never answers, and a backlog of many spans."""
    folder = tmp_path / "spool"
    code = """
    boot_ends()
    for number in range(3000):
        put("point", n="work", id=f"{number + 1:016x}", tr=JOB_TRACE, a={"words": "a text of some length " * 4})
    sys.stdin.readline()
    say(time.time())
    """
    with socket.create_server(("127.0.0.1", 0)) as hole:
        url = f"http://127.0.0.1:{hole.getsockname()[1]}"
        environment = {"STALLSCOPE_SPOOL_DIR": str(folder), "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        process = launch(code, stdin=subprocess.PIPE, env=environment)
        hole.settimeout(SECONDS)
        with hole.accept()[0]:  # a try is under way, and nobody will answer it
            out, _ = process.communicate(b"\n", timeout=SECONDS)
        assert time.time() - float(out) < 20, "the flush of 30 seconds was waited for"
    second = launch("sys.stdin.readline()", stdin=subprocess.PIPE, env={"STALLSCOPE_SPOOL_DIR": str(folder)})
    sink.wait_for(lambda s: len({span.span_id for span in s.named("work")}) == 3000)
    second.communicate(b"\n", timeout=SECONDS)


def test_what_waits_for_long_goes_to_disk_while_the_worker_lives_and_from_there_when_the_collector_is_back(
    launch: Launch, sink: Sink, tmp_path: Path
) -> None:
    folder = tmp_path / "spool"
    sink.always = Answer(503)
    code = """
    boot_ends()
    for number in range(3000):
        put("point", n="work", id=f"{number + 1:016x}", tr=JOB_TRACE, a={"words": "a text of some length " * 9})
    sys.stdin.readline()
    """
    process = launch(code, stdin=subprocess.PIPE, env={"STALLSCOPE_SPOOL_DIR": str(folder)})
    until(lambda: folder.is_dir() and list(folder.glob("*.stallscope")), SECONDS)
    assert sink.spans == []
    sink.always = None
    sink.wait_for(lambda s: len({span.span_id for span in s.named("work")}) == 3000, SECONDS)
    until(lambda: not list(folder.iterdir()), SECONDS)
    process.communicate(b"\n", timeout=SECONDS)
    sink.only("worker.death")


def test_spool_on_disk_is_bounded_and_the_oldest_leaves_first(tmp_path: Path) -> None:
    for number in range(5):
        assert leftovers.save(str(tmp_path), f"boot{number}", [Body(b"x" * 1000, 3)], 3500) == 3
        os.utime(tmp_path / f"boot{number}.stallscope", (number, number))
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["boot2", "boot3", "boot4"]
    assert leftovers.load(tmp_path / "boot4.stallscope") == ([Body(b"x" * 1000, 3)], 0)
    assert leftovers.save(str(tmp_path), "large", [Body(b"x" * 9000, 3)], 3500) == 0


def test_spool_that_cannot_be_written_stops_nothing(launch: Launch, sink: Sink, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    sink.always = Answer(503)
    process = launch(
        "boot_ends()\nos._exit(8)",
        *("--flush", "0.5"),
        env={"STALLSCOPE_SPOOL_DIR": str(tmp_path / "file" / "below")},
    )
    assert process.wait(SECONDS) == 8


# --------------------------------------------------------------------------------------------------------------- GPU

SMI = """#!/bin/sh
echo "GPU-aaaa, NVIDIA H200, 570.86, 1024"
echo "GPU-bbbb, NVIDIA H200, 570.86, 512"
"""


def test_gpu_facts_come_from_nvidia_smi(launch: Launch, sink: Sink, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "STALLSCOPE_HEARTBEAT_SECONDS": "0.3"}
    process = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE, env=environment)
    used = "stallscope.heartbeat.gpu_memory_used_bytes"
    beat = sink.wait_for(lambda s: [b for b in s.named("worker.heartbeat") if used in b.attributes])[-1]
    process.communicate(timeout=SECONDS)
    assert beat.attributes[used] == 1536 << 20
    resource = sink.only("worker.death").resource
    assert resource["hw.id"] == "GPU-aaaa,GPU-bbbb"
    assert (resource["hw.model"], resource["hw.driver_version"]) == ("NVIDIA H200", "570.86")


def test_gpu_tool_that_hangs_holds_up_nothing(launch: Launch, sink: Sink, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 600\n")
    (tools / "nvidia-smi").chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "STALLSCOPE_HEARTBEAT_SECONDS": "0.3"}
    process = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE, env=environment)
    sink.wait_for(lambda s: len(s.named("worker.heartbeat")) >= 4)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "hw.id" not in sink.only("worker.death").resource


# ---------------------------------------------------------------------------------------------------------- settings


def test_endpoint_follows_opentelemetrys_rules() -> None:
    def endpoint(**environ: str) -> str:
        return RecorderSettings.from_env(environ).endpoint

    assert endpoint() == "http://127.0.0.1:4318/v1/traces"
    assert endpoint(OTEL_EXPORTER_OTLP_ENDPOINT="https://c.example/base/") == "https://c.example/base/v1/traces"
    assert endpoint(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="https://c.example/own") == "https://c.example/own"


@pytest.mark.parametrize(
    ("environ", "url", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c.example:4317"}, "http://c.example:4318/v1/traces", True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "c.example:4317"}, "http://c.example:4318/v1/traces", True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://[::1]:4317"}, "http://[::1]:4318/v1/traces", True),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "https://c.example/v1/traces",
            True,
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http://127.0.0.1:4318/v1/traces", True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
         "http://127.0.0.1:4318/v1/traces", False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c.example:none"}, "http://c.example:none/v1/traces", False),
    ],
)  # fmt: skip
def test_endpoint_meant_for_grpc_becomes_the_one_for_http(environ: dict[str, str], url: str, *, told: bool) -> None:
    assert endpoint_of(environ) == (url, ANY if told else None)
    if told:
        assert endpoint_of(environ)[1]


def test_wish_for_grpc_is_answered_once_on_stderr(launch: Launch, sink: Sink) -> None:
    process = launch("boot_ends()", env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    _, stderr = process.communicate(timeout=SECONDS)
    assert stderr.count(b"OTLP is sent over HTTP here") == 1
    assert sink.only("worker.death")


def test_long_command_line_is_cut_between_arguments() -> None:
    whole, half = "a" * 400, "b" * 400
    stays = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", whole, half],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert stays.stdout is not None
    stays.stdout.readline()
    told = command_of(stays.pid)
    stays.communicate()
    assert told is not None
    assert whole in told
    assert "b" not in told.partition(whole)[2].removesuffix(bounds.CUT_MARK)
    assert told.endswith(bounds.CUT_MARK)


def test_settings_that_make_no_sense_count_as_absent() -> None:
    usual = RecorderSettings.from_env({})
    odd = RecorderSettings.from_env(
        {
            "STALLSCOPE_LOG_CAPTURE": "sometimes",
            "STALLSCOPE_HANDLER_LOGS": "maybe",
            "STALLSCOPE_LOG_TAIL_BYTES": "-5",
            "STALLSCOPE_HEARTBEAT_SECONDS": "nan",
            "STALLSCOPE_BOOT": "a,b",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "soon",
            "OTEL_EXPORTER_OTLP_HEADERS": "nonsense",
        }
    )
    assert odd == usual
    assert usual.log_capture == "auto"
    assert not usual.handler_logs
    assert usual.tail_bytes == 16_384


def test_headers_and_compression_reach_the_collector(sink: Sink) -> None:
    environment = clean_environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=sink.url,
        OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20abc,x-more=1",
        OTEL_EXPORTER_OTLP_COMPRESSION="none",
    )
    command = [sys.executable, "-m", "sdk_exporter", "--flush", "30", "--", "true"]
    subprocess.run(command, env=environment, timeout=SECONDS, check=True)
    _, headers, _ = sink.requests[0]
    assert {name.lower(): value for name, value in headers.items()}["authorization"] == "Bearer abc"
    assert "Content-Encoding" not in headers


def test_own_certificate_authority_is_used(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    if shutil.which("openssl") is None:
        skip_or_fail("openssl is not installed")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Sink(tls=context) as sink:

        def run(flush: str, **environ: str) -> None:
            subprocess.run(
                [sys.executable, "-m", "sdk_exporter", "--flush", flush, "--", "true"],
                env=clean_environment(
                    OTEL_EXPORTER_OTLP_ENDPOINT=sink.url.replace("http:", "https:"), STALLSCOPE_DEBUG="", **environ
                ),
                timeout=SECONDS,
                check=True,
            )

        run("1")
        run("1", OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "missing.pem"))
        assert sink.spans == []  # not trusted, and never without trust
        run("30", OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate))
        assert len(sink.named("worker.death")) == 1


def test_retry_after_is_read_in_both_forms() -> None:
    from email.utils import formatdate
    from time import time

    assert retry_after_seconds("7") == 7
    assert retry_after_seconds("100000") == 300
    assert 50 < (retry_after_seconds(formatdate(time() + 60, usegmt=True)) or 0) <= 60
    assert retry_after_seconds(formatdate(0, usegmt=True)) == 0
    assert retry_after_seconds("soon") is None
    assert retry_after_seconds(None) is None


def test_importing_the_launcher_loads_neither_opentelemetry_nor_the_network() -> None:
    code = (
        "import sys, sdk_exporter.__main__; print([m for m in sys.modules if m.split('.')[0] in "
        "('opentelemetry', 'requests', 'urllib3', 'ssl', 'http', 'asyncio', 'argparse')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=SECONDS, env=clean_environment())
    assert done.stdout == b"[]\n"
