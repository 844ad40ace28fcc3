"""`stallscope serve`: collector and dashboard in one process, or one half of it."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Final

import click

from collector.cli.failures import FAILED, USAGE, CommandFailed

if TYPE_CHECKING:
    from collector.settings import Settings

DEFAULT_PORT: Final = 4318
DEFAULT_GRPC_PORT: Final = 4317
BACKLOG: Final = 2048
GRACE_SECONDS: Final = 10
"""How long open requests may take to end after a signal."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="Not served by this version; see OTLP/HTTP.")
@click.option("--role", type=click.Choice(["collector", "dashboard"]), help="One half alone, with a shared ClickHouse.")
@click.option("--insecure", is_flag=True, help="Answer other machines without any token.")
def serve(host: str, port: int, grpc_port: int | None, role: str | None, *, insecure: bool) -> int:
    """Take spans in over OTLP/HTTP and show what they tell: API and pages on one port."""
    # Loaded here: help and other commands should not wait for the web framework and the store's client.
    import uvicorn

    from collector import asgi
    from collector.settings import SettingsError

    try:
        settings = _settings(host, insecure=insecure)
        app = {None: asgi.server, "collector": asgi.collector_only, "dashboard": asgi.dashboard_only}[role](settings)
    except SettingsError as error:
        raise CommandFailed(str(error), "usage_error", exit_code=USAGE) from None
    _tell_of_grpc(grpc_port)
    listener = _listen(host, port)

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                click.echo(_address(host, listener))
                sys.stdout.flush()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.stopping = True  # streams of events end by themselves; all others are given their time
            await super().shutdown(sockets=sockets)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        # Who asks decides what is answered: no header of a proxy is believed.
        proxy_headers=False,
    )
    server = Announcing(config)
    server.run(sockets=[listener])
    return 0 if server.started else FAILED


def _settings(host: str, *, insecure: bool) -> Settings:
    """Settings from the environment. Raises SettingsError, also for an open address without any token."""
    from collector import auth
    from collector.settings import Settings, SettingsError

    settings = Settings.from_env(os.environ)
    if insecure:
        settings = settings.model_copy(update={"insecure": True})
    if auth.Tokens.of(settings).none_set and not settings.insecure and not auth.is_loopback(host):
        raise SettingsError(
            f"no token is set, so only this machine is answered, and {host} can be reached from others. Set"
            " STALLSCOPE_INGEST_TOKENS and STALLSCOPE_READ_TOKENS, or say --insecure."
        )
    return settings


def _tell_of_grpc(grpc_port: int | None) -> None:
    if grpc_port is not None:
        click.echo(
            f"OTLP/gRPC is not part of this version: nothing listens on port {grpc_port}. Send OTLP/HTTP, or put an"
            " OpenTelemetry collector in front that takes gRPC and sends HTTP.",
            err=True,
        )


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; taken here, so that a taken port is an error in plain words, before anything starts."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CommandFailed(f"cannot listen on {host} port {port}: {error.strerror or error}", "usage_error") from None


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"
