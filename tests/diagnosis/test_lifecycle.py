"""What happened to the request: histories as workers really leave them, and the whole verdict about each.

Code, cause and state are expected here, by hand. The rest of each verdict (sentence, evidence, advice, what is missing)
stands in `lifecycle_verdicts.txt`; `STALLSCOPE_WRITE_EXPECTED=1 pytest …` writes it anew, to be read before a commit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import histories as h
import pytest

from collector.diagnosis import answer_of
from collector.diagnosis.answer import Answer
from collector.diagnosis.evidence import Evidence
from collector.diagnosis.lifecycle_end import KILLED_ADVICE, UNTOLD_ADVICE
from collector.diagnosis.lifecycle_outcome import OUTSIDE_ADVICE
from collector.diagnosis.verdicts import CAUSES, VERDICTS
from collector.rows import SpanRow
from sdk_exporter.contract import Key, SpanName

EXPECTED = Path(__file__).with_name("lifecycle_verdicts.txt")
OTHER: dict[str, Any] = {"worker": "w2", "boot": "c" * 32}
LOAD = {Key.PRESTART_HOOK: "load_model"}
INIT = {Key.PRESTART_KIND: "initializer", Key.PRESTART_HOOK: "setup"}
OOM = ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB")
IMPORT_TAIL = (
    "starting\nTraceback (most recent call last):\n"
    '  File "/app/handler.py", line 3, in <module>\n    import flash_attn\n'
    "ModuleNotFoundError: No module named 'flash_attn'\n"
)
SIDECAR_LINE = (
    "ConnectionRefusedError: [Errno 111] Connection refused: cannot reach the server at http://127.0.0.1:8188"
)
BATCH_TAIL = (
    'Traceback (most recent call last):\n  File "/app/scale.py", line 90, in take\n    job["id"]\nKeyError: \'id\'\n'
)


def failed_prestart(name: str = "load_model") -> list[SpanRow]:
    hook = {Key.PRESTART_HOOK: name}
    tail = {**hook, Key.LOG_TAIL: f"loading weights\n{h.OOM_LINE}\n", Key.LOG_SCOPE: "worker"}
    return [
        *h.prestart(-1, 3.1, error=OOM, attributes=tail),
        *h.prestart(-1, 3.1, name=SpanName.PRESTART_HOOK, error=OOM, attributes=hook),
    ]


BLOCK = {Key.HANDLER_KIND: "block"}
HISTORIES: dict[str, tuple[tuple[str, str, str, bool], Evidence]] = {
    "success": (
        ("completed", "no_failure", "completed", True),
        h.evidence(h.request(-1), h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1)),
    ),
    "success, the second try of the delivery was taken": (
        ("completed", "no_failure", "completed", True),
        h.evidence(h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1, 500), h.deliver(4.1, 4.2)),
    ),
    "result taken, no record of the run's end": (
        ("completed", "no_failure", "completed", False),
        h.evidence(h.claim(0), h.run(0.1), h.deliver(2, 2.1), now=10),
    ),
    "a block of the user's own loop ended well, and the worker exited later": (
        ("completed", "no_failure", "completed", True),
        h.evidence(h.run(0.1, 2, attributes=BLOCK), h.death(9, code=1)),
    ),
    "a block of the user's own loop raised": (
        ("handler_failed", "cuda_oom", "failed", True),
        h.evidence(h.run(0.1, 2, error=OOM, attributes=BLOCK)),
    ),
    "waiting in the queue": (("queued", "no_failure", "queued", False), h.evidence(h.request(-1), now=4)),
    "waiting for 20 minutes": (
        ("queue_stalled", "capacity_unavailable", "stalled", False),
        h.evidence(h.request(0), now=1200),
    ),
    "claimed a moment ago": (("running", "no_failure", "claimed", False), h.evidence(h.claim(0), now=3)),
    "running": (("running", "no_failure", "running", False), h.evidence(h.claim(0), h.run(0.1), now=20)),
    "waiting for prestart": (
        ("running", "no_failure", "claimed", False),
        h.evidence(
            h.claim(0),
            h.prestart(-1, attributes={**LOAD, Key.PRESTART_TIMEOUT_SECONDS: 600.0}),
            h.prestart(-1, name=SpanName.PRESTART_HOOK, attributes=LOAD),
            now=20,
        ),
    ),
    "waiting for prestart for 6 minutes, no bound": (
        ("cold_start_slow", "unknown", "stalled", False),
        h.evidence(
            h.claim(0),
            h.prestart(-1, attributes=LOAD),
            h.prestart(-1, name=SpanName.PRESTART_HOOK, attributes=LOAD),
            h.heartbeat(358, process=0.1),
            now=360,
        ),
    ),
    "prestart hook ran out of GPU memory": (
        ("prestart_failed", "cuda_oom", "failed", True),
        h.evidence(
            h.claim(0), h.began(SpanName.JOB_GATED, 0), failed_prestart(), h.deliver(3.2, 3.3), h.death(4, code=1)
        ),
    ),
    "prestart hook failed, its failure not handed in yet": (
        ("prestart_failed", "cuda_oom", "failed", False),
        h.evidence(h.claim(0), failed_prestart(), now=4),
    ),
    "prestart hook failed before the claim": (
        ("prestart_failed", "cuda_oom", "failed", True),
        h.evidence(h.claim(5), failed_prestart(), h.deliver(5.1, 5.2)),
    ),
    "prestart ran out of its bound": (
        ("prestart_timeout", "timeout", "failed", True),
        h.evidence(
            h.claim(0),
            h.prestart(
                -1,
                4,
                error=("PrestartTimeout", "the prestart phase exceeded its 5 s"),
                attributes={Key.PRESTART_HOOK: "fetch_weights", Key.PRESTART_TIMEOUT_SECONDS: 5.0},
            ),
            h.prestart(-0.5, name=SpanName.PRESTART_HOOK, attributes={Key.PRESTART_HOOK: "fetch_weights"}),
            h.deliver(4.1, 4.2),
        ),
    ),
    "the user's own TimeoutError is no expired bound": (
        ("prestart_failed", "timeout", "failed", True),
        h.evidence(
            h.claim(0),
            h.prestart(
                -1, 4, error=("TimeoutError", "the licence server did not answer within 3 seconds"), attributes=LOAD
            ),
            h.deliver(4.1, 4.2),
        ),
    ),
    "initializer failed": (
        ("init_failed", "config_invalid", "failed", True),
        h.evidence(
            h.claim(0),
            h.prestart(-1, 0.5, error=("KeyError", "'MODEL_NAME' environment variable is not set"), attributes=INIT),
            h.deliver(1, 1.1),
        ),
    ),
    "initializer ran out of its bound": (
        ("init_timeout", "timeout", "failed", True),
        h.evidence(
            h.claim(0),
            h.prestart(
                -1,
                1,
                error=("InitializerTimeout", "init_timeout of 2 s"),
                attributes={**INIT, Key.PRESTART_TIMEOUT_SECONDS: 2.0},
            ),
            h.deliver(1, 1.1),
        ),
    ),
    "fitness check failed": (
        ("fitness_failed", "gpu_unavailable", "failed", True),
        h.evidence(
            h.claim(0),
            h.worker_span(
                SpanName.FITNESS_CHECK,
                0,
                1,
                error=("RuntimeError", "No CUDA GPUs are available"),
                attributes={Key.CHECK_NAME: "gpu"},
            ),
            h.death(2, code=1),
        ),
    ),
    "module-level crash, the request waits": (
        ("boot_crashed", "import_error", "stalled", False),
        h.evidence(
            h.request(-1),
            h.boot(0, **OTHER),
            h.death(0.6, code=1, tail=IMPORT_TAIL, **OTHER),
            h.boot(1, worker="w3", boot="d" * 32),
            h.death(1.7, code=1, tail=IMPORT_TAIL, worker="w3", boot="d" * 32),
            now=5,
        ),
    ),
    "module-level crash told by the worker itself": (
        ("boot_crashed", "import_error", "stalled", False),
        h.evidence(
            h.request(-1), h.boot(0, 0.6, error=("ModuleNotFoundError", "No module named 'flash_attn'"), **OTHER), now=5
        ),
    ),
    "module-level hang, ended from outside": (
        ("boot_hung", "unknown", "stalled", False),
        h.evidence(
            h.request(-1),
            h.boot(0, **OTHER),
            h.death(200, signal="SIGTERM", tail="downloading weights\nconnecting to mirror\n", **OTHER),
            now=205,
        ),
    ),
    "module-level hang, still there": (
        ("boot_hung", "unknown", "stalled", False),
        h.evidence(h.request(-1), h.boot(0, **OTHER), now=130),
    ),
    "module-level hang, its output told by a heartbeat": (
        ("boot_hung", "unknown", "stalled", False),
        h.evidence(
            h.request(-1),
            h.boot(0, **OTHER),
            h.heartbeat(60, tail="importing\ncompiling kernels\n\n", **OTHER),
            h.heartbeat(120, process=0.1, **OTHER),
            now=130,
        ),
    ),
    "handler raised": (
        ("handler_failed", "handler_exception", "failed", True),
        h.evidence(h.claim(0), h.run(0.1, 0.3, error=("KeyError", "'prompt'")), h.deliver(0.3, 0.4)),
    ),
    "handler ran out of GPU memory, its output withheld": (
        ("handler_failed", "cuda_oom", "failed", True),
        h.evidence(
            h.claim(0),
            h.run(0.1, 9.3, error=OOM, attributes={Key.LOG_BYTES_WITHHELD: 2048}),
            h.deliver(9.3, 9.4),
        ),
    ),
    "handler returned an error": (
        ("handler_returned_error", "handler_exception", "failed", True),
        h.evidence(
            h.claim(0),
            h.run(
                0.1,
                0.3,
                status="error",
                message="no such style: oil",
                attributes={Key.ERROR_TYPE: "handler_returned_error", Key.HANDLER_RETURNED_ERROR: True},
            ),
            h.deliver(0.3, 0.4),
        ),
    ),
    "generator raised in mid-stream": (
        ("generator_failed", "cuda_error", "failed", True),
        h.evidence(
            h.claim(0),
            h.run(
                0.1,
                2,
                error=("RuntimeError", "CUDA error: an illegal memory access was encountered"),
                attributes={Key.HANDLER_KIND: "generator", Key.HANDLER_CHUNKS: 3},
            ),
            h.deliver(2, 2.1),
        ),
    ),
    "handler ended the process": (
        ("handler_exited", "unknown", "lost", True),
        h.evidence(h.claim(0), h.run(0.1), h.death(2, code=7, jobs=[h.JOB])),
    ),
    "handler called sys.exit": (
        ("handler_exited", "handler_exception", "lost", True),
        h.evidence(h.claim(0), h.run(0.1, 2, error=("SystemExit", "3")), h.death(2.1, code=3)),
    ),
    "handler raised KeyboardInterrupt": (
        ("handler_exited", "handler_exception", "lost", True),
        h.evidence(h.claim(0), h.run(0.1, 2, error=("KeyboardInterrupt", "")), h.death(2.1, signal="SIGINT")),
    ),
    "the worker's own loop failed and cancelled the handler": (
        ("worker_crashed", "handler_exception", "lost", True),
        h.evidence(
            h.claim(0),
            h.run(0.1, 2.01, error=("CancelledError", "")),
            h.shutdown(2, 2.02, signal="", error=("LookupError", "no entry for the free memory of this GPU")),
            h.death(2.1, code=1),
        ),
    ),
    "handler cancelled itself": (
        ("self_cancelled", "handler_exception", "lost", False),
        h.evidence(h.claim(0), h.run(0.1, 2, error=("asyncio.exceptions.CancelledError", "")), now=5),
    ),
    "stopped": (
        ("stopped", "request_cancelled", "stopped", True),
        h.evidence(h.claim(0), h.run(0.1, 3.01, error=("CancelledError", "")), h.stop(3, 3.01, "stopped")),
    ),
    "stop swallowed": (
        ("stop_swallowed", "request_cancelled", "stopped", True),
        h.evidence(h.claim(0), h.run(0.1, 3.01), h.stop(3, 3.01, "swallowed"), h.deliver(3.1, 3.2)),
    ),
    "stop ignored, still running": (
        ("stop_ignored", "request_cancelled", "running", False),
        h.evidence(h.claim(0), h.run(0.1), h.stop(3, 13, "ignored"), h.heartbeat(29, process=0.1), now=30),
    ),
    "stop ignored until the worker's end, asked much later": (
        ("stop_ignored", "request_cancelled", "stopped", True),
        h.evidence(h.claim(0), h.run(0.1), h.stop(3, 13, "ignored"), h.death(16.5, signal=9), now=3000),
    ),
    "stop signalled, no word since": (
        ("stop_ignored", "request_cancelled", "running", False),
        h.evidence(h.claim(0), h.run(0.1), h.stop(3), h.heartbeat(29, process=0.1), now=30),
    ),
    "stop signalled just now": (
        ("running", "request_cancelled", "running", False),
        h.evidence(h.claim(0), h.run(0.1), h.stop(3), now=5),
    ),
    "stop late, the loop was blocked": (
        ("stop_late", "request_cancelled", "stopped", True),
        h.evidence(h.claim(0), h.run(0.1, 6.1), h.stop(1, 6.1, "late"), h.deliver(6.1, 6.2)),
    ),
    "clean-up after the stop failed": (
        ("stop_cleanup_failed", "handler_exception", "stopped", True),
        h.evidence(
            h.claim(0),
            h.run(0.1, 3.2, error=("AttributeError", "'NoneType' object has no attribute 'close'")),
            h.stop(3, 3.2, "cleanup_failed"),
            h.deliver(3.2, 3.3),
        ),
    ),
    "stop signal dropped by the worker": (
        ("stop_signal_lost", "platform_api_error", "running", False),
        h.evidence(h.claim(0), h.stop(0.05, 0.05, "unknown_job"), h.run(0.1), h.heartbeat(19, process=0.1), now=20),
    ),
    "cancelled, and the worker has had no stop channel from its start": (
        ("stop_signal_lost", "platform_api_error", "stopped", True),
        h.evidence(
            h.request(-1, 4, "CANCELLED"),
            h.worker_span(SpanName.STOP_CHANNEL, -8, attributes={Key.CHANNEL_STATE: "ok"}),
            h.worker_span(SpanName.STOP_CHANNEL, -2, attributes={Key.CHANNEL_STATE: "disabled"}),
            h.claim(0),
            h.run(0.1, 9),
            h.deliver(9, 9.1),
        ),
    ),
    "cancelled, and the stop channel was violating": (
        ("stop_signal_lost", "platform_api_error", "stopped", True),
        h.evidence(
            h.request(-1),
            h.claim(0),
            h.run(0.1, 30),
            h.poll(5, "CANCELLED"),
            h.worker_span(
                SpanName.STOP_CHANNEL,
                6,
                attributes={Key.CHANNEL_STATE: "violating", Key.CHANNEL_VIOLATION: "wrong_key"},
            ),
            h.deliver(30, 30.1, 404, last=True),
        ),
    ),
    "cancelled, the signal was dropped, and the late result was taken": (
        ("stop_signal_lost", "platform_api_error", "stopped", True),
        h.evidence(
            h.request(-1), h.claim(0), h.run(0.1, 30), h.request(-1, 5, "CANCELLED"), h.deliver(30, 30.1), now=40
        ),
    ),
    "cancelled, and the handler ended by cancellation": (
        ("stopped", "request_cancelled", "stopped", True),
        h.evidence(h.request(-1), h.claim(0), h.run(0.1, 5, error=("CancelledError", "")), h.poll(5.2, "CANCELLED")),
    ),
    "cancelled in the queue": (
        ("cancelled_in_queue", "request_cancelled", "stopped", True),
        h.evidence(h.request(0), h.request(0, 9, "CANCELLED"), now=10),
    ),
    "SIGTERM on an idle worker, whose open poll still claims": (
        ("stranded_claim", "terminated_by_platform", "lost", True),
        h.evidence(h.shutdown(-2), h.claim(0), h.death(8, code=0, jobs=[h.JOB])),
    ),
    "the same, the process not gone yet": (
        ("stranded_claim", "terminated_by_platform", "lost", False),
        h.evidence(h.shutdown(-2), h.claim(0), now=1),
    ),
    "killed for memory while it was loading": (
        ("stranded_claim", "host_oom", "lost", True),
        h.evidence(
            h.claim(0),
            h.prestart(-5, attributes=LOAD),
            h.prestart(-5, name=SpanName.PRESTART_HOOK, attributes=LOAD),
            h.death(12, signal="SIGKILL", oom=True, jobs=[h.JOB], tail="loading shard 3 of 7\n"),
        ),
    ),
    "shut down while prestart ran": (
        ("stranded_claim", "terminated_by_platform", "lost", True),
        h.evidence(
            h.claim(0),
            h.prestart(-5, 3, error=("CancelledError", ""), attributes=LOAD),
            h.shutdown(2.9),
            h.death(4, code=0, jobs=[h.JOB]),
        ),
    ),
    "told to shut down while prestart ran, and the request was failed": (
        ("prestart_failed", "terminated_by_platform", "failed", True),
        h.evidence(
            h.claim(0),
            h.prestart(
                -5,
                3,
                error=(
                    "PrestartInterrupted",
                    "the worker was told to shut down (SIGTERM) while 'load_model' was running",
                ),
                attributes=LOAD,
            ),
            h.shutdown(2.9),
            h.deliver(3.1, 3.2),
        ),
    ),
    "the worker's loop failed with a claim in hand": (
        ("stranded_claim", "handler_exception", "lost", True),
        h.evidence(
            h.claim(0),
            h.worker_span(SpanName.SHUTDOWN, 1, 1.1, error=("ZeroDivisionError", "division by zero")),
            h.death(2, code=1, jobs=[h.JOB]),
        ),
    ),
    "stop that came after the handler's end": (
        ("stop_late", "request_cancelled", "stopped", True),
        h.evidence(h.claim(0), h.run(0.1, 6.1), h.stop(6.2, 6.2, "late"), h.deliver(6.1, 6.3)),
    ),
    "claimed, then 50 s of silence": (
        ("stranded_claim", "unknown", "stalled", False),
        h.evidence(h.claim(0), now=50),
    ),
    "claimed, then 130 s of silence": (("stranded_claim", "unknown", "lost", False), h.evidence(h.claim(0), now=130)),
    "claimed, then 20 minutes of silence": (
        ("stranded_claim", "unknown", "lost", True),
        h.evidence(h.claim(0), h.heartbeat(15, process=0.1), now=1200),
    ),
    "kill -9 in mid-request": (
        ("worker_killed", "unknown", "lost", True),
        h.evidence(
            h.claim(0), h.run(0.1), h.death(5, signal="SIGKILL", oom=False, jobs=[h.JOB], tail="ready\n", withheld=300)
        ),
    ),
    "killed for memory in mid-request": (
        ("worker_killed", "host_oom", "lost", True),
        h.evidence(h.claim(0), h.run(0.1), h.death(5, signal="SIGKILL", oom=True, jobs=[h.JOB])),
    ),
    "killed after its grace had run out": (
        ("worker_killed", "terminated_by_platform", "lost", True),
        h.evidence(h.claim(0), h.run(0.1), h.shutdown(2), h.death(32, signal="SIGKILL", oom=False, jobs=[h.JOB])),
    ),
    "drained too early": (
        ("worker_replaced", "terminated_by_platform", "lost", True),
        h.evidence(h.claim(0), h.run(0.1), h.shutdown(2), h.death(12, code=0, jobs=[h.JOB])),
    ),
    "in mid-request, then 130 s of silence": (
        ("worker_killed", "unknown", "lost", False),
        h.evidence(h.claim(0), h.run(0.1), h.heartbeat(15, process=0.1), now=145),
    ),
    "segmentation fault in mid-request": (
        ("worker_crashed", "native_crash", "lost", True),
        h.evidence(
            h.claim(0),
            h.run(0.1),
            h.death(5, signal="SIGSEGV", jobs=[h.JOB], tail="Fatal Python error: Segmentation fault\n"),
        ),
    ),
    "a crash outside the handler": (
        ("worker_crashed", "handler_exception", "lost", True),
        h.evidence(h.claim(0), h.run(0.1), h.death(5, code=1, jobs=[h.JOB], tail=BATCH_TAIL)),
    ),
    "alive, and the claim is no longer held": (
        ("stranded_claim", "unknown", "lost", False),
        h.evidence(
            h.claim(0), h.worker_span(SpanName.HEARTBEAT, 60, attributes={Key.HEARTBEAT_JOBS: ["job-9"]}), now=61
        ),
    ),
    "alive, and the claim is held but never run": (
        ("worker_hung", "unknown", "stalled", False),
        h.evidence(
            h.claim(0), h.worker_span(SpanName.HEARTBEAT, 130, attributes={Key.HEARTBEAT_JOBS: [h.JOB]}), now=131
        ),
    ),
    "alive, and neither loop nor handler moves": (
        ("worker_hung", "unknown", "stalled", False),
        h.evidence(h.claim(0), h.run(0.1), h.heartbeat(400, process=0.2, loop=390.0, progress=395.0), now=401),
    ),
    "alive, and no thread moves": (
        ("worker_hung", "unknown", "stalled", False),
        h.evidence(h.claim(0), h.run(0.1), h.heartbeat(195, process=190.0, loop=190.0, progress=194.0), now=200),
    ),
    "alive, no thread moves, and the last output tells why": (
        ("worker_hung", "sidecar_unreachable", "stalled", False),
        h.evidence(
            h.claim(0),
            h.run(0.1),
            h.heartbeat(60, process=50.0, tail=f"serving\n{SIDECAR_LINE}\n"),
            h.heartbeat(195, process=190.0),
            now=200,
        ),
    ),
    "alive, no thread moves, and an error was survived long before": (
        ("worker_hung", "unknown", "stalled", False),
        h.evidence(
            h.claim(0),
            h.run(0.1),
            h.heartbeat(195, process=190.0, tail=f"{h.OOM_LINE}\n" + "step done\n" * 30 + "all ranks wait\n"),
            now=200,
        ),
    ),
    "alive, no thread moves, and the output is withheld": (
        ("worker_hung", "unknown", "stalled", False),
        h.evidence(h.claim(0), h.run(0.1), h.heartbeat(195, process=190.0, withheld=77), now=200),
    ),
    "waiting for prestart for 6 minutes, its output told by a heartbeat": (
        ("cold_start_slow", "unknown", "stalled", False),
        h.evidence(
            h.claim(0),
            h.prestart(-1, attributes=LOAD),
            h.heartbeat(100, process=0.1, tail="Loading checkpoint shards:  40%\n"),
            h.heartbeat(358, process=0.1),
            now=360,
        ),
    ),
    "two records of the worker's end contradict each other": (
        ("worker_killed", "unknown", "lost", True),
        h.evidence(h.claim(0), h.run(0.1), h.death(5, signal="SIGKILL", jobs=[h.JOB]), h.death(5.2, code=0)),
    ),
    "the end is told with a clock that is behind": (
        ("handler_exited", "unknown", "lost", True),
        h.evidence(h.claim(10), h.run(10.1), h.death(5, code=7, jobs=[h.JOB])),
    ),
    "delivered, and the caller saw it fail": (
        ("completed", "no_failure", "completed", True),
        h.evidence(h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1), h.poll(3, "FAILED")),
    ),
    "told to leave, and the handler was cancelled": (
        ("worker_replaced", "terminated_by_platform", "lost", True),
        h.evidence(
            h.claim(0), h.run(0.1, 5, error=("CancelledError", "")), h.shutdown(2), h.death(6, code=0, jobs=[h.JOB])
        ),
    ),
    "stopped, and nothing else is known": (
        ("stopped", "request_cancelled", "stopped", True),
        h.evidence(h.stop(1, 2, "stopped")),
    ),
    "a sync handler that computes for two minutes is no hang": (
        ("running", "no_failure", "running", False),
        h.evidence(h.claim(0), h.run(0.1), h.heartbeat(120, process=0.2, loop=119.0, progress=119.0), now=121),
    ),
    "a call that hangs on a thread leaves the loop alone": (
        ("running", "no_failure", "running", False),
        h.evidence(h.claim(0), h.run(0.1), h.heartbeat(600, process=0.2, loop=0.1, progress=599.0), now=601),
    ),
    "the engine behind the handler died": (
        ("backend_dead", "native_crash", "stalled", False),
        h.evidence(
            h.claim(0),
            h.run(0.1),
            h.worker_span(
                SpanName.BACKEND_DEATH,
                10,
                attributes={Key.PROCESS_COMMAND: "llama-server", Key.DEATH_SIGNAL: "SIGSEGV"},
            ),
            h.heartbeat(69, process=0.1),
            now=70,
        ),
    ),
    "a child that ended well is no dead engine": (
        ("running", "no_failure", "running", False),
        h.evidence(
            h.claim(0),
            h.run(0.1),
            h.worker_span(SpanName.BACKEND_DEATH, 10, attributes={Key.PROCESS_COMMAND: "ffmpeg", Key.EXIT_CODE: 0}),
            h.heartbeat(69, process=0.1),
            now=70,
        ),
    ),
    "job-done refused": (
        ("result_lost", "platform_api_error", "lost", True),
        h.evidence(h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1, 400, last=True)),
    ),
    "job-done answered 500 three times": (
        ("result_lost", "platform_api_error", "lost", True),
        h.evidence(
            h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1, 500), h.deliver(4, 4.1, 500), h.deliver(7, 7.1, 500, last=True)
        ),
    ),
    "job-done answered 500, another try follows": (
        ("running", "no_failure", "running", False),
        h.evidence(h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1, 500), now=3),
    ),
    "the platform could not be reached with the result": (
        ("result_lost", "platform_api_error", "lost", True),
        h.evidence(
            h.claim(0),
            h.run(0.1, 2),
            h.deliver(2, 2.1, None, last=True, error=("ClientConnectorError", "Cannot connect to host api.example")),
        ),
    ),
    "a result too large": (
        ("result_lost", "payload_too_large", "lost", True),
        h.evidence(
            h.claim(0), h.run(0.1, 2), h.deliver(2, 2.1, 400, last=True, attributes={Key.DELIVER_BYTES: 30_000_000})
        ),
    ),
    "killed between return and delivery": (
        ("result_lost", "unknown", "lost", True),
        h.evidence(h.claim(0), h.run(0.1, 2), h.death(2.1, signal="SIGKILL", oom=False, jobs=[h.JOB])),
    ),
    "a result that cannot be encoded": (
        ("result_undeliverable", "output_not_serializable", "lost", True),
        h.evidence(
            h.claim(0),
            h.run(0.1, 2),
            h.deliver(2, 2.1, None, last=True, error=("TypeError", "Object of type ndarray is not JSON serializable")),
        ),
    ),
    "the result had expired": (
        ("result_expired", "unknown", "completed", True),
        h.evidence(
            h.request(-1),
            h.claim(0),
            h.run(0.1, 2),
            h.span(SpanName.CALLER_POLL, 4000, attributes={Key.HTTP_STATUS: 404}, worker="", boot=""),
            now=4001,
        ),
    ),
    "intake could not read the answer": (
        ("claim_lost_on_intake", "platform_api_error", "lost", True),
        h.evidence(h.claim(0, status="error", message="content type text/html", attributes={})),
    ),
    "handed out in an answer that no worker could read": (
        ("claim_lost_on_intake", "platform_api_error", "lost", False),
        h.evidence(
            h.request(-1),
            h.boot(-5, -2),
            h.worker_span(SpanName.JOB_TAKE, 0.1, attributes={Key.CHANNEL_VIOLATION: "content_type"}),
            h.poll(1, "IN_PROGRESS"),
            now=2,
        ),
    ),
    "handed out, after an answer that could not be read": (
        ("running", "no_failure", "claimed", False),
        h.evidence(
            h.request(-1),
            h.boot(-5, -2),
            h.worker_span(SpanName.JOB_TAKE, -1.5, attributes={Key.CHANNEL_VIOLATION: "content_type"}),
            h.heartbeat(1.5, process=0.1),
            h.poll(1, "IN_PROGRESS"),
            now=2,
        ),
    ),
    "handed out to a worker that ended without reading it": (
        ("claim_lost_on_intake", "timeout", "lost", False),
        h.evidence(
            h.request(-1),
            h.boot(-5, -2),
            h.prestart(
                -2,
                8,
                error=("PrestartTimeout", "prestart exceeded its timeout of 10 s while hook 'warm_up' was running"),
                attributes={Key.PRESTART_HOOK: "warm_up", Key.PRESTART_TIMEOUT_SECONDS: 10.0},
            ),
            h.worker_span(SpanName.JOB_TAKE, 8.1, attributes={Key.CLAIM_UNREAD: True}),
            h.poll(9, "IN_PROGRESS"),
            now=10,
        ),
    ),
    "a request without input": (
        ("empty_input_dropped", "input_invalid", "lost", True),
        h.evidence(h.claim(0, status="error", attributes={Key.ERROR_TYPE: "empty_input_dropped"})),
    ),
    "the platform's time limit": (
        ("execution_timeout", "timeout", "failed", True),
        h.evidence(
            h.request(-1), h.claim(0), h.run(0.1), h.heartbeat(599, process=0.1), h.poll(600, "TIMED_OUT"), now=601
        ),
    ),
    "a pending reply taken for a result": (
        ("pending_returned", "unknown", "queued", False),
        h.evidence(
            h.span(
                SpanName.CALLER_REQUEST,
                0,
                90,
                attributes={Key.CALLER_STATUS: "IN_QUEUE", Key.ERROR_TYPE: "pending_returned"},
                status="error",
                worker="",
                boot="",
            ),
            now=100,
        ),
    ),
    "the caller saw it fail, and the worker has not told why yet": (
        ("handler_failed", "unknown", "failed", False),
        h.evidence(h.request(-1), h.claim(0), h.run(0.1), h.heartbeat(15, process=0.1), h.poll(18, "FAILED"), now=20),
    ),
    "expired in the queue": (
        ("expired", "unknown", "failed", True),
        h.evidence(h.request(0), h.poll(600, "TIMED_OUT"), now=601),
    ),
    "a span of another SDK and nothing else": (
        ("unknown", "unknown", "unknown", False),
        h.evidence(h.span("POST /generate", 0, 1, worker="", boot="", error=("ValueError", "")), now=10),
    ),
}


LIFECYCLE_ADVICE = {
    text
    for advice in (*(entry.advice for entry in VERDICTS.values()), KILLED_ADVICE, UNTOLD_ADVICE, OUTSIDE_ADVICE)
    for text in advice
}


def own_words(text: str) -> str:
    head, found, _ = text.partition("no cause: ")
    return head + found + "…" if found else text


def shown(answer: Answer) -> str:
    """A verdict in full, as text; what the causes say of themselves is tested with the causes."""
    v = answer.verdict
    final = "final" if answer.final else "open"
    head = f"{v.code} / {v.cause} · {answer.state}, {final} · {v.confidence} · fault {v.fault} · retry {v.retry}"
    lines = [head + (" · inferred" if v.inferred else "") + (f" · {v.queue_reason}" if v.queue_reason else "")]
    lines.append(v.sentence)
    lines += [f"  {i.source} {i.what}{f' {i.line}' if i.line else ''}: {own_words(i.text)}" for i in v.evidence]
    lines += [f"  do: {text}" for text in v.advice if text in LIFECYCLE_ADVICE]
    lines += [f"  missing: {item.what}: {item.how}" for item in v.missing]
    return "\n".join(lines)


def answers() -> dict[str, Answer]:
    return {name: answer_of(evidence, tenant="default") for name, (_, evidence) in HISTORIES.items()}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_happened(name: str) -> None:
    (code, cause, state, final), evidence = HISTORIES[name]
    answer = answer_of(evidence, tenant="default")
    assert (answer.verdict.code, answer.verdict.cause, answer.state, answer.final) == (code, cause, state, final)


@pytest.mark.parametrize("name", HISTORIES)
def test_every_verdict_cites_a_record_and_says_when_it_is_only_possible(name: str) -> None:
    verdict = answer_of(HISTORIES[name][1], tenant="default").verdict
    assert verdict.evidence
    assert verdict.doc == f"/docs/verdicts#{verdict.code}"
    assert verdict.code in VERDICTS
    assert verdict.cause in CAUSES
    if verdict.confidence == "possible":
        assert "possibl" in verdict.sentence
    assert "\n" not in verdict.sentence


def test_whole_verdicts() -> None:
    text = "\n\n".join(f"# {name}\n{shown(answer)}" for name, answer in answers().items()) + "\n"
    if os.environ.get("STALLSCOPE_WRITE_EXPECTED"):
        EXPECTED.write_text(text, encoding="utf-8")
    assert text == EXPECTED.read_text(encoding="utf-8")


def test_the_sentence_of_the_first_story() -> None:
    _, evidence = HISTORIES["prestart hook ran out of GPU memory"]
    verdict = answer_of(evidence, tenant="default").verdict
    assert verdict.sentence == (
        "This request failed because the prestart hook `load_model` ran out of GPU memory 3.1 s after the worker had"
        " claimed it."
    )
    assert (verdict.evidence[0].what, verdict.evidence[0].text) == ("log_line", h.OOM_LINE)
