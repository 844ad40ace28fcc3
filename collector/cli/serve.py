"""`stallscope serve`: collector and dashboard in one process, or one half of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from collector.cli.failures import FAILED, INTERRUPTED, USAGE, CommandFailed

if TYPE_CHECKING:
    from collector.settings import Settings

DEFAULT_PORT: Final = 4318
DEFAULT_GRPC_PORT: Final = 4317
BACKLOG: Final = 2048
DRAIN_SECONDS: Final = 10
"""How long open requests may take to end after a signal. Stated in the command's help."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    help="Where OTLP/gRPC is taken in. 0: any free one, as is the default with --port 0.  [default: 4317]",
)
@click.option("--role", type=click.Choice(["collector", "dashboard"]), help="One half alone, with a shared ClickHouse.")
@click.option(
    "--platform",
    type=click.Choice(["runpod"]),
    help="Ask this platform about workers and queues, with the key in STALLSCOPE_PLATFORM_KEY_FILE.",
)
@click.option("--insecure", is_flag=True, help="Answer other machines without any token.")
def serve(
    host: str, port: int, grpc_port: int | None, role: str | None, platform: str | None, *, insecure: bool
) -> int:
    """Take spans in over OTLP/HTTP and OTLP/gRPC, and show what they tell: API and pages on the HTTP port.

    SIGTERM and Ctrl-C end it: nothing new is taken, and open requests have 10 seconds to end. Exits 0 after SIGTERM,
    130 after Ctrl-C.
    """
    # Loaded here: help and other commands should not wait for the web framework and the store's client.
    import uvicorn

    from collector import asgi, memory
    from collector.http_bounds import BoundedHttp, notice_dead_peers
    from collector.otlp_grpc import GrpcEdge
    from collector.platform.poller import Poller
    from collector.settings import SettingsError
    from collector.tls import TlsFiles, http_options, renew_on_handshake

    if platform and role == "dashboard":
        said = "--platform is for a server that stores: not with --role dashboard"
        raise CommandFailed(said, "usage_error", exit_code=USAGE)
    if grpc_port is None:
        grpc_port = DEFAULT_GRPC_PORT if port else 0
    try:
        settings = _settings(host, insecure=insecure)
        tls = TlsFiles.of(settings)
        grpc_edge = None if role == "dashboard" else GrpcEdge(host, grpc_port, tls)
        if grpc_edge is None:
            app = asgi.dashboard_only(settings)
        else:
            edges = [grpc_edge.open, *([Poller(settings).open] if platform else [])]
            app = (asgi.collector_only if role else asgi.server)(settings, edges)
    except SettingsError as error:
        raise CommandFailed(str(error), "usage_error", exit_code=USAGE) from None
    listener = _listen(host, port)
    notice_dead_peers(listener)
    if grpc_edge is not None:
        _listen(
            host, grpc_port, "; take another with --grpc-port"
        ).close()  # gRPC's own words for a taken port are long

    class Announcing(uvicorn.Server):
        ended_by: int | None = None

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                click.echo(_address(host, listener.getsockname()[1], secure=tls is not None))
                if grpc_edge is not None:
                    click.echo(f"OTLP/gRPC: {_address(host, grpc_edge.port, secure=tls is not None)}")
                sys.stdout.flush()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.stopping = True  # streams of events end by themselves; all others are given their time
            if grpc_edge is not None:
                grpc_edge.begin_to_close()  # at once with HTTP, so that one drain time holds for both
            await super().shutdown(sockets=sockets)

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """As the original, which raises the signal again in the end: the process would die of what it obeyed."""
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.ended_by = self.ended_by or sig
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        # Who asks decides what is answered: no header of a proxy is believed.
        proxy_headers=False,
        http=BoundedHttp,
        **(http_options(tls) if tls else {}),
    )
    if tls is not None:
        config.load()
        if config.ssl is None:  # only where no certificate was given
            raise AssertionError("uvicorn made no TLS context")
        renew_on_handshake(config.ssl, tls)
    server = Announcing(config)
    memory.keep_little()
    server.run(sockets=[listener])
    if not server.started:
        return FAILED
    return INTERRUPTED if server.ended_by == signal.SIGINT else 0


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


def _listen(host: str, port: int, advice: str = "") -> socket.socket:
    """A listening socket; taken here, so that a taken port is an error in plain words, before anything starts."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        said = f"cannot listen on {host} port {port}: {error.strerror or error}{advice}"
        raise CommandFailed(said, "usage_error") from None


def _address(host: str, port: int, *, secure: bool) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}"
