"""Which lines of the worker SDK are notes about itself, and which are somebody's evidence."""

from __future__ import annotations

import json

import pytest

from sdk_exporter.recorder.progress import without_progress

STATUS = "JobScaler.status | concurrency: 1; queue: 0; progress: 0"
TAKE = "rp_job | get_job: https://api.example/v2/e/job-take/w?gpu=NONE&job_in_progress=0"


def record(message: str, level: str = "DEBUG", **more: object) -> str:
    return json.dumps({"requestId": None, "message": message, "level": level, **more})


@pytest.mark.parametrize(
    "line",
    [
        record(STATUS),
        record(TAKE) + record(STATUS),  # two processes, one line
        record("Jobs in queue: 1", "INFO"),
        record("[batchId=b-1] Handling Job"),
        f"DEBUG  | {STATUS}",
        f"DEBUG  | {TAKE}",
        "DEBUG  | job-7-u1 | Job Queued",
        "INFO   | Jobs in progress: 3",
        "--- Starting Serverless Worker |  Version 1.12.0 ---",
        "stallscope: prestart hook 'load' failed (ValueError); requests in hand are failed and the worker exits",
    ],
)
def test_a_note_of_the_sdk_about_itself_goes(line: str) -> None:
    for end in ("\n", "\r\n"):
        assert without_progress(f"loading\n{line}{end}done\n".encode()) == b"loading\ndone\n"


@pytest.mark.parametrize(
    "line",
    [
        record("layer 7 of 80"),
        record(STATUS, "ERROR"),
        record(STATUS, more=1),
        record(STATUS) + "loading weights",  # another thread's words on the same line
        f"DEBUG  | {STATUS}loading weights",
        f"DEBUG  | {TAKE}loading weights",
        "DEBUG  | Handling Jobs of yesterday",
        "DEBUG  | layer 7 of 80",
        "WARN   | JobScaler.monitor_stop_signals | Stop channel could not be derived",
        "ERROR  | Failed to get job. | Error Type: ClientResponseError",
        "JobScaler.status | concurrency: 1; queue: 0; progress: 0",  # no level: somebody else wrote it
        "{",
        "{" * 5000,
        "\ufffd | " * 2000,
    ],
)
def test_whatever_else_stays(line: str) -> None:
    data = f"{line}\n".encode()
    assert without_progress(data) == data
    assert without_progress(data[:-1]) == data[:-1]


def test_bytes_that_are_no_text_stay() -> None:
    assert without_progress(b"\xff\xfe\x00\n\x80") == b"\xff\xfe\x00\n\x80"
