"""From the worker's records and output to spans at a collector, whoever dies on the way."""

from __future__ import annotations

import os
import random
import signal
import socket
import string
import subprocess
import sys
from pathlib import Path

import pytest
from launched import Launch, clean_environment, recorder_of, until, worker_of
from launched import launch as launch
from launched import sink as sink
from otlp_sink import Answer, Sink

from sdk_exporter import bounds
from sdk_exporter.recorder.export import started_id

SECONDS = 60


def finish(process: subprocess.Popen[bytes]) -> bytes:
    out, _ = process.communicate(timeout=SECONDS)
    return out


def token(prefix: str = "hf_", length: int = 34) -> str:
    """Looks like a real one, and is new in every run."""
    return prefix + "".join(random.SystemRandom().choices(string.ascii_letters + string.digits, k=length))


def test_records_become_spans_with_their_ids_times_and_words(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    put("resource", a={"stallscope.sdk.name": "runpod", "stallscope.sdk.version": "1.2"})
    put("hand", j="job-1")
    start("job.run", "11" * 8, tr=JOB_TRACE, pa="22" * 8, j="job-1", li=[TRACE, "33" * 8], t=5_000,
          a={"stallscope.handler.kind": "sync"})
    end("job.run", "11" * 8, tr=JOB_TRACE, pa="22" * 8, j="job-1", li=[TRACE, "33" * 8], t0=5_000, t=9_000, s="error",
        a={"stallscope.handler.kind": "sync", "n": 3, "f": 0.5, "b": True, "l": ["x", "y"], "big": 2**70, "none": None},
        x={"type": "ValueError", "message": "bad", "stacktrace": "Traceback"})
    put("point", n="job.deliver", id="44" * 8, tr=JOB_TRACE, j="job-1", a={}, s="ok")
    put("release", j="job-1", o="delivered")
    """
    environment = {
        "RUNPOD_POD_ID": "pod-1",
        "RUNPOD_ENDPOINT_ID": "ep-1",
        "RUNPOD_POD_HOSTNAME": "host-1",
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_RESOURCE_ATTRIBUTES": "team=a%20b,service.version=7",
    }
    finish(launch(code, env=environment))
    run, started = sink.only("job.run"), sink.only("job.run.started")
    assert (run.trace_id, run.span_id, run.parent_id, run.start, run.end) == (
        "cd" * 16,
        "11" * 8,
        "22" * 8,
        5_000,
        9_000,
    )
    assert run.status == 2
    assert run.links == [("ab" * 16, "33" * 8)]
    assert run.events == [
        (
            "exception",
            {"exception.type": "ValueError", "exception.message": "bad", "exception.stacktrace": "Traceback"},
        )
    ]
    plain = {key: value for key, value in run.attributes.items() if not key.startswith("stallscope.log.")}
    assert plain == {
        "stallscope.handler.kind": "sync",
        "n": 3,
        "f": 0.5,
        "b": True,
        "l": ["x", "y"],
        "big": str(2**70),
        "faas.invocation_id": "job-1",
        "error.type": "ValueError",
    }
    assert (started.start, started.end, started.span_id) == (5_000, 5_000, started_id("11" * 8))
    assert started.attributes["stallscope.span_id"] == "11" * 8
    assert started.attributes["faas.invocation_id"] == "job-1"
    assert sink.only("job.deliver").status == 1
    resource = sink.only("worker.death").resource
    boot_id = resource.pop("stallscope.exporter.boot_id")
    assert len(boot_id) == 32
    assert resource == {
        "service.instance.id": "pod-1",
        "faas.name": "ep-1",
        "service.name": "mine",
        "service.version": "7",
        "cloud.provider": "runpod",
        "team": "a b",
        "host.name": "host-1",
        "stallscope.sdk.name": "runpod",
        "stallscope.sdk.version": "1.2",
    }
    assert not sink.named("hand")


def test_killed_worker_leaves_what_it_held_and_its_last_line(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    put("hand", j="job-1"); put("hand", j="job-2"); put("hand", j="job-3"); put("release", j="job-2", o="delivered")
    start("prestart", "11" * 8)
    say("loading shard 3 of 4")
    say("CUDA out of memory", sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    process = launch(code)
    finish(process)
    assert process.returncode == 137
    death = sink.only("worker.death")
    assert death.status == 2
    assert death.attributes["stallscope.death.signal"] == "SIGKILL"
    assert death.attributes["stallscope.death.jobs_in_hand"] == ["job-1", "job-3"]
    assert death.attributes["stallscope.death.last_phase"] == "prestart"
    assert death.attributes["stallscope.log.tail"] in (
        "loading shard 3 of 4\nCUDA out of memory\n",
        "CUDA out of memory\nloading shard 3 of 4\n",
    )
    assert death.attributes["stallscope.log.complete"] is True
    assert death.attributes["stallscope.log.scope"] == "worker"
    assert len(sink.named("prestart.started")) == 1
    assert not sink.named("prestart")


@pytest.mark.parametrize(
    ("records", "phase"),
    [
        ("pass", "boot"),
        ("boot_ends()", "idle"),
        ("boot_ends(); start('prestart', '1' * 16); start('prestart.hook', '2' * 16)", "prestart"),
        ("boot_ends(); put('hand', j='a')", "claimed"),
        ("boot_ends(); start('prestart', '1' * 16); put('hand', j='a'); start('job.gated', '2' * 16)", "prestart"),
        ("boot_ends(); start('job.run', '1' * 16)", "running"),
        ("boot_ends(); start('job.run', '1' * 16); start('worker.shutdown', '2' * 16)", "running"),
        ("boot_ends(); start('job.run', '1' * 16); start('job.deliver', '2' * 16)", "delivering"),
        ("boot_ends(); start('worker.shutdown', '1' * 16)", "shutdown"),
    ],
)
def test_last_phase_is_the_innermost_that_was_open(launch: Launch, sink: Sink, records: str, phase: str) -> None:
    finish(launch(f"{records}\nos._exit(3)"))
    assert sink.only("worker.death").attributes["stallscope.death.last_phase"] == phase


def test_output_of_a_child_is_in_the_tail(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    import subprocess
    subprocess.run(["sh", "-c", "echo engine: no kernel image is available; exit 1"])
    os._exit(1)
    """
    finish(launch(code))
    tail = sink.only("worker.death").attributes["stallscope.log.tail"]
    assert tail == "engine: no kernel image is available\n"


def test_handler_output_stays_by_default(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    say("before any job")
    time.sleep(0.05)
    put("hand", j="job-1"); start("job.run", "11" * 8, j="job-1")
    say("prompt: my private question")
    say("more of it", sys.stderr)
    put("out", st="stdout", j="job-1", b="prompt: my private question\\n")
    end("job.run", "11" * 8, j="job-1", s="error")
    say("and after it, private")
    os.kill(os.getpid(), signal.SIGKILL)
    """
    finish(launch(code))
    death, run = sink.only("worker.death").attributes, sink.only("job.run").attributes
    assert death["stallscope.log.tail"] == "before any job\n"
    withheld = len("prompt: my private question\nmore of it\nand after it, private\n")
    assert death["stallscope.log.bytes_withheld"] == withheld
    assert death["stallscope.log.bytes_seen"] == withheld + len("before any job\n")
    assert death["stallscope.log.complete"] is False
    assert "stallscope.log.tail" not in run
    assert run["stallscope.log.bytes_withheld"] > 0
    assert not any(b"private" in body or b"more of it" in body for body in sink.bodies)


def test_handler_output_stays_when_the_recorder_was_killed_meanwhile(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    say("before any job")
    time.sleep(0.05)
    put("hand", j="job-1"); start("job.run", "1" * 16, j="job-1")
    say("private one")
    sys.stdin.readline()
    say("private two")
    os.abort()
    """
    process = launch(code, stdin=subprocess.PIPE)
    sink.wait_for(lambda s: s.named("job.run.started"))
    before = until(lambda: recorder_of(process.pid))
    os.kill(before, signal.SIGKILL)
    until(lambda: recorder_of(process.pid) not in (None, before))
    process.communicate(b"\n", timeout=SECONDS)
    death = sink.named("worker.death")[-1].attributes
    assert death["stallscope.log.tail"] == "before any job\n"
    assert death["stallscope.log.bytes_withheld"] == len("private one\nprivate two\n")
    assert death["stallscope.death.last_phase"] == "running"
    assert not any(b"private" in body for body in sink.bodies)


def test_handler_output_leaves_when_wanted(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    put("hand", j="job-1"); start("job.run", "11" * 8, j="job-1", t=time.time_ns())
    began = time.time_ns()
    say("handler says no")
    time.sleep(0.3)
    end("job.run", "11" * 8, j="job-1", s="error", t0=began)
    time.sleep(0.3)
    """
    finish(launch(code, env={"STALLSCOPE_HANDLER_LOGS": "on"}))
    run = sink.only("job.run").attributes
    assert run["stallscope.log.tail"] == "handler says no\n"
    assert run["stallscope.log.scope"] == "worker"


def test_handler_output_stays_when_the_run_could_not_be_told(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    say("before any job")
    time.sleep(0.05)
    page.set(spool.Page.RUN_BEGAN, time.time_ns())
    say("private one")
    os.abort()
    """
    finish(launch(code))
    death = sink.only("worker.death").attributes
    assert death["stallscope.log.tail"] == "before any job\n"
    assert death["stallscope.log.bytes_withheld"] == len("private one\n")


def test_jobs_that_run_at_once_get_their_own_tails(launch: Launch, sink: Sink) -> None:
    """With the worker's own side, which knows whose line it is; the worker's tail holds each line once all the same."""
    code = """
    import asyncio, os, sys
    import sdk_exporter
    sdk_exporter.instrument()
    async def handle(name):
        try:
            with sdk_exporter.job(name):
                for number in range(5):
                    print(f"{name} says {number}")
                    await asyncio.sleep(0.01)
                raise ValueError(name)
        except ValueError:
            pass
    async def main():
        await asyncio.gather(handle("a"), handle("b"))
        await handle("c")
        try:
            with sdk_exporter.job("d"):
                raise ValueError("silent")
        except ValueError:
            pass
    asyncio.run(main())
    os._exit(3)
    """
    finish(launch(code, prelude=False, env={"STALLSCOPE_HANDLER_LOGS": "on", "PYTHONUNBUFFERED": ""}))
    runs = {span.attributes["faas.invocation_id"]: span.attributes for span in sink.named("job.run")}
    for job in "abc":
        lines = [f"{job} says {number}" for number in range(5)]
        # Lines that differ in numbers only may be told as the first, the last and a count.
        tail = runs[job]["stallscope.log.tail"].splitlines()
        assert tail[0] == lines[0]
        assert tail[-1] == lines[-1]
        assert all(other not in runs[job]["stallscope.log.tail"] for other in ("a says", "b says", "c says")
                   if not other.startswith(job))  # fmt: skip
        assert runs[job]["stallscope.log.scope"] == "job"
    assert "stallscope.log.tail" not in runs["d"]
    worker = sink.only("worker.death").attributes["stallscope.log.tail"]
    assert [worker.count(f"{job} says 4") for job in "abc"] == [1, 1, 1]


def test_no_jobs_tail_holds_another_jobs_lines(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    for job in ("a", "b"):
        put("hand", j=job); start("job.run", job * 16, j=job)
    for number in range(5):
        for job in ("a", "b"):
            say(f"{job}{number}")
            put("out", st="stdout", j=job, b=f"{job}{number}\\n")
    time.sleep(0.2)
    for job in ("a", "b"):
        end("job.run", job * 16, j=job, s="error")
    start("job.run", "c" * 16, j="c"); start("job.run", "d" * 16, j="d")
    say("who said this?")
    time.sleep(0.2)
    for job in ("c", "d"):
        end("job.run", job * 16, j=job, s="error")
    time.sleep(0.3)
    """
    finish(launch(code, env={"STALLSCOPE_HANDLER_LOGS": "on"}))
    runs = {span.attributes["faas.invocation_id"]: span.attributes for span in sink.named("job.run")}
    assert runs["a"]["stallscope.log.tail"] == "".join(f"a{number}\n" for number in range(5))
    assert runs["b"]["stallscope.log.tail"] == "".join(f"b{number}\n" for number in range(5))
    assert {runs["a"]["stallscope.log.scope"], runs["b"]["stallscope.log.scope"]} == {"job"}
    assert "stallscope.log.tail" not in runs["c"]
    assert "stallscope.log.tail" not in runs["d"]


@pytest.mark.parametrize(("capture", "failed", "shipped"), [
    ("auto", False, False), ("auto", True, True), ("all", False, True), ("off", True, False),
])  # fmt: skip
def test_log_capture_decides_when_a_tail_leaves(
    launch: Launch, sink: Sink, capture: str, failed: bool, shipped: bool
) -> None:
    code = f"""
    boot_ends()
    start("prestart", "11" * 8)
    say("hook speaks")
    time.sleep(0.2)
    end("prestart", "11" * 8, s={"error" if failed else "ok"!r})
    time.sleep(0.3)
    """
    finish(launch(code, env={"STALLSCOPE_LOG_CAPTURE": capture}))
    attributes = sink.only("prestart").attributes
    assert attributes.get("stallscope.log.tail") == ("hook speaks\n" if shipped else None)
    if capture == "off":
        assert attributes["stallscope.log.bytes_withheld"] == len("hook speaks\n")


def test_no_secret_is_on_the_wire(launch: Launch, sink: Sink) -> None:
    secret, known = token(), "".join(random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=24))
    code = """
    boot_ends()
    secret, known = os.environ["SECRET_FOR_THE_TEST"], os.environ["MY_API_KEY"]
    start("prestart", "11" * 8, a={"url": f"https://user:{secret}@example.com/", "list": [secret]})
    say(f"debug: Authorization: Bearer {secret}")
    put("point", n="cut", id="8" * 16, tr=TRACE, a={"body": f"Authorization: Bearer {secret[:25]}…[cut]"})
    say(f"{known} with nothing around that tells")
    sys.stdout.write(secret[:17]); sys.stdout.flush(); time.sleep(0.1); say(secret[17:])
    end("prestart", "11" * 8, s="error", a={"note": secret},
        x={"type": "E", "message": f"token {secret}", "stacktrace": f'login("{secret}")'})
    put("out", st="stdout", b=secret)
    say(secret)
    os.abort()
    """
    finish(launch(code, env={"SECRET_FOR_THE_TEST": secret, "MY_API_KEY": known}))
    assert sink.only("worker.death").attributes["stallscope.log.redactions"] >= 3
    assert "[REDACTED]" in sink.only("prestart").events[0][1]["exception.message"]
    for body in sink.bodies:
        assert secret.encode() not in body
        assert secret[:17].encode() not in body
        assert known.encode() not in body


@pytest.mark.parametrize(("setting", "is_masked"), [("", True), ("off", False)])
def test_e_mail_addresses_leave_only_where_that_is_wished(
    launch: Launch, sink: Sink, setting: str, is_masked: bool
) -> None:
    code = """
    say("user some.one@mail.example.org logged in")
    boot_ends()
    put("point", n="work", id="8" * 16, tr=TRACE, s="error", a={"by": "some.one@mail.example.org"},
        x={"type": "E", "message": "no account for some.one@mail.example.org", "stacktrace": ""})
    os._exit(3)
    """
    process = launch(code, env={"STALLSCOPE_MASK_EMAILS": setting})
    process.communicate(timeout=SECONDS)
    told = "".join(str(span.attributes) + str(span.events) for span in sink.spans)
    assert ("some.one" in told) != is_masked
    assert told.count("[REDACTED]" if is_masked else "some.one@") == 3


def test_tail_is_the_end_of_much_output_within_its_bound(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    for number in range(30000):
        print(f"line {number} with \\u00e9 and \\"quotes\\"")
    print("\\r".join(f"{percent}%" for percent in range(101)))
    print("\\x1b[31mRuntimeError: the end\\x1b[0m", flush=True)
    os._exit(1)
    """
    out = finish(launch(code, env={"PYTHONIOENCODING": "utf-8"}))
    death = sink.only("worker.death").attributes
    tail = death["stallscope.log.tail"]
    assert tail.endswith('line 29999 with é and "quotes"\n100%\nRuntimeError: the end\n')
    assert tail.startswith("line ")
    assert 14_000 < len(tail.encode()) <= bounds.json_bytes(tail) <= 16_384
    assert death["stallscope.log.bytes_seen"] == len(out)
    assert death["stallscope.log.bytes_dropped"] == len(out) - len(tail.encode())
    assert death["stallscope.log.complete"] is False


def test_recorder_killed_again_and_again_loses_and_repeats_nothing(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    put("hand", j="held")
    put("resource", a={"fact": "kept"})
    for number in range(300):
        put("point", n="tick", id=f"{number + 1:016x}", tr=TRACE, a={"number": number})
        say(f"tick {number}")
        time.sleep(0.01)
    os._exit(9)
    """
    process = launch(code)
    assert process.stdout is not None
    killed, lines = 0, 0
    for line in process.stdout:
        assert line == b"tick %d\n" % lines
        lines += 1
        if lines % 60 == 0:
            os.kill(until(lambda: recorder_of(process.pid)), signal.SIGKILL)
            killed += 1
    assert process.wait(SECONDS) == 9
    assert (killed, lines) == (5, 300)
    numbers = {span.span_id: span.attributes["number"] for span in sink.named("tick")}
    assert sorted(numbers.values()) == list(range(300))
    assert len({span.span_id for span in sink.named("worker.boot.started")}) == 1
    deaths = {span.span_id for span in sink.named("worker.death")}
    assert len(deaths) == 1
    death = sink.named("worker.death")[-1]
    assert death.attributes["stallscope.death.jobs_in_hand"] == ["held"]
    assert death.attributes["stallscope.log.tail"].endswith("tick 299\n")
    assert death.resource["fact"] == "kept"


def test_keeper_killed_leaves_a_recorder_that_tells_the_end(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    put("hand", j="held")
    say("ready")
    sys.stdin.readline()
    say("last")
    """
    process = launch(code, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    until(lambda: recorder_of(process.pid))
    process.kill()
    process.wait(SECONDS)
    process.stdin.write(b"go\n")
    process.stdin.close()
    assert process.stdout.read() == b"last\n"
    death = sink.wait_for(lambda s: s.named("worker.death"))[0].attributes
    assert death["stallscope.death.jobs_in_hand"] == ["held"]
    assert death["stallscope.log.tail"] == "ready\nlast\n"
    process.stdin = None


def test_collector_that_comes_late_gets_everything(launch: Launch, sink: Sink) -> None:
    """Nobody listens at first; then somebody does, on the same port."""
    sink.__exit__()
    port = sink.port
    code = """
    boot_ends()
    for number in range(50):
        put("point", n="tick", id=f"{number + 1:016x}", tr=TRACE, a={})
    say("ready")
    sys.stdin.readline()
    """
    process = launch(code, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    with socket.create_server(("127.0.0.1", port)) as deaf:
        deaf.settimeout(SECONDS)
        for _ in range(2):  # tries that fail: somebody hangs up
            deaf.accept()[0].close()
    with Sink(port) as late:
        late.wait_for(lambda s: len(s.named("tick")) == 50)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        finish(process)
        assert late.only("worker.death").attributes["process.exit.code"] == 0
        assert len({span.span_id for span in late.named("tick")}) == 50
    sink._server.server_close()


def test_retry_after_is_honoured(launch: Launch, sink: Sink) -> None:
    sink.answers = [Answer(503, {"Retry-After": "2"}), Answer(429, {"Retry-After": "1"})]
    process = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE)
    sink.wait_for(lambda s: s.named("worker.boot"))
    finish(process)
    times = [at for at, _, _ in sink.requests]
    assert [status for _, _, status in sink.requests[:3]] == [503, 429, 200]
    assert times[1] - times[0] >= 2
    assert times[2] - times[1] >= 1


def test_refused_batch_is_counted_and_not_sent_for_ever(launch: Launch, sink: Sink) -> None:
    sink.answers = [Answer(400)]
    process = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE)
    sink.wait_for(lambda s: s.requests)
    finish(process)
    assert [status for _, _, status in sink.requests] == [400] + [200] * (len(sink.requests) - 1)
    assert sink.only("worker.death").attributes["stallscope.loss.export_refused"] >= 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_said_once_on_stderr(launch: Launch, sink: Sink, status: int) -> None:
    sink.answers = [Answer(status), Answer(status)]
    process = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    sink.wait_for(lambda s: s.requests)
    _, complaint = process.communicate(timeout=SECONDS)
    said = f"stallscope: the collector refuses the token in OTEL_EXPORTER_OTLP_HEADERS (HTTP {status})\n"
    assert complaint.decode().count(said) == 1


def test_partial_refusal_is_counted(launch: Launch, sink: Sink) -> None:
    sink.answers = [Answer(200, rejected=1)]
    process = launch("boot_ends()\nsys.stdin.readline()", stdin=subprocess.PIPE)
    sink.wait_for(lambda s: s.requests)
    finish(process)
    assert sink.only("worker.death").attributes["stallscope.loss.partial_refused"] == 1


def test_large_batches_are_split_below_the_collectors_limit(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    for number in range(150):
        text = "".join(chr(97 + (number * 7 + at * at) % 26) + " " for at in range(8000))
        put("point", n="tick", id=f"{number + 1:016x}", tr=TRACE, a={f"text{at}": text for at in range(4)})
    """
    finish(launch(code, "--flush", "50"))
    assert len(sink.named("tick")) == 150
    assert max(len(body) for body in sink.bodies) <= 4 << 20


def test_damaged_and_senseless_records_stop_nothing(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    descriptor = int(os.environ["STALLSCOPE_HANDOVER"].split(",")[0])
    os.write(descriptor, spool.encode({"k": "point", "n": "torn", "id": "9" * 16, "tr": TRACE})[:-9])
    for record in ({}, {"k": "end"}, {"k": 5}, {"k": "point", "n": "x", "id": "zz", "tr": TRACE},
                   {"k": "start", "n": [], "id": {}, "tr": 1}, {"k": "hand", "j": 7},
                   {"k": "end", "n": [], "id": [], "t": {}}, {"k": "loss", "r": 1, "c": "x"},
                   {"k": "out", "b": 3}, {"k": "resource", "a": 3}, {"k": "end", "n": "job.run", "a": 4, "x": []},
                   {"k": "point", "n": "old", "id": "8" * 16, "tr": TRACE, "t": -5, "a": {}}):
        descriptor_record = {"pid": 1, **record}
        os.write(descriptor, spool.encode(descriptor_record))
    os.write(descriptor, b"\\x0e\\x5c" * 1000 + os.urandom(5000))
    put("point", n="after", id="7" * 16, tr=TRACE, a={})
    sys.exit(1)
    """
    finish(launch(code))
    sink.only("after")
    death = sink.only("worker.death").attributes
    assert death["stallscope.loss.spool_torn"] >= 1


def test_heartbeat_comes_at_once_and_tells_ages_jobs_and_memory(launch: Launch, sink: Sink) -> None:
    code = """
    page.set(spool.Page.PROCESS_BEAT, time.monotonic_ns() - 3_000_000_000)
    page.set(spool.Page.LOOP_BEAT, time.monotonic_ns())
    put("hand", j="job-1")
    boot_ends()
    sys.stdin.readline()
    """
    process = launch(code, stdin=subprocess.PIPE, env={"STALLSCOPE_HEARTBEAT_SECONDS": "0.5"})
    beat = sink.wait_for(
        lambda s: [b for b in s.named("worker.heartbeat") if b.attributes["stallscope.heartbeat.jobs"]]
    )
    finish(process)
    attributes = beat[0].attributes
    assert attributes["stallscope.heartbeat.jobs"] == ["job-1"]
    assert attributes["stallscope.heartbeat.process"] > 3
    assert attributes["stallscope.heartbeat.loop"] < 60
    assert "stallscope.heartbeat.progress" not in attributes
    assert attributes["stallscope.heartbeat.rss_bytes"] > 1_000_000


def test_worker_that_hangs_shows_its_last_output_once(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    page.set(spool.Page.LOOP_BEAT, time.monotonic_ns() - 20_000_000_000)
    put("hand", j="job-1")
    say("waiting for a lock")
    sys.stdin.readline()
    """
    process = launch(code, stdin=subprocess.PIPE, env={"STALLSCOPE_HEARTBEAT_SECONDS": "0.3"})
    beats = sink.wait_for(lambda s: [b for b in s.named("worker.heartbeat") if "stallscope.log.tail" in b.attributes])
    seen = len(sink.named("worker.heartbeat"))
    sink.wait_for(lambda s: len(s.named("worker.heartbeat")) > seen + 2)
    finish(process)
    assert beats[0].attributes["stallscope.log.tail"] == "waiting for a lock\n"
    assert len([b for b in sink.named("worker.heartbeat") if "stallscope.log.tail" in b.attributes]) == 1


def test_random_kills_leave_the_claim_the_death_and_the_last_line(launch: Launch, sink: Sink) -> None:
    """Killed at any moment, the last line that reached the container log is the last of the tail."""
    code = """
    boot_ends()
    put("hand", j="job-%d" % os.getpid())
    number = 0
    while True:
        number += 1
        os.write(1, b"line %d\\n" % number)
    """
    dice = random.SystemRandom()
    for kill in range(6):
        process = launch(code, bufsize=0)  # `communicate` does not see what a buffered reader has taken already
        assert process.stdout is not None
        seen = b"".join(process.stdout.readline() for _ in range(dice.randrange(1, 3000)))
        os.kill(until(lambda process=process: worker_of(process.pid)), signal.SIGKILL)
        lines = (seen + finish(process)).split(b"\n")
        death = sink.named("worker.death")[-1].attributes
        assert len(sink.named("worker.death")) == kill + 1
        assert len(death["stallscope.death.jobs_in_hand"]) == 1
        assert death["stallscope.log.tail"].split("\n")[-2:] == [line.decode() for line in lines[-2:]]


def test_spawned_child_reaches_the_same_file(launch: Launch, sink: Sink) -> None:
    code = """
    boot_ends()
    import subprocess
    child = "import os; from sdk_exporter import spool; w, _ = spool.from_environment(os.environ); " \\
            "w.write({'k': 'point', 'n': 'from.child', 'id': '5' * 16, 'tr': '6' * 32, 't': 1, 'pid': 1, 'a': {}})"
    subprocess.run([sys.executable, "-c", child], check=True)
    """
    finish(launch(code))
    sink.only("from.child")


def test_own_modules_in_the_working_folder_do_not_disturb(launch: Launch, sink: Sink, tmp_path: Path) -> None:
    for name in ("requests", "gzip", "opentelemetry", "google"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the user\\'s own')")
    finish(launch("boot_ends()\nsys.exit(4)"))
    assert sink.only("worker.death").attributes["process.exit.code"] == 4


# ---------------------------------------------------------------------------------------------- the attached form

ATTACHED = """
import os, subprocess, sys, time, fcntl
from sdk_exporter import spool
events = os.memfd_create("events"); fcntl.fcntl(events, fcntl.F_SETFL, os.O_APPEND)
page_file = os.memfd_create("page"); os.ftruncate(page_file, spool.PAGE_BYTES)
status = os.fstat(events)
os.environ["STALLSCOPE_HANDOVER"] = f"{events},-1,{page_file},{status.st_dev},{status.st_ino},{os.getpid()}"
os.environ["STALLSCOPE_BOOT"] = f"{'12' * 16},{'34' * 16},{'56' * 8},{time.time_ns()}"
page = spool.Page(page_file); page.set(spool.Page.WORKER_PID, os.getpid())
subprocess.run([sys.executable, "-m", "sdk_exporter.recorder"], pass_fds=(events, page_file), check=True)
while not page.get(spool.Page.KEEPER_PID):  # no child of ours: it says itself who it is
    time.sleep(0.05)
print(page.get(spool.Page.KEEPER_PID), flush=True)
writer = spool.Writer(events, page)
def put(kind, **record):
    assert writer.write({"k": kind, "pid": os.getpid(), "t": time.time_ns(), **record})
put("start", n="worker.boot", id="56" * 8, tr="34" * 16, a={})
"""


def attached(sink: Sink, code: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", ATTACHED + code],
        env=clean_environment(OTEL_EXPORTER_OTLP_ENDPOINT=sink.url),
        capture_output=True,
        timeout=SECONDS,
    )


def test_attached_recorder_sends_what_a_killed_worker_left_and_goes(sink: Sink) -> None:
    done = attached(
        sink,
        """
put("hand", j="job-1")
put("out", st="stdout", b="loading\\n")
put("start", n="prestart", id="77" * 8, tr="34" * 16, a={})
put("end", n="prestart", id="77" * 8, tr="34" * 16, t0=1, s="error", a={}, x={"type": "E", "message": "m"})
os.kill(os.getpid(), 9)
""",
    )
    assert done.returncode == -9
    prestart = sink.wait_for(lambda s: s.named("prestart"))[0]
    assert prestart.attributes["stallscope.log.tail"] == "loading\n"
    assert prestart.attributes["stallscope.log.complete"] is False
    assert prestart.resource["stallscope.exporter.boot_id"] == "12" * 16
    until(lambda: not alive(int(done.stdout)))
    assert sink.only("worker.boot.started").attributes["stallscope.span_id"] == "56" * 8
    assert not sink.named("worker.death")


def test_attached_recorder_leaves_in_bounded_time_without_a_collector(sink: Sink) -> None:
    sink.always = Answer(503)
    done = attached(sink, "os._exit(3)")
    assert done.returncode == 3
    until(lambda: not alive(int(done.stdout)), seconds=20)


def test_attached_recorder_without_a_hand_over_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sdk_exporter.recorder"], env=clean_environment(), capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 2
    assert b"STALLSCOPE_HANDOVER" in done.stderr


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
