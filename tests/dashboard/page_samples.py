"""Answers as the diagnosis makes them, written out: the data that page tests render."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from collector.diagnosis.answer import (
    Answer,
    AnswerSpan,
    AnswerSpanEvent,
    Attempt,
    EvidenceItem,
    Group,
    LogTail,
    Missing,
    Phase,
    Revision,
    Verdict,
    Wasted,
)

START = datetime(2026, 5, 4, 3, 12, 5, 120_000, tzinfo=timezone.utc)
NOW = START + timedelta(minutes=7)
BOOT = "5f0c1f0f9d3b4c8e9a77d2b1c0a4e6f8"
OOM_LINE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB."
    " GPU 0 has a total capacity of 23.64 GiB of which 412.00 MiB is free."
)
SENTENCE = (
    "This request failed because the prestart hook load_model ran out of GPU memory"
    " 3.1 s after the worker had claimed it."
)


def at(seconds: float) -> datetime:
    """A moment of the sample's life, in seconds after the caller sent it."""
    return START + timedelta(seconds=seconds)


OOM_TAIL = "\n".join(
    [
        "--- Starting Serverless Worker |  Version 1.12.0 ---",
        '{"requestId": null, "message": "Jobs in queue: 1", "level": "INFO"}',
        "loading checkpoint shards: \x1b[32m 50%\x1b[0m|█████     | 2/4 [00:01<00:01,  1.43it/s]",
        "HF_TOKEN=[redacted:hf_token]",
        "Traceback (most recent call last):",
        '  File "/app/handler.py", line 21, in load_model',
        '    model = AutoModelForCausalLM.from_pretrained(NAME).to("cuda")',
        '  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1355, in to',
        "    return self._apply(convert)",
        OOM_LINE,
        "prestart hook load_model failed; 1 request in hand is failed with it",
        "",
    ]
)

OOM_VERDICT = Verdict(
    code="prestart_failed",
    cause="cuda_oom",
    title="Prestart hook ran out of GPU memory",
    sentence=SENTENCE,
    fault="model_config",
    retry="no",
    confidence="certain",
    evidence=(
        EvidenceItem("worker", "log_line", OOM_LINE, at(5.2), "00000000000000a3", 10),
        EvidenceItem("worker", "exception", "OutOfMemoryError: CUDA out of memory.", at(5.2), "00000000000000a4"),
        EvidenceItem("worker", "event", "prestart hook load_model ended with an error after 3.1 s", at(5.2), "ffff"),
        EvidenceItem("collector", "absence", "no job.run was ever told for this request", None, None),
    ),
    advice=(
        "Use a GPU with more memory: 23.64 GiB were there, and the weights alone did not fit.",
        "Or load the weights in a smaller type (bfloat16, 8 bit), or lower gpu_memory_utilization.",
        "Trying again on the same kind of GPU will fail the same way.",
    ),
    missing=(
        Missing("GPU memory before the allocation", "STALLSCOPE_HEARTBEAT_SECONDS=5"),
        Missing("What the platform knew of the queue", "STALLSCOPE_PLATFORM_POLL=on"),
    ),
    doc="/docs/verdicts#prestart_failed",
)

OOM = Answer(
    job_id="3f6c2d1e-7c0e-4f6e-9a43-c1a0fb3d2b11-u1",
    tenant="default",
    endpoint_id="llama-70b-chat",
    worker_ids=("w7k2m9x4hq1p0z",),
    state="failed",
    final=True,
    revision=2,
    verdict=OOM_VERDICT,
    attempts=(Attempt(1, "w7k2m9x4hq1p0z", BOOT, at(2.1), "failed", OOM_VERDICT),),
    history=(
        Revision(at(2.2), "running", "the worker claimed it"),
        Revision(at(5.3), "prestart_failed", "the prestart hook's end arrived"),
    ),
    phases=(
        Phase("queued", 1, None, at(0), at(2.1), 2.1, True, "caller"),
        Phase("claimed", 1, "w7k2m9x4hq1p0z", at(2.1), at(5.2), 3.1, True, "worker"),
        Phase("boot", 1, "w7k2m9x4hq1p0z", at(-4.2), at(1.95), 6.15, True, "worker"),
        Phase("prestart", 1, "w7k2m9x4hq1p0z", at(1.96), at(5.2), 3.24, True, "worker"),
        Phase("gated", 1, "w7k2m9x4hq1p0z", at(2.12), at(5.2), 3.08, True, "worker"),
        Phase("deliver", 1, "w7k2m9x4hq1p0z", at(5.22), None, None, False, "worker"),
    ),
    log_tail=LogTail(OOM_TAIL, len(OOM_TAIL.encode()), 5120, 0, 1, False, "worker"),
    group=Group("f3a91c77", 12, at(-86400 * 2)),
    wasted=Wasted(caller_seconds=5.4, gpu_seconds=9.4),
    spans=(
        AnswerSpan(
            "00000000000000a1",
            "0" * 31 + "1",
            None,
            "worker.boot",
            at(-4.2),
            at(1.95),
            "ok",
            {"faas.coldstart": True, "stallscope.boot.import_seconds": 4.81},
        ),
        AnswerSpan("00000000000000a2", "0" * 31 + "2", None, "job.claimed", at(2.1), at(5.2), "error", {}),
        AnswerSpan(
            "00000000000000a3",
            "0" * 31 + "1",
            "00000000000000a1",
            "prestart",
            at(1.96),
            at(5.2),
            "error",
            {"stallscope.log.scope": "worker", "stallscope.log.bytes_seen": 9007199254740993},
        ),
        AnswerSpan(
            "00000000000000a4",
            "0" * 31 + "1",
            "00000000000000a3",
            "prestart.hook",
            at(1.97),
            at(5.2),
            "error",
            {"stallscope.prestart.hook": "load_model", "error.type": "torch.OutOfMemoryError"},
            (
                AnswerSpanEvent(
                    "exception",
                    at(5.2),
                    {"exception.type": "torch.OutOfMemoryError", "exception.message": OOM_LINE},
                ),
            ),
        ),
        AnswerSpan("00000000000000a5", "0" * 31 + "2", None, "job.deliver.started", at(5.22), None, "unset", {}),
    ),
)

COMPLETED = Answer(
    job_id="good-1",
    tenant="default",
    endpoint_id="llama-70b-chat",
    worker_ids=("w1",),
    state="completed",
    final=True,
    revision=1,
    verdict=Verdict(
        code="completed",
        cause="no_failure",
        title="Completed",
        sentence="This request completed 1.2 s after it was claimed.",
        fault="unknown",
        retry="no",
        confidence="certain",
        doc="/docs/verdicts#completed",
    ),
    attempts=(),
    phases=(Phase("run", 1, "w1", at(0), at(1.2), 1.2, True, "worker"),),
)

RUNNING = replace(
    COMPLETED,
    job_id="open-1",
    state="running",
    final=False,
    verdict=replace(
        COMPLETED.verdict,
        code="running",
        sentence="This request is running; its last sign of life is 4 s old.",
        doc="/docs/verdicts#running",
    ),
    phases=(
        Phase("claimed", 1, "w1", at(0), at(0.1), 0.1, True, "worker"),
        Phase("run", 1, "w1", at(0.1), None, None, False, "worker"),
    ),
)

KILLED_VERDICT = Verdict(
    code="worker_killed",
    cause="unknown",
    title="Worker killed",
    sentence="This request was lost: its worker went silent 41 s into the handler, as after a kill.",
    fault="platform",
    retry="yes",
    confidence="likely",
    inferred=True,
    evidence=(EvidenceItem("collector", "absence", "no heartbeat for 45 s, one is due every 15 s", at(90), None),),
    advice=("Send it again; nothing of this request is left in the platform.",),
    missing=(Missing("The handler's last output", "STALLSCOPE_HANDLER_LOGS=on"),),
    doc="/docs/verdicts#worker_killed",
)

KILLED = replace(
    OOM,
    job_id="killed-1",
    worker_ids=("w2",),
    state="lost",
    final=False,
    revision=3,
    verdict=KILLED_VERDICT,
    attempts=(Attempt(1, "w2", BOOT, at(1), "lost", KILLED_VERDICT),),
    phases=(
        Phase("queued", 1, None, None, at(1), None, False, "platform"),
        Phase("claimed", 1, "w2", at(1), at(1.1), 0.1, True, "worker"),
        Phase("boot", 1, "w2", at(-7200), at(-7190), 10.0, True, "worker"),
        Phase("run", 1, "w2", at(1.1), None, None, False, "worker"),
    ),
    log_tail=None,
    group=None,
    wasted=Wasted(caller_seconds=41.0, gpu_seconds=41.0, seconds_since_cancel=12.0, slot_held=True),
    spans=(),
)
