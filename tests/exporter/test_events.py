"""Events and ledger in this process, read back from the file that they are written to."""

from __future__ import annotations

import asyncio
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

from sdk_exporter import events, ledger, tee
from sdk_exporter.contract import REDACTED, Key, SpanName
from sdk_exporter.hooks import handler, traces

Read = Callable[[], list[dict[str, Any]]]


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


def test_an_exception_is_told_without_secrets_and_within_its_bounds(written: Read) -> None:
    secret = "hf_" + "Ab3" * 12
    attempt = ledger.claim("job-1")
    for error in (ValueError(f"token={secret} " + "x" * 100_000), Hostile()):
        events.begin(SpanName.JOB_RUN, attempt=attempt).end(error=error)
    first, second = [record for record in written() if record["k"] == "end"]
    assert secret not in str(written())
    assert REDACTED in first["x"]["message"]
    assert len(first["x"]["message"].encode()) <= 4096
    assert len(first["x"]["stacktrace"].encode()) <= 16_384
    assert second["x"]["type"].endswith("test_events.Hostile")
    assert second["x"]["message"] == "<message could not be read>"
    assert first["a"] == {Key.ERROR_TYPE: "ValueError"}


def test_a_secret_at_the_cut_of_a_long_value_is_not_left_in_part(written: Read) -> None:
    secret = "hf_" + "Ab3" * 12
    for size in range(16_384 - 60, 16_384, 7):
        events.point(SpanName.JOB_RUN, {Key.PRESTART_HOOK: "x " * (size // 2) + secret + " tail" * 2000})
    assert "hf_A" not in str(written())
    assert all(len(record["a"][Key.PRESTART_HOOK].encode()) <= 16_384 for record in written())


def test_a_span_ends_once_and_hangs_from_the_first_of_its_attempt(written: Read) -> None:
    attempt = ledger.claim("job-1")
    events.point(SpanName.JOB_CLAIMED, attempt=attempt)
    run = events.begin(SpanName.JOB_RUN, {"absent": None}, attempt=attempt)
    run.end()
    run.end(error=ValueError("too late"))
    ledger.release(attempt, "delivered")
    ledger.release(attempt, "stopped")
    claimed, started, ended, released = written()
    assert claimed["li"] == ["a" * 32, "c" * 16]
    assert [record["pa"] for record in (started, ended)] == [claimed["id"]] * 2
    assert {record["tr"] for record in (claimed, started, ended)} == {attempt.trace_id}
    assert (started["id"], started["a"], ended["s"], released["o"]) == (ended["id"], {}, "ok", "delivered")
    assert ledger.ids() == []


def test_hostile_ids_are_kept_verbatim_up_to_their_bound(written: Read) -> None:
    for job_id in ("a/b%2F\"'<script>", "\ud800lone", "x" * 5000):
        attempt = ledger.claim(events.job_id_text(job_id))
        events.hand(attempt)
    ids = [record["j"] for record in written()]
    assert ids[0] == "a/b%2F\"'<script>"
    assert ids[1] == "\ufffdlone"
    assert len(ids[2].encode()) == 1024


async def test_the_current_job_follows_tasks_and_threads_of_asyncio(written: Read) -> None:
    attempt = ledger.claim("job-1")
    token = events.current.set(attempt)
    seen = await asyncio.gather(asyncio.to_thread(events.current.get), asyncio.create_task(_current()))
    events.current.reset(token)
    assert seen == [attempt, attempt]
    assert events.current.get() is None


async def _current() -> Any:
    return events.current.get()


def test_a_line_of_a_plain_thread_is_the_workers_and_no_jobs(written: Read) -> None:  # A11
    told = tee.Tee("stdout", handler_logs=True).told
    attempt = ledger.claim("job-1")
    token = events.current.set(attempt)
    thread = threading.Thread(target=told, args=("from a thread\n",))
    thread.start()
    thread.join()
    told("from the job\n")
    events.current.reset(token)
    assert [(record["b"], record.get("j")) for record in written()] == [
        ("from a thread\n", None),
        ("from the job\n", "job-1"),
    ]


def test_a_trace_is_formatted_without_frames_of_ours(written: Read) -> None:
    """Where the interpreter puts them back: what the SDK sends is the same as without us."""

    def users(_job: object) -> None:
        raise ValueError("no")

    def formatted(called: Callable[[object], Any]) -> str:
        try:
            called({})
        except ValueError as error:
            ours = error.__traceback__
            assert ours is not None
            if called is not users:  # as before Python 3.11
                frame = types.TracebackType(ours.tb_next, stand_in_frame(called), 0, 1)
                error.__traceback__ = types.TracebackType(frame, ours.tb_frame, ours.tb_lasti, ours.tb_lineno)
            return traces.Traces().format_exc()
        return ""

    watched = handler.called(users, ledger.claim("job-1"))
    assert formatted(watched) == formatted(users)
    assert traces.Traces().print_exc is traceback.print_exc


def stand_in_frame(called: Callable[[object], Any]) -> types.FrameType:
    """A frame of the stand-in's file."""
    code = compile("import sys; frame = sys._getframe()", called.__code__.co_filename, "exec")
    found: dict[str, types.FrameType] = {}
    exec(code, found)  # noqa: S102
    return found["frame"]
