"""`stallscope cancel`: end a request that is queued or runs."""

from __future__ import annotations

import click

from collector.caller import JobStatus
from collector.caller.errors import excerpt
from collector.cli.calling import Teller, calling, json_option, print_payload
from collector.cli.failures import CommandFailed


@click.command()
@click.argument("endpoint")
@click.argument("job")
@json_option
@click.pass_context
def cancel(context: click.Context, endpoint: str, job: str, *, as_json: bool) -> int:
    """Cancel request JOB and print the platform's answer, byte for byte.

    Exits 1 when the answer does not say CANCELLED: it was over already.
    """
    with calling(context, endpoint, Teller(as_json=as_json)) as remote:
        seen = remote.request(job).cancel()
        print_payload(seen.body)
    if seen.status != JobStatus.CANCELLED:
        said = excerpt(seen.status or "no status")
        raise CommandFailed(f"request {job} was not cancelled: the platform answers {said}", "api_error")
    return 0
