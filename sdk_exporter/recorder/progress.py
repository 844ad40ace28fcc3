"""What the worker SDK prints about its own progress while user code starts: claims, polls, its counts.

At its usual level (DEBUG) it writes several such lines for each poll, in between what a prestart hook prints; they are
no evidence about the hook, and in a tail of 16 KiB they take its place. Warnings and errors are no progress, and what a
user writes with the SDK's logger has other words: both stay.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_LEVELS: Final = ("DEBUG", "INFO", "TRACE")
_PLAIN: Final = re.compile(rf"(?:{'|'.join(_LEVELS)}) *\| ")
# Whole messages, to their last word: a thread that prints at the same time may have its words behind them.
_NOTES: Final = (
    r"JobScaler\.status \| concurrency: \d+; queue: \d+; progress: \d+",
    r"JobScaler\.set_scale \| New concurrency set to: \d+",
    r"JobScaler\.get_jobs \| (?:Queue is full\. Retrying soon|Starting job acquisition|No jobs acquired"
    r"|Too many requests\. Debounce for 5 seconds|Request was cancelled|Job acquisition timed out\. Retrying)\.",
    r"JobScaler\.monitor_stop_signals \| (?:Request was cancelled|Stop poll timed out\. Retrying)\.",
    r"JobScaler\.stop_job \| No in-progress job for \S+\.",
    r"rp_job \| get_job: \S+&job_in_progress=[01]",
    r"rp_job \| Response: \w+ \d+",
    r"rp_job \| Received (?:204 status, no jobs\.|400 status, expected when FlashBoot is enabled\.|Job\(s\))",
    r"rp_job \| No content to parse\.",
    r"Jobs in (?:queue|progress): \d+",
    r"Job Queued|Handling Job|Results sent\.|Finished\.|Finished Job",
    r"Heartbeat Sent \| URL: \S+ \| Status: \d+",
    r"Kill worker\.|Received shutdown signal: \d+\.",
    r"Registered fitness check: \w+|Executing fitness check: \w+|Fitness check passed: \w+ \([\d.]+ms\)",
    r"All fitness checks passed\. \([\d.]+ms\)|Running \d+ fitness check\(s\)\.\.\.",
    r"No fitness checks registered, skipping\.",
    r"GPU fitness check auto-registration disabled via environment",
    r"System fitness checks disabled via environment \(RUNPOD_SKIP_AUTO_SYSTEM_CHECKS\)",
)
_MESSAGE: Final = re.compile(
    # Of a request, in plain form: its id.
    rf"(?:[^|\s]{{1,1024}} \| )?(?:\[batchId=[^\]]*\] )?(?:{'|'.join(_NOTES)})"
)
_BANNER: Final = re.compile(r"--- Starting Serverless Worker \| .* ---")
_OURS: Final = "stallscope: "
_DECODER: Final = json.JSONDecoder()


def without_progress(data: bytes) -> bytes:
    """`data` without whole lines of that kind, and without this exporter's own."""
    return b"".join(line for line in data.splitlines(keepends=True) if not _is_progress(line))


def _is_progress(line: bytes) -> bool:
    text = line.decode("utf-8", "replace").strip()
    if text.startswith(("{", _OURS)):
        return text.startswith(_OURS) or _are_records(text)
    level = _PLAIN.match(text)
    if level is None:
        return _BANNER.fullmatch(text) is not None
    return _MESSAGE.fullmatch(text, level.end()) is not None


def _are_records(text: str) -> bool:
    """Two processes may write their records on one line."""
    position = 0
    while position < len(text):
        try:
            record, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return False
        if not _is_record(record):
            return False
    return True


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or set(record) != {"requestId", "message", "level"}:
        return False
    message = record["message"]
    return record["level"] in _LEVELS and isinstance(message, str) and _MESSAGE.fullmatch(message) is not None
