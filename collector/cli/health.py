"""`stallscope health`: what an endpoint says of its queue and workers."""

from __future__ import annotations

import click

from collector.cli.calling import Teller, calling, json_option, print_payload


@click.command()
@click.argument("endpoint")
@json_option
@click.pass_context
def health(context: click.Context, endpoint: str, *, as_json: bool) -> int:
    """Print the counts of ENDPOINT's requests and workers, byte for byte.

    This does not tell whether the endpoint exists: the platform answers for one that was just deleted, too.
    """
    with calling(context, endpoint, Teller(as_json=as_json)) as remote:
        print_payload(remote.health())
    return 0
