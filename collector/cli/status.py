"""`stallscope status`: what the platform says of a request, now or when it is over."""

from __future__ import annotations

import click

from collector.cli.calling import Teller, calling, json_option, offer_cancel, print_payload
from collector.cli.durations import duration_option
from collector.cli.failures import INTERRUPTED


@click.command()
@click.argument("endpoint")
@click.argument("job")
@click.option(
    "--wait",
    metavar="DURATION",
    default="0",
    show_default=True,
    callback=duration_option,
    help="Return when the request is over, at most after this.",
)
@json_option
@click.pass_context
def status(context: click.Context, endpoint: str, job: str, wait: float, *, as_json: bool) -> int:
    """Print what the platform says of request JOB, byte for byte.

    Exits 0 for a request that is COMPLETED or goes on, 1 for one that ended badly, and when --wait is over first. It
    only looks: nothing is cancelled, however long the request waits.
    """
    teller = Teller(as_json=as_json)
    with calling(context, endpoint, teller) as remote:
        request = remote.request(job)
        try:
            seen = request.wait(wait, queue_seconds=None) if wait else request.checked(request.status())
        except KeyboardInterrupt:
            offer_cancel(request, teller)
            return INTERRUPTED
        print_payload(seen.body)
    return 0
