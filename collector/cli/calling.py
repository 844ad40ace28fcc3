"""What `run`, `status`, `health` and `cancel` share: an endpoint, the payload on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import select
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from collector.caller import CallerError, Endpoint, JobFailed, Request, Seen, Timing, Watcher
from collector.caller.errors import excerpt
from collector.caller.replies import read_object
from collector.caller.timing import span_of
from collector.caller.wire import NoReply, within
from collector.cli.client import fetch_answer, open_client
from collector.cli.explain import verdict_text
from collector.cli.failures import FAILED, UNREACHABLE, USAGE, CommandFailed

VERDICT_SECONDS: Final = 2.0
"""How long a server is given for the verdict of a request that ended badly."""
VERDICT_LOOK_SECONDS: Final = 0.25
TOLD_EVERY_SECONDS: Final = 30.0
"""How often a person is told that nothing has changed."""
EXIT_CODES: Final = {"usage_error": USAGE, "network_error": UNREACHABLE, "call_timeout": UNREACHABLE}
"""All other codes exit with 1."""

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Tell errors and notes as JSON, one line each.")(
        command
    )


class Teller(Watcher):
    """Tells stderr how it goes: notes always, progress to a terminal only."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._progress = not as_json and sys.stderr.isatty()
        self.wants_health = self._progress
        self._status: str | None = None
        self._told_at = 0.0

    def note(self, text: str) -> None:
        click.echo(json.dumps({"note": text}, ensure_ascii=False) if self._as_json else f"Note: {text}", err=True)

    def progress(self, text: str) -> None:
        if self._progress:
            click.echo(click.style(text, dim=True), err=True)

    def seen(self, seen: Seen, seconds: float) -> None:
        if seen.status == self._status and seconds - self._told_at < TOLD_EVERY_SECONDS:
            return
        self._told_at = seconds
        if self._status is None and seen.id is not None:
            self.progress(f"request {excerpt(seen.id)}")
        self._status = seen.status
        where = f" on {excerpt(seen.worker)}" if seen.worker and not seen.is_over else ""
        times = [
            f"{name} {span_of(value)}"
            for name, value in (("in the queue", seen.queue_seconds), ("ran", seen.run_seconds))
            if value is not None
        ]
        told = "; ".join([f"{excerpt(seen.status or 'no status')}{where} after {span_of(seconds)}", *times])
        self.progress(told)

    def health(self, body: bytes) -> None:
        workers = (read_object(body) or {}).get("workers")
        if isinstance(workers, dict):
            told = ", ".join(
                f"{count:g} {excerpt(name, 40)}" for name, count in workers.items() if isinstance(count, float)
            )
            self.progress(f"workers: {told}")


@contextmanager
def calling(context: click.Context, endpoint_id: str, teller: Teller) -> Iterator[Endpoint]:
    """An endpoint; what goes wrong with it leaves as a coded failure, its payload on stdout first."""
    try:
        with Endpoint(endpoint_id, timing=context.find_object(Timing), watcher=teller) as endpoint:
            quiet_exporter()
            yield endpoint
    except CallerError as error:
        if error.body is not None:
            print_payload(error.body)
        raise failure_of(error) from None


def quiet_exporter() -> None:
    """Spans that could not be sent are no news for a caller: keep OpenTelemetry's log lines off stderr."""
    # Loaded here: only this command line does it; a program that uses the library has its own logging.
    import logging

    log = logging.getLogger("opentelemetry")
    log.addHandler(logging.NullHandler())
    log.propagate = False


def print_payload(body: bytes) -> None:
    """The platform's answer, to the byte. A terminal gets a line end after it."""
    out = sys.stdout.buffer
    try:
        out.write(body)
        if sys.stdout.isatty() and not body.endswith(b"\n"):
            out.write(b"\n")
        out.flush()
    except BrokenPipeError:
        # Nobody reads any more. The rest of the command counts all the same, and Python must not fail at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def failure_of(error: CallerError) -> CommandFailed:
    """The failure as the command line tells it; with its verdict where a request ended badly."""
    failure = CommandFailed(
        str(error), error.code, retryable=error.retryable, exit_code=EXIT_CODES.get(error.code, FAILED)
    )
    if isinstance(error, JobFailed) and error.job_id:
        verdict, failure.below = fetch_verdict(error.job_id)
        failure.more = {} if verdict is None else {"verdict": verdict}
    return failure


def fetch_verdict(job_id: str) -> tuple[dict[str, Any] | None, str]:
    """The verdict of the server that the environment names, and the same for people: or None and why there is none.

    Takes two seconds at the most, and never raises.
    """
    found: list[dict[str, Any]] = []
    try:
        within(VERDICT_SECONDS, lambda: _await_verdict(job_id, found))
        why = ""
    except NoReply:
        why = f"the server did not answer in {VERDICT_SECONDS:g} s"
    except CommandFailed as failure:
        why = str(failure)
    except Exception as error:  # noqa: BLE001 - whatever the server answers, the command's own outcome stands
        why = f"the server's answer cannot be read ({type(error).__name__})"
    if not found:
        return None, f"No verdict: {why}"
    try:
        return found[-1], verdict_text(found[-1], heading="\nVerdict")
    except Exception as error:  # noqa: BLE001 - as above
        return None, f"No verdict: the server's answer cannot be read ({type(error).__name__})"


def _await_verdict(job_id: str, found: list[dict[str, Any]]) -> None:
    """Add verdicts to `found` until there is a final one, or the time is over. Raises CommandFailed."""
    deadline = time.monotonic() + VERDICT_SECONDS
    with open_client() as client:
        while True:
            try:
                answer = fetch_answer(client, job_id)
                found.append(answer["verdict"])
                if answer.get("final"):
                    return
            except CommandFailed as failure:
                # What worker and caller told last may still be on its way.
                if failure.code != "not_found" or time.monotonic() > deadline - 2 * VERDICT_LOOK_SECONDS:
                    raise
            if time.monotonic() > deadline:
                return
            time.sleep(VERDICT_LOOK_SECONDS)


def _confirmed(question: str) -> bool:
    """A person's yes. Looked for five times a second: Ctrl-C just before a blocking read would wait for a key."""
    click.echo(question, nl=False, err=True)
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        pass
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def offer_cancel(request: Request, teller: Teller) -> None:
    """After Ctrl-C: the request still runs. Ask a person whether to cancel it; Ctrl-C again leaves at once."""
    follow_up = (
        f"It goes on; cancel it with: stallscope cancel {shlex.quote(request.endpoint.id)} {shlex.quote(request.id)}"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        teller.note(f"request {request.id} was left. {follow_up}")
        return
    try:
        if not _confirmed(f"\nCancel request {request.id}? [y/N]: "):
            teller.note(follow_up)
            return
        seen = request.cancel(10)
        teller.note(f"request {request.id}: {excerpt(seen.status or 'no status')}")
    except CallerError as failure:
        teller.note(f"request {request.id} was not cancelled: {failure}")
    except KeyboardInterrupt:
        teller.note(follow_up)
