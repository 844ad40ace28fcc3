"""TLS on both ports of `stallscope serve`: held against real clients, with and without a certificate of their own."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

import grpc
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from parts import PATIENCE_SECONDS

from collector.cli.doctor import examine
from collector.settings import Settings, SettingsError
from collector.tls import TlsFiles

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        signed = _builder(self._name, self._name, self._key).add_extension(basic, critical=True)
        self.pem = _pem(signed.sign(self._key, hashes.SHA256()))

    def issue(self, folder: Path, name: str) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and its key, in files that are put in place whole."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        signed = _builder(subject, self._name, key).add_extension(names, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        written = []
        for suffix, text in (("key", private), ("crt", _pem(signed.sign(self._key, hashes.SHA256())))):
            fresh = folder / f"new.{suffix}"
            fresh.write_bytes(text)
            written.append(fresh.replace(folder / f"{name}.{suffix}"))
        return written[1], written[0]


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True)
class Serving:
    """A server that runs: its two ports."""

    http: int
    grpc: int

    def get(self, ca: Path, client: tuple[Path, Path] | None = None) -> tuple[int, int]:
        """The status of /healthz, and the serial number of the certificate that came with it."""
        context = ssl.create_default_context(cafile=str(ca))
        if client:
            context.load_cert_chain(*client)
        url = f"https://127.0.0.1:{self.http}/healthz"
        with httpx.Client(verify=context, timeout=PATIENCE_SECONDS) as asking, asking.stream("GET", url) as answer:
            connection = answer.extensions["network_stream"].get_extra_info("ssl_object")
            seen = x509.load_der_x509_certificate(connection.getpeercert(True))
            return answer.status_code, seen.serial_number

    def call(self, ca: Path, client: tuple[Path, Path] | None = None) -> bytes:
        """An empty export over gRPC."""
        key = client[1].read_bytes() if client else None
        chain = client[0].read_bytes() if client else None
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key, chain)
        with grpc.secure_channel(f"127.0.0.1:{self.grpc}", credentials) as channel:
            answer: bytes = channel.unary_unary(EXPORT)(
                b"", metadata=(("authorization", "Bearer secret-of-a-worker"),), timeout=PATIENCE_SECONDS
            )
            return answer


@contextmanager
def serving(folder: Path, **env: str) -> Iterator[Serving]:
    """`stallscope serve` on free ports."""
    process = subprocess.Popen(
        [sys.executable, "-m", "collector.cli", "serve", "--port", "0"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("STALLSCOPE_")},
            "STALLSCOPE_DATABASE_URL": f"chdb://{folder / 'store'}",
            "STALLSCOPE_INGEST_TOKENS": "secret-of-a-worker",
            **env,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert all("https://127.0.0.1:" in line for line in lines), lines
        yield Serving(*(int(line.rpartition(":")[2]) for line in lines))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def authority() -> Authority:
    """The one that is trusted."""
    return Authority("trusted")


@pytest.fixture
def ca(authority: Authority, tmp_path: Path) -> Path:
    """Its certificate."""
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    return tmp_path / "ca.crt"


def test_both_ports_speak_tls_and_take_up_a_renewed_certificate(authority: Authority, ca: Path, tmp_path: Path) -> None:
    certificate, key = authority.issue(tmp_path, "server")
    with serving(tmp_path, STALLSCOPE_TLS_CERTIFICATE=str(certificate), STALLSCOPE_TLS_KEY=str(key)) as server:
        status, first = server.get(ca)
        assert status == 200
        assert server.call(ca) == b""
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{server.http}/healthz", timeout=PATIENCE_SECONDS)
        authority.issue(tmp_path, "server")
        assert server.get(ca)[1] != first, "the next client has the new one"
        assert server.call(ca) == b""
        renewed = server.get(ca)[1]
        key.write_bytes(b"half a file")
        assert server.get(ca) == (200, renewed), "what cannot be used changes nothing"
        assert server.call(ca) == b""


def test_mutual_tls_lets_in_those_of_the_named_authority_alone(authority: Authority, ca: Path, tmp_path: Path) -> None:
    certificate, key = authority.issue(tmp_path, "server")
    worker = authority.issue(tmp_path, "worker")
    stranger = Authority("trusted").issue(tmp_path, "stranger")
    with serving(
        tmp_path,
        STALLSCOPE_TLS_CERTIFICATE=str(certificate),
        STALLSCOPE_TLS_KEY=str(key),
        STALLSCOPE_TLS_CLIENT_CA=str(ca),
    ) as server:
        admits(server, ca, worker, refused=[None, stranger])
        authority.issue(tmp_path, "server")
        admits(server, ca, worker, refused=[None, stranger])
        other = Authority("other")
        (tmp_path / "old-ca.crt").write_bytes(authority.pem)
        (tmp_path / "other-ca.crt").write_bytes(other.pem)
        (tmp_path / "other-ca.crt").replace(ca)
        trusted = tmp_path / "old-ca.crt"  # the server's own certificate is of the old one still
        admits(server, trusted, other.issue(tmp_path, "worker-of-other"), refused=[None, stranger, worker])


def admits(server: Serving, ca: Path, client: tuple[Path, Path], *, refused: list[tuple[Path, Path] | None]) -> None:
    """Both ports let `client` in, and none of the others."""
    assert server.get(ca, client)[0] == 200
    assert server.call(ca, client) == b""
    for other in refused:
        with pytest.raises(httpx.HTTPError):
            server.get(ca, other)
        with pytest.raises(grpc.RpcError) as answer:
            server.call(ca, other)
        assert answer.value.code() is grpc.StatusCode.UNAVAILABLE


def test_files_that_do_not_fit_stop_the_server_with_words(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue(tmp_path, "server")
    _, other_key = authority.issue(tmp_path, "other")
    assert TlsFiles.of(Settings()) is None
    assert TlsFiles.of(Settings(tls_certificate=str(certificate), tls_key=str(key))) is not None
    for wrong in (
        {"tls_certificate": str(certificate)},
        {"tls_client_ca": str(certificate)},
        {"tls_certificate": str(certificate), "tls_key": str(other_key)},
        {"tls_certificate": str(certificate), "tls_key": str(key), "tls_client_ca": str(tmp_path / "none")},
    ):
        with pytest.raises(SettingsError, match="STALLSCOPE_TLS_"):
            TlsFiles.of(Settings(**wrong))  # type: ignore[arg-type]


def test_the_doctor_tells_of_tls_and_of_who_reads_metrics(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = authority.issue(tmp_path, "server")
    monkeypatch.setenv("STALLSCOPE_DATABASE_URL", f"chdb://{tmp_path / 'store'}")
    monkeypatch.setenv("STALLSCOPE_TLS_CERTIFICATE", str(certificate))
    assert next((one.what, one.ok) for one in examine()) == ("settings", False)
    monkeypatch.setenv("STALLSCOPE_TLS_KEY", str(key))
    monkeypatch.setenv("STALLSCOPE_READ_TOKENS", "acme:secret-of-acme,other:secret-of-other")
    told = {one.what: one.detail for one in examine()}
    assert told["TLS"] == f"both ports, by {certificate}"
    assert told["tokens"] == "set; /metrics asks for one of STALLSCOPE_METRICS_TOKENS, and none is set"
