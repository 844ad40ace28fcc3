"""What the exporter costs, side by side with others in one run: `python benchmarks/exporter.py [--quick]`.

Subjects take turns, so that a burst of other load hits all alike; medians are printed. Linux only (PSS, /proc).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PROBE = Path(__file__).with_name("exporter_probe.py")
SUBJECTS = ("bare", "stallscope", "opentelemetry", "sentry", "logfire")

Numbers = dict[str, float]

_compiled = tempfile.TemporaryDirectory(prefix="stallscope-bench-")
"""Byte code of every subject, as an installed package has it: a checkout would be compiled anew at each start where
PYTHONDONTWRITEBYTECODE is set, and only ours is a checkout."""


class Collector:
    """Takes everything and counts spans (of Sentry: envelopes)."""

    def __init__(self, port: int = 0) -> None:
        self.seen: Counter[str] = Counter()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.answer(b"{}" if "envelope" in self.path else b"")

            def do_GET(self) -> None:
                self.answer(b'{"project_name": "benchmark", "project_url": "http://127.0.0.1"}')

            def answer(self, data: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    pass  # a client that left without a word, as some do at their exit

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        if "envelope" in path:
            self.seen["envelope"] += 1
        elif path.endswith("/v1/traces"):
            request = ExportTraceServiceRequest.FromString(body)
            spans = [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
            self.seen.update(span.name for span in spans)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def nobody(kind: str) -> Iterator[str]:
    """An address that refuses connections, or one that takes them and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == "black hole":
            listener.listen(512)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def command(probe: str, subject: str, collector: str, number: int) -> list[str]:
    launcher = ["-m", "sdk_exporter", "--"] if subject.startswith("stallscope") and probe != "line" else []
    return [sys.executable, *launcher, *([sys.executable] if launcher else []), str(PROBE), probe, subject, collector,
            str(number)]  # fmt: skip


def environment(subject: str, collector: str, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "STALLSCOPE_", "RUNPOD_", "LOGFIRE_"))}
    for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        kept.pop(name, None)
    folder = str(Path(__file__).parent.parent)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector} if subject.startswith("stallscope") else {}
    return {**kept, "PYTHONPATH": folder, "PYTHONPYCACHEPREFIX": _compiled.name, **endpoint, **more}


def measure(probe: str, subject: str, collector: str, number: int, **more: str) -> tuple[Numbers, float]:
    """(what the probe printed, Unix time at which the process had ended)."""
    process = subprocess.run(
        command(probe, subject, collector, number), env=environment(subject, collector, **more), capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    ended = time.time()
    for line in reversed(process.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line), ended
    raise RuntimeError(f"{probe} {subject}: {process.stderr[-2000:]}")


def in_turns(probe: str, number: int, runs: int, **more: str) -> dict[str, Numbers]:
    """Medians by subject."""
    collector, found = Collector(), dict[str, list[Numbers]]()
    for subject in SUBJECTS:
        measure(probe, subject, collector.url, min(number, 100), **more)  # compiles, and fills the file cache
    for _ in range(runs):
        for subject in SUBJECTS:
            found.setdefault(subject, []).append(measure(probe, subject, collector.url, number, **more)[0])
    collector.close()
    return {
        subject: {key: statistics.median(n[key] for n in all_) for key in all_[0]} for subject, all_ in found.items()
    }


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells: str) -> None:
    print()
    row(*cells)
    row(*("---" for _ in cells))


def ratio(ours: float, theirs: float) -> str:
    return f"{theirs / ours:.1f}x" if ours > 0.05 else "-"


def show_start(runs: int) -> None:
    found = in_turns("start", 0, runs)
    head("import + init, over bare Python", "wall ms", "CPU ms", "MiB", "wall against ours")
    ours, zero = found["stallscope"], found["bare"]
    for subject in SUBJECTS[1:]:
        told = {key: found[subject][key] - zero[key] for key in zero}
        row(subject, f"{told['ms']:.1f}", f"{told['cpu_ms']:.1f}", f"{told['mib']:.1f}",
            ratio(ours["ms"] - zero["ms"], told["ms"]))  # fmt: skip


def show_span(number: int, runs: int) -> None:
    found = in_turns("span", number, runs)
    head("CPU of the job's thread per span of 12 attributes", "us", "against ours")
    for subject in SUBJECTS:
        row(subject, f"{found[subject]['us']:.1f}", ratio(found["stallscope"]["us"], found[subject]["us"]))


def show_line(number: int, runs: int) -> None:
    """In the one-line form, which tees; under the launcher the worker's process does nothing for a line."""
    found = in_turns("line", number, runs, STALLSCOPE_HANDLER_LOGS="on")
    head("CPU per printed line, over bare Python", "us", "")
    for subject in SUBJECTS[1:]:
        over = found[subject]["us"] - found["bare"]["us"]
        row(subject, f"{over:.1f}", "" if subject in ("stallscope", "logfire") else "not captured")


def show_outage(number: int, runs: int) -> None:
    head("collector away", "subject", "slowest job ms", "memory MiB", "exit delayed s", f"lost of {number}")
    for kind in ("refused", "black hole"):
        for subject in SUBJECTS:
            told = [outage(kind, subject, number) for _ in range(runs if subject in ("bare", "stallscope") else 1)]
            middle = {key: statistics.median(numbers[key] for numbers in told) for key in told[0]}
            row(kind, subject, f"{middle['slowest_ms']:.1f}", f"{middle['mib']:.1f}", f"{middle['exit_s']:.2f}",
                "-" if subject == "bare" else int(middle["lost"]))  # fmt: skip


def outage(kind: str, subject: str, number: int) -> Numbers:
    """Lost is what has not arrived after the collector has come back and the worker was started anew."""
    with tempfile.TemporaryDirectory() as folder:
        more = {"STALLSCOPE_SPOOL_DIR": folder} if subject == "stallscope" else {}
        with nobody(kind) as address:
            told, ended = measure("outage", subject, address, number, **more)
        back = Collector()
        measure("start" if subject != "stallscope" else "rate", subject, back.url, 100, **more)
        back.close()
        arrived = back.seen["job.run"] - (300 if subject == "stallscope" else 0)  # those of the second start
    return {**told, "exit_s": ended - told["ended_at"], "lost": number - arrived}


def show_latency(number: int, runs: int) -> None:
    found = in_turns("latency", number, runs)
    head("a handler of 10 ms", "p50 ms", "p99 ms", "p99 over bare", "p99 of what is added", "the same, processor time")
    for subject in SUBJECTS:
        told = found[subject]
        over = told["p99_ms"] - found["bare"]["p99_ms"]
        row(subject, f"{told['p50_ms']:.2f}", f"{told['p99_ms']:.2f}", f"{over:+.2f}", f"{told['added_p99_ms']:.3f}",
            f"{told['added_cpu_p99_ms']:.3f}")  # fmt: skip


def cpu_seconds(pid: int) -> float:
    """Of all threads, to the nanosecond: a tick of 10 ms would be a tenth of what is measured."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def show_rate(number: int) -> None:
    head("at 100 jobs/s, a printed line each", "keeper % of a core", "recorder %", "together %", "their PSS MiB",
         "worker's process %")  # fmt: skip
    for subject, what in (("stallscope", "one span a job"), ("stallscope-whole", "claim, run, delivery: 8 records")):
        collector = Collector()
        with subprocess.Popen(
            command("rate", subject, collector.url, number), env=environment(subject, collector.url),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            keeper, recorder, memory = _watch(process)
            answer = json.loads(process.communicate()[0].splitlines()[-1])
        collector.close()
        share = 100 / (number / 100)
        row(f"{what}", f"{keeper * share:.2f}", f"{recorder * share:.2f}", f"{(keeper + recorder) * share:.2f}",
            f"{memory:.1f}", f"{answer['worker_percent']:.2f}")  # fmt: skip
    collector = Collector()
    answer, _ = measure("rate", "opentelemetry", collector.url, number)
    bare_answer, _ = measure("rate", "bare", collector.url, number)
    collector.close()
    row("opentelemetry, all in the worker's process", "", "", "", "", f"{answer['worker_percent']:.2f}")
    row("bare", "", "", "", "", f"{bare_answer['worker_percent']:.2f}")


def _watch(process: subprocess.Popen[str]) -> tuple[float, float, float]:
    """CPU seconds of keeper and recorder between the probe's two signs, and their PSS at the second."""
    assert process.stderr is not None
    before: dict[str, float] = {}
    ours: dict[str, int] = {}
    for line in process.stderr:
        if line == "measure\n":
            ours = {"keeper": process.pid, "recorder": _recorder(process.pid)}
            before = {name: cpu_seconds(pid) for name, pid in ours.items()}
        elif line == "measured\n":
            break
    spent = {name: cpu_seconds(pid) - before[name] for name, pid in ours.items()}
    return spent["keeper"], spent["recorder"], sum(pss_mib(pid) for pid in ours.values())


def _recorder(keeper: int) -> int:
    for child in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == "stallscope-rec":
            return int(child)
    raise RuntimeError("no recorder")


def where() -> None:
    packages = ("opentelemetry-sdk", "sentry-sdk", "logfire")
    versions: list[Any] = [f"{name} {version(name)}" for name in packages]
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}; {', '.join(versions)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a look, not a measurement")
    parser.add_argument("--only", choices=("start", "span", "line", "outage", "latency", "rate"), help="one table")
    given = parser.parse_args()
    runs = 3 if given.quick else 7
    tables = {
        "start": lambda: show_start(runs),
        "span": lambda: show_span(5_000, runs),
        "line": lambda: show_line(5_000, runs),
        "latency": lambda: show_latency(200 if given.quick else 500, runs),
        "rate": lambda: show_rate(500 if given.quick else 1_500),
        "outage": lambda: show_outage(2_000 if given.quick else 5_000, 1 if given.quick else 3),
    }
    where()
    for name, table in tables.items():
        if given.only in (None, name):
            table()
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
