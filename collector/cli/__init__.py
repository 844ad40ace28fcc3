"""The command line: one file per command."""

from __future__ import annotations

import os

import click

from collector.cli.alert import alert
from collector.cli.cancel import cancel
from collector.cli.demo import demo
from collector.cli.doctor import doctor
from collector.cli.example import example
from collector.cli.explain import explain
from collector.cli.failures import Commands
from collector.cli.health import health
from collector.cli.migrate import migrate
from collector.cli.rediagnose import rediagnose
from collector.cli.run import run
from collector.cli.serve import serve
from collector.cli.status import status
from sdk_exporter.contract import VERSION


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="stallscope")
@click.pass_context
def main(context: click.Context) -> None:
    """Why did this GPU request fail or stall?"""
    if os.environ.get("NO_COLOR"):
        context.color = False


for _command in (serve, migrate, rediagnose, demo, explain, run, status, health, cancel, example, doctor, alert):
    main.add_command(_command)
