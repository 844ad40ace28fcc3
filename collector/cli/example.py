"""`stallscope example`: a curl line that runs, for a handler's source."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Final

import click

from collector.caller import CallerError
from collector.caller.examples import example_of
from collector.caller.invoke import DEFAULT_INVOKE_URL, path_segment
from collector.cli.failures import USAGE, CommandFailed

SOURCE_BYTES: Final = 4 << 20


@click.command()
@click.argument("handler", metavar="HANDLER.py[:FUNCTION]")
@click.option("--endpoint", help="The endpoint's id [default: what RUNPOD_ENDPOINT_ID holds when the line runs].")
def example(handler: str, endpoint: str | None) -> int:
    """Print a curl line that sends a first request to a handler, with the keys that its source asks for.

    FUNCTION is a function, a class or Class.method; without it, the handler that the file starts. The file is read, not
    run. Not looked at: definitions inside `if` and other blocks, and arguments that can only be given by position.
    """
    name, colon, target = handler.partition(".py:")
    file = name + ".py" if colon else handler
    try:
        found = example_of(_source(file), target or None)
        place = path_segment(endpoint, "the endpoint") if endpoint is not None else None
    except CallerError as error:
        raise CommandFailed(f"{file}: {error}", "usage_error", exit_code=USAGE) from None
    for note in found.notes:
        click.echo(f"Note: {note}", err=True)
    click.echo(curl_line(found.input, place))
    return 0


def curl_line(job_input: object, endpoint: str | None) -> str:
    """The line for a shell. The key and the address stay variables: a line is easily passed on."""
    body = json.dumps({"input": job_input}, ensure_ascii=False, separators=(",", ":"))
    where = f'"${{RUNPOD_INVOKE_URL:-{DEFAULT_INVOKE_URL}}}/'
    missing = "${RUNPOD_ENDPOINT_ID:?set it to the id of your endpoint}"
    # A quoted id has `%` and no character that a shell would read.
    url = f'{where}{endpoint or missing}/run"'
    return (
        f'curl -sS -X POST {url} -H "Authorization: Bearer $RUNPOD_API_KEY"'
        f" -H 'Content-Type: application/json' --data-raw {shlex.quote(body)}"
    )


def _source(file: str) -> str:
    try:
        with Path(file).open("rb") as stream:
            raw = stream.read(SOURCE_BYTES + 1)
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror or error}", "usage_error", exit_code=USAGE) from None
    if len(raw) > SOURCE_BYTES:
        raise CommandFailed(f"{file} is larger than {SOURCE_BYTES >> 20} MiB", "usage_error", exit_code=USAGE)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not UTF-8", "usage_error", exit_code=USAGE) from None
