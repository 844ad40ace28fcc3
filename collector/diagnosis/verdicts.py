"""The catalogue of verdict codes: what each means, what it rests on, and what to do. `cause_entries` has the causes.

`docs/verdicts.md` is printed from here by `verdicts_page`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collector.diagnosis.answer import Fault, Retry
from collector.diagnosis.cause_entries import CAUSES, CauseEntry

__all__ = ["CAUSES", "VERDICTS", "CauseEntry", "VerdictEntry", "doc_of"]

DOC_PAGE: Final = "/docs/verdicts"


@dataclass(frozen=True, slots=True)
class VerdictEntry:
    """One verdict code: what happened to the request. `fault` and `retry` hold where the cause does not say better."""

    code: str
    title: str
    meaning: str
    needs: str
    fault: Fault
    retry: Retry
    advice: tuple[str, ...]
    example: str = ""


def _verdicts(*entries: VerdictEntry) -> dict[str, VerdictEntry]:
    return {entry.code: entry for entry in entries}


VERDICTS: Final = _verdicts(
    VerdictEntry(
        "completed",
        "Completed",
        "The handler returned and the platform took the result; or a block of `sdk_exporter.job()` ended well.",
        "A `job.deliver` that the platform accepted (2xx) for a run that did not fail; the end of such a block.",
        "unknown",
        "no",
        (),
        example="This request completed on worker `w1` at 12:00:02.1Z; the handler took 1.9 s.",
    ),
    VerdictEntry(
        "queued",
        "Waiting in the queue",
        "The caller sent the request and no worker has claimed it yet.",
        "`caller.request`, and no claim.",
        "unknown",
        "no",
        (),
        example="This request waits in the queue, 5.0 s so far; no worker has claimed it.",
    ),
    VerdictEntry(
        "running",
        "In progress",
        "A worker has claimed the request and is alive: starting up, running the handler or handing the result in.",
        "A claim, and records of the worker that are fresh.",
        "unknown",
        "no",
        (),
        example="This request is running on worker `w1`, 20 s so far.",
    ),
    VerdictEntry(
        "stopped",
        "Stopped as asked",
        "The platform signalled a stop for this request and the handler ended.",
        "`job.stop` with outcome `stopped`.",
        "caller_input",
        "yes",
        (),
        example=(
            "This request was stopped on worker `w1` as asked: the stop signal came at 12:00:03.0Z and the "
            "handler ended 10 ms later."
        ),
    ),
    VerdictEntry(
        "boot_crashed",
        "The worker crashed while starting",
        "The process ended before it called `start()`: it never asked for work, and the platform saw nothing of it.",
        "A `worker.boot.started` without its end, and the `worker.death` of that process; or a `worker.boot` that ended"
        " in an error. Seen under the launcher only.",
        "user_code",
        "no",
        (
            "Run the image by hand with the same environment: the crash is at import time, before the worker's loop.",
            "Move loading out of module level into a prestart hook, so that the failure reaches the caller.",
        ),
        example=(
            "This request waits because worker `w3` could not import a Python module 0.7 s after its start, "
            "before it asked for work; no worker has claimed the request. 2 workers of the endpoint have ended so "
            "since it was sent."
        ),
    ),
    VerdictEntry(
        "boot_hung",
        "The worker hung while starting",
        "The process started and never called `start()`: no crash, no claim.",
        "A `worker.boot.started` that stays without an end; the process still lives, or was ended from outside.",
        "user_code",
        "maybe",
        (
            "Look at the last line that the worker wrote: the call after it does not return.",
            "Move downloads and model loading out of module level into a prestart hook with a time bound.",
        ),
        example=(
            "This request waits because worker `w2` hung while it was starting for 3 min 20 s, until it was ended "
            "from outside (SIGTERM); it never asked for work."
        ),
    ),
    VerdictEntry(
        "fitness_failed",
        "A fitness check failed",
        "The worker checked itself before taking work, found itself unfit and left.",
        "A `worker.fitness_check` that ended in an error.",
        "platform",
        "maybe",
        ("Read what the check measured; if the host is at fault, the next worker on another host will pass.",),
        example=(
            "This request failed because the fitness check `gpu` found no usable GPU 1.0 s after the worker had "
            "claimed it; the worker left."
        ),
    ),
    VerdictEntry(
        "init_failed",
        "The initializer failed",
        "The `initializer` given to `start()` raised. Every request in hand fails with it.",
        "A failed `prestart` whose kind is `initializer`.",
        "user_code",
        "maybe",
        ("Fix what the initializer does; requests only run after it has returned.",),
        example=(
            "This request failed because the initializer `setup` refused its configuration 0.5 s after the worker "
            "had claimed it."
        ),
    ),
    VerdictEntry(
        "init_timeout",
        "The initializer took too long",
        "The `initializer` did not return within `init_timeout`.",
        "A `prestart` of kind `initializer` that ended by its own bound.",
        "model_config",
        "maybe",
        ("Raise `init_timeout`, or make the load faster: weights in the image or on a volume, not from the network.",),
        example=(
            "This request failed because the initializer `setup` did not finish within its time bound of 2.0 s: "
            "it was still running 2.0 s after the phase had begun, 1.0 s after the worker had claimed it."
        ),
    ),
    VerdictEntry(
        "prestart_failed",
        "A prestart hook failed",
        "A hook that must succeed before the first request raised. Every request in hand fails with it.",
        "A failed `prestart` or `prestart.hook`, and a claim of the same worker boot.",
        "user_code",
        "maybe",
        ("Fix what the hook does; requests only run after all hooks have succeeded.",),
        example=(
            "This request failed because the prestart hook `load_model` ran out of GPU memory 3.1 s after the "
            "worker had claimed it."
        ),
    ),
    VerdictEntry(
        "prestart_timeout",
        "A prestart hook took too long",
        "The prestart phase did not end within its bound. The hook that was running then is named.",
        "A `prestart` that ended by its own bound.",
        "model_config",
        "maybe",
        (
            "Raise the bound of the prestart phase, or make the named hook faster: weights in the image or on a volume,"
            " not from the network.",
        ),
        example=(
            "This request failed because the prestart hook `fetch_weights` did not finish within its time bound "
            "of 5.0 s: it was still running 5.0 s after the phase had begun, 4.0 s after the worker had claimed "
            "it."
        ),
    ),
    VerdictEntry(
        "handler_failed",
        "The handler raised an exception",
        "The handler raised; the caller gets the error.",
        "A `job.run` that ended in an error.",
        "user_code",
        "maybe",
        ("Fix the handler where the traceback points.",),
        example="This request failed because the handler raised `KeyError: 'prompt'` 0.2 s after it had begun.",
    ),
    VerdictEntry(
        "handler_returned_error",
        "The handler returned an error",
        "The handler did not raise: it returned a dict with `error`, which the platform counts as failed.",
        "A `job.run` marked `stallscope.handler.returned_error`.",
        "user_code",
        "maybe",
        ("The handler chose to fail this request: read the text that it returned.",),
        example=(
            "This request failed because the handler returned an error 0.2 s after it had begun: “no such style: oil”."
        ),
    ),
    VerdictEntry(
        "generator_failed",
        "The generator handler raised in mid-stream",
        "A generator handler raised after it had begun. Chunks already sent stay sent; an aggregate is dropped.",
        "A `job.run` of kind `generator` that ended in an error.",
        "user_code",
        "maybe",
        ("Fix the generator where the traceback points; callers must expect a stream that ends in an error.",),
        example=(
            "This request failed because the generator handler had a CUDA call fail 1.9 s after it had begun, "
            "after 3 chunks."
        ),
    ),
    VerdictEntry(
        "handler_exited",
        "The handler ended the worker",
        "The process exited while the handler ran (`sys.exit`, `os._exit`, KeyboardInterrupt). No result can come.",
        "`job.run.started` without an end, or ended by SystemExit, and a `worker.death` with an exit status.",
        "user_code",
        "maybe",
        ("Raise an exception instead of ending the process: the caller then gets an error at once.",),
        example=(
            "This request got no answer because its handler ended worker `w1`, which exited with status 7, 1.9 s "
            "into the handler."
        ),
    ),
    VerdictEntry(
        "self_cancelled",
        "The handler cancelled itself",
        "The handler raised CancelledError though nobody had asked for a stop. The worker SDK takes that for a stop and"
        " sends nothing: the request stays in progress until its time limit.",
        "A `job.run` that ended with CancelledError, and no `job.stop`.",
        "user_code",
        "maybe",
        ("Catch CancelledError of inner tasks (time limits, task groups) and raise an ordinary exception.",),
        example=(
            "This request got no answer because its handler raised CancelledError 1.9 s after it had begun, "
            "though nobody had asked for a stop; worker `w1` sends nothing for such a request."
        ),
    ),
    VerdictEntry(
        "stop_swallowed",
        "The handler swallowed the stop",
        "The stop reached the handler, which caught CancelledError and went on to return a result.",
        "`job.stop` with outcome `swallowed`.",
        "user_code",
        "no",
        ("Re-raise CancelledError after cleaning up: `except asyncio.CancelledError: …; raise`.",),
        example=(
            "This request was stopped on worker `w1`, but its handler swallowed the stop: it caught "
            "CancelledError and ended 10 ms later as if nothing had happened."
        ),
    ),
    VerdictEntry(
        "stop_ignored",
        "The handler ignored the stop",
        "The stop was signalled and the handler runs on; it holds its slot, and the GPU is still paid for.",
        "`job.stop` with outcome `ignored`, or a stop without an outcome while the run goes on.",
        "user_code",
        "no",
        ("Let cancellation through: no bare `except`, no shielded task, no blocking call in an async handler.",),
        example=(
            "This request was cancelled, and its handler ignored the stop: it runs on 27 s later and still holds "
            "its slot."
        ),
    ),
    VerdictEntry(
        "stop_late",
        "The stop came too late",
        "The stop was signalled but could not land before the handler had ended: a blocking call held the event loop.",
        "`job.stop` with outcome `late`.",
        "user_code",
        "no",
        ("Move blocking work off the event loop (`asyncio.to_thread`), so that a stop can reach the handler.",),
        example=(
            "This request was stopped on worker `w1` too late: the stop signal of 12:00:01.0Z could not land "
            "before the handler had ended, 5.1 s later; a blocking call held the event loop."
        ),
    ),
    VerdictEntry(
        "stop_cleanup_failed",
        "Cleaning up after the stop failed",
        "The handler was stopped and raised another error while it cleaned up.",
        "`job.stop` with outcome `cleanup_failed`.",
        "user_code",
        "no",
        ("Make the cleanup code safe to run half-way through; then re-raise CancelledError.",),
        example=(
            "This request was stopped on worker `w1`, and its handler raised `AttributeError: 'NoneType' object "
            "has no attribute 'close'` while it cleaned up, 0.2 s after the stop signal."
        ),
    ),
    VerdictEntry(
        "stop_signal_lost",
        "The stop signal was lost",
        "The request was cancelled, but the signal never reached its handler, which ran on.",
        "The caller saw the request cancelled, and no `job.stop` landed; or `job.stop` with outcome `unknown_job`.",
        "platform",
        "no",
        ("Look at the worker's stop channel: a dead, disabled or malformed channel loses every signal.",),
        example=(
            "This request was cancelled, but the stop signal never reached its handler on worker `w1`: the "
            "handler ran on for 25 s. The worker's stop channel was violating."
        ),
    ),
    VerdictEntry(
        "cancelled_in_queue",
        "Cancelled while waiting",
        "The request was cancelled before any worker had claimed it.",
        "The caller saw the request cancelled, and no claim.",
        "caller_input",
        "yes",
        (),
        example="This request was cancelled at 12:00:09.0Z while it waited in the queue; no worker claimed it.",
    ),
    VerdictEntry(
        "stranded_claim",
        "Claimed, then left without a worker",
        "A worker claimed the request and never ran it: it shut down, died or fell silent first. The platform shows the"
        " request in progress until its time limit.",
        "A claim without a run, and the worker's shutdown or death, or its silence.",
        "platform",
        "yes",
        (
            "Send the request again: its handler never ran.",
            "Set an execution time limit, so that a stranded request ends and is noticed.",
        ),
        example=(
            "This request was stranded: worker `w1` claimed it at 12:00:00.0Z and never ran it, because it had "
            "received `SIGTERM` 2.0 s before the claim; it exited with status 0, 8.0 s after the worker had "
            "claimed it."
        ),
    ),
    VerdictEntry(
        "worker_killed",
        "The worker was killed in mid-request",
        "The process was killed (SIGKILL), or fell silent for good, while the handler ran. No result can come.",
        "`job.run.started` without an end, and a `worker.death` by SIGKILL, or silence.",
        "platform",
        "maybe",
        ("Look at memory first: the kernel's out-of-memory killer is the usual sender of SIGKILL.",),
        example="This request got no answer because worker `w1` was killed by SIGKILL, 4.9 s into the handler.",
    ),
    VerdictEntry(
        "worker_crashed",
        "The worker crashed in mid-request",
        "The process died by a signal, or by an error outside the handler, while the handler ran.",
        "`job.run.started` without an end, and a `worker.death` by another signal, or by an uncaught error.",
        "dependency",
        "maybe",
        ("Look at the last lines that the process wrote, and at the native library named there.",),
        example=(
            "This request got no answer because worker `w1` died of SIGSEGV (it crashed in native code), 4.9 s "
            "into the handler."
        ),
    ),
    VerdictEntry(
        "worker_hung",
        "The worker is alive but stands still",
        "The process lives and its recorder reports, but its Python threads or event loop do not move.",
        "`worker.heartbeat` whose ages of process, loop or progress keep growing.",
        "user_code",
        "maybe",
        (
            "Take a stack dump of the process (`py-spy dump`) to see the call that does not return.",
            "Set an execution time limit, so that a hanging request ends and is noticed.",
        ),
        example=(
            "This request makes no progress: worker `w1` is alive but stands still; no thread of its Python has "
            "moved for 3 min 10 s."
        ),
    ),
    VerdictEntry(
        "worker_replaced",
        "The worker was taken away in mid-request",
        "The platform replaced or drained the worker while the request was in its hands.",
        "A `worker.shutdown` during the run and a clean exit, or the platform's own word that the worker is stale.",
        "platform",
        "yes",
        ("Send the request again, and give workers time to drain before a new release replaces them.",),
        example=(
            "This request got no answer because worker `w1` was told to leave and exited with status 0, 12 s into "
            "the handler."
        ),
    ),
    VerdictEntry(
        "backend_dead",
        "The engine behind the handler died",
        "A child process that the handler depends on ended, while the worker itself lives on.",
        "`backend.death` during the run.",
        "dependency",
        "maybe",
        ("Let the handler notice that its engine is gone and raise, or end the worker, so that it is replaced.",),
        example=(
            "This request waits for an engine that is gone: the child process `llama-server` died of SIGSEGV 1 "
            "min ago, and the handler on worker `w1` runs on."
        ),
    ),
    VerdictEntry(
        "result_lost",
        "The result was lost on its way",
        "The handler ended, but the platform did not take the result. The worker's log says `Finished.` all the same.",
        "`job.deliver` refused or failed on the last try; or the worker's end between run and delivery.",
        "platform",
        "yes",
        ("Store large or precious results yourself and return a link.",),
        example=(
            "This request got no answer because its result was lost on the way: the platform answered HTTP 400 at "
            "12:00:02.1Z, and worker `w1` gave up."
        ),
    ),
    VerdictEntry(
        "result_undeliverable",
        "The result could not be sent",
        "The handler returned something that cannot be encoded; nothing was sent, and no retry would change it.",
        "`job.deliver` that failed before any request was made.",
        "user_code",
        "no",
        ("Return plain JSON: dicts, lists, strings, finite numbers. Encode bytes and arrays yourself.",),
        example=(
            "This request got no answer because the handler returned something that cannot be encoded (TypeError: "
            "Object of type ndarray is not JSON serializable); worker `w1` sent nothing and took the next "
            "request."
        ),
    ),
    VerdictEntry(
        "result_expired",
        "The result had expired",
        "The request is over and the platform no longer holds its result.",
        "The caller's poll found nothing (404) for a request that had run.",
        "caller_input",
        "yes",
        ("Fetch results sooner, or send them to a webhook or a store of your own.",),
        example=(
            "The result of this request had expired: the handler returned at 12:00:02.0Z, and the caller's poll "
            "at 13:06:40.0Z found nothing any more."
        ),
    ),
    VerdictEntry(
        "claim_lost_on_intake",
        "The claim was lost on intake",
        "The platform handed the request out, and the worker could not read the answer: it was never queued there.",
        "A claim whose intake failed (malformed answer or batch).",
        "platform",
        "yes",
        ("Send the request again. Look for a proxy between worker and platform that rewrites answers.",),
        example=(
            "This request was lost on intake: the platform handed it to worker `w1` at 12:00:00.0Z, which could "
            "not read the answer (content type text/html)."
        ),
    ),
    VerdictEntry(
        "empty_input_dropped",
        "The request had no input",
        "The worker SDK drops a request without `input` and never answers for it.",
        "A claim that was dropped for its missing `input`.",
        "caller_input",
        "no",
        ('Send an `input` that is not empty, for example `{"input": {"ping": true}}`.',),
        example=(
            "This request was dropped because it had no `input`: worker `w1` claimed it at 12:00:00.0Z and will "
            "never answer for it."
        ),
    ),
    VerdictEntry(
        "queue_stalled",
        "Nobody takes the request",
        "No worker has claimed the request, and none is about to. `queue_reason` says why.",
        "`caller.request` without a claim: at once where the platform's own records or the workers' tell why, after 15"
        " minutes in any case.",
        "capacity",
        "maybe",
        ("Look at the endpoint's workers: maximum of zero, throttled, or none that polls.",),
        example=(
            "This request has waited 20 min and no worker has claimed it: possibly because no worker of its "
            "endpoint has started."
        ),
    ),
    VerdictEntry(
        "cold_start_slow",
        "The worker is starting slowly",
        "The request waits for a worker's start, which takes long.",
        "A claim, and a `prestart.started` without an end for 5 minutes; or no claim, and a worker that the platform"
        " shows as initializing for longer than is normal for the endpoint.",
        "model_config",
        "maybe",
        ("Keep weights in the image or on a volume; keep a worker warm; give the prestart phase a bound.",),
        example=(
            "This request waits for the start of worker `w1`: the prestart hook `load_model` has been running for "
            "6 min 1 s, and no end of it was told; no time bound is set."
        ),
    ),
    VerdictEntry(
        "execution_timeout",
        "The request ran into its time limit",
        "The platform ended the request because it had run longer than its execution time limit.",
        "The caller saw TIMED_OUT, and a claim.",
        "model_config",
        "maybe",
        ("Raise the execution time limit, or do less in one request.",),
        example=(
            "This request was ended by its time limit; the caller saw TIMED_OUT at 12:10:00.0Z. The handler had "
            "run for 10 min."
        ),
    ),
    VerdictEntry(
        "expired",
        "The request expired in the queue",
        "The request was not claimed before its time to live ran out.",
        "The caller saw TIMED_OUT, and no claim.",
        "capacity",
        "yes",
        ("Give the endpoint more workers, or the request a longer time to live.",),
        example=(
            "This request expired in the queue: the caller saw TIMED_OUT at 12:10:00.0Z, and no worker had claimed it."
        ),
    ),
    VerdictEntry(
        "pending_returned",
        "A pending reply was taken for a result",
        "The caller's client stopped waiting and returned a reply that says that the request is not finished.",
        "A `caller.request` that ended while the status was IN_QUEUE or IN_PROGRESS.",
        "dependency",
        "no",
        ("Poll `/status` until the status is final, or use a client that does.",),
        example=(
            "This request had not finished when the caller's client gave up waiting at 12:01:30.0Z: it returned a "
            "pending reply (IN_QUEUE) as if it were the result."
        ),
    ),
    VerdictEntry(
        "unknown",
        "Not known",
        "What is known of the request does not tell what became of it.",
        "Nothing that decides.",
        "unknown",
        "maybe",
        (),
        example=(
            "What became of this request is not known: no worker and no caller told of it. A span `POST "
            "/generate` of it ended in an error."
        ),
    ),
)


def doc_of(code: str) -> str:
    """Address of the explanation of a verdict code."""
    return f"{DOC_PAGE}#{code}"
