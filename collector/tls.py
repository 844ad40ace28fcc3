"""TLS of the server's own ports: one certificate for HTTP and gRPC, renewed without a restart, and mutual where asked.

Files are looked at when a client connects: a renewed certificate is the next client's. A file that cannot be used
leaves the earlier one in force and is told once.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from .settings import Settings, SettingsError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `client_ca`: who has no certificate of it is refused; None asks for none."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @classmethod
    def of(cls, settings: Settings) -> TlsFiles | None:
        """None where no certificate is set. Raises SettingsError naming the setting that cannot be used."""
        certificate, key, client_ca = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
        if not (certificate or key or client_ca):
            return None
        if not (certificate and key):
            raise SettingsError("STALLSCOPE_TLS_CERTIFICATE and STALLSCOPE_TLS_KEY: TLS needs both")
        files = cls(Path(certificate), Path(key), Path(client_ca) if client_ca else None)
        try:
            files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        except OSError as error:  # ssl.SSLError is one
            raise SettingsError(
                f"STALLSCOPE_TLS_CERTIFICATE, _KEY and _CLIENT_CA name PEM files; these cannot be used: {error}"
            ) from None
        return files

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make `context` answer with what the files hold now. Raises OSError."""
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)

    def watched(self) -> Callable[[], bool]:
        """A question: did a file change since this was asked last?"""
        seen = self._stamps()

        def changed() -> bool:
            nonlocal seen
            now = self._stamps()
            before, seen = seen, now
            return now != before

        return changed

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.client_ca) if path is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def http_options(files: TlsFiles) -> dict[str, Any]:
    """What uvicorn's configuration wants to know."""
    return {
        "ssl_certfile": files.certificate,
        "ssl_keyfile": files.key,
        "ssl_ca_certs": str(files.client_ca) if files.client_ca else None,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if files.client_ca else ssl.CERT_NONE,
    }


def renew_on_handshake(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Let connections that come in over `context` have what the files hold then: certificate, key and client CAs."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    changed, renewed = files.watched(), context

    def look(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal renewed
        if changed():
            # A fresh one: loading into the old would not reach a connection that has begun, nor take a CA out.
            fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                files.load_into(fresh)
            except OSError as error:
                log.warning("the renewed TLS files cannot be used, the earlier ones stay: %s", error)
            else:
                renewed = fresh
        connection.context = renewed  # keeps the original's demands on a client's certificate

    context.sni_callback = look


def grpc_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """The same for gRPC, which asks for each connection."""
    changed = files.watched()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        if not changed():
            return None
        try:
            files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a key of another certificate must not get in
            return _grpc_configuration(files)
        except OSError as error:
            log.warning("the renewed TLS files cannot be used for gRPC, the earlier ones stay: %s", error)
            return None

    return grpc.dynamic_ssl_server_credentials(
        _grpc_configuration(files),
        renewed,  # type: ignore[arg-type]  # None is its word for "as before", which the types leave out
        require_client_authentication=files.client_ca is not None,
    )


def _grpc_configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(files.key.read_bytes(), files.certificate.read_bytes())],
        files.client_ca.read_bytes() if files.client_ca else None,
    )
