"""`stallscope run`: submit a request, wait for its end, print what came out."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from collector.caller.inputs import WRITTEN_BYTES, input_bytes, input_notes
from collector.caller.timing import Budget
from collector.cli.calling import Teller, calling, json_option, offer_cancel, print_payload
from collector.cli.durations import duration_option
from collector.cli.failures import INTERRUPTED, USAGE, CommandFailed


@click.command()
@click.argument("endpoint")
@click.option("--input", "literal", metavar="JSON", help="The input, a JSON object.")
@click.option("--input-file", metavar="FILE", type=click.Path(allow_dash=True), help="Read it from a file; - is stdin.")
@click.option(
    "--wait",
    metavar="DURATION",
    default="5m",
    show_default=True,
    callback=duration_option,
    help="Longest total wait, of the submission, every call and every pause together.",
)
@click.option("--no-wait", is_flag=True, help="Submit, print the answer and leave; the same as --wait 0.")
@click.option(
    "--queue-limit",
    metavar="DURATION",
    default="15m",
    show_default=True,
    callback=duration_option,
    help="Cancel the request when it is still queued so long after its submission; 0 never does.",
)
@json_option
@click.pass_context
def run(
    context: click.Context,
    endpoint: str,
    literal: str | None,
    input_file: str | None,
    wait: float,
    queue_limit: float,
    *,
    no_wait: bool,
    as_json: bool,
) -> int:
    """Send a request to ENDPOINT, wait for its end, print the platform's answer byte for byte.

    The answer is on stdout whether the request ended well or badly; progress, notes, errors and the verdict of a bad
    end are on stderr. Exits 0 for COMPLETED (or once submitted, with --no-wait), 1 for any other end and when the wait
    is over.
    """
    if no_wait and wait and context.get_parameter_source("wait") is not ParameterSource.DEFAULT:
        raise click.UsageError("--no-wait and --wait exclude each other")
    if no_wait:
        wait = 0.0
    teller = Teller(as_json=as_json)
    with calling(context, endpoint, teller) as remote:
        job_input = _input(literal, input_file)
        for note in input_notes(job_input):
            teller.note(note)
        budget = Budget(remote.timing, wait or None)
        try:
            request = remote.submit_within(budget, job_input)
            if wait:
                request.wait_within(budget, queue_seconds=queue_limit or None)
        except KeyboardInterrupt:
            if remote.newest is None:
                teller.note("left while the request was being submitted: whether it was queued is not known")
            else:
                offer_cancel(remote.newest, teller)
            return INTERRUPTED
        if request.seen is not None:
            print_payload(request.seen.body)
    return 0


def _input(literal: str | None, input_file: str | None) -> bytes:
    if (literal is None) == (input_file is None):
        raise click.UsageError("give either --input or --input-file")
    if literal is not None:
        return input_bytes(literal.encode("utf-8", "surrogateescape"), what="--input")
    return input_bytes(_read(str(input_file)), what="stdin" if input_file == "-" else str(input_file))


def _read(name: str) -> bytes:
    """A file or stdin, no further than is needed to know that it is too large."""
    try:
        if name == "-":
            return sys.stdin.buffer.read(WRITTEN_BYTES + 1)
        with Path(name).open("rb") as stream:
            return stream.read(WRITTEN_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        raise CommandFailed(f"cannot read {name}: {why}", "usage_error", exit_code=USAGE) from None
