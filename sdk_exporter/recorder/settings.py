"""The recorder's settings, read once from the environment. A value that makes no sense counts as absent: a guest does
not stop a worker over a typing error."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from sdk_exporter.contract import HEARTBEAT_SECONDS, LOG_TAIL_BYTES

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
DEFAULT_SPOOL_BYTES: Final = 64 << 20
_LONGEST_HEARTBEAT_SECONDS: Final = 3600.0
_LARGEST_TAIL_BYTES: Final = 262_144
_GRPC_PORT: Final = 4317
_HTTP_PORT: Final = 4318
_HEX: Final = re.compile("[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """What may leave the worker, and where to."""

    log_capture: str
    """auto: tails only with a failure, a stall or a death; all; off."""
    handler_logs: bool
    """False: nothing that was written after the first `job.run` began leaves the worker."""
    tail_bytes: int
    heartbeat_seconds: float
    spool_dir: str | None
    spool_bytes: int
    endpoint: str
    """Full URL that traces are posted to."""
    headers: tuple[tuple[str, str], ...]
    timeout_seconds: float
    """Of one try."""
    gzip: bool
    certificate: str | None
    client_certificate: str | None
    client_key: str | None
    resource: tuple[tuple[str, str], ...]
    boot: tuple[str, str, str, int] | None
    """boot id, trace id, span id and start (Unix ns) of `worker.boot`."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> RecorderSettings:
        """Never raises. A signal's own variable wins over the general one, as OpenTelemetry says."""

        def otlp(name: str) -> str | None:
            specific = environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}", "").strip()
            return specific or environ.get(f"OTEL_EXPORTER_OTLP_{name}", "").strip() or None

        capture = environ.get("STALLSCOPE_LOG_CAPTURE", "").strip().lower()
        return cls(
            log_capture=capture if capture in ("auto", "all", "off") else "auto",
            handler_logs=environ.get("STALLSCOPE_HANDLER_LOGS", "").strip().lower() in ("on", "true", "1", "yes"),
            tail_bytes=min(_LARGEST_TAIL_BYTES, _whole(environ, "STALLSCOPE_LOG_TAIL_BYTES", LOG_TAIL_BYTES)),
            heartbeat_seconds=_bounded_heartbeat(environ.get("STALLSCOPE_HEARTBEAT_SECONDS")),
            spool_dir=environ.get("STALLSCOPE_SPOOL_DIR", "").strip() or None,
            spool_bytes=_whole(environ, "STALLSCOPE_SPOOL_BYTES", DEFAULT_SPOOL_BYTES),
            endpoint=endpoint_of(environ)[0],
            headers=_headers(otlp("HEADERS") or ""),
            timeout_seconds=_positive(otlp("TIMEOUT")) or 10.0,  # seconds, as OpenTelemetry's Python SDK reads it
            gzip=(otlp("COMPRESSION") or "gzip").lower() != "none",
            certificate=otlp("CERTIFICATE"),
            client_certificate=otlp("CLIENT_CERTIFICATE"),
            client_key=otlp("CLIENT_KEY"),
            resource=tuple(_resource(environ).items()),
            boot=_boot(environ.get("STALLSCOPE_BOOT", "")),
        )


def endpoint_of(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """(URL that traces are posted to, what to tell about it or None). We speak OTLP over HTTP only.

    A signal's own endpoint is used as it is; the general one is a base that the path is added to. One that is meant for
    gRPC, by the protocol or by its port, goes to the HTTP port of the same host, beside which collectors have it.
    """
    specific = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
    given = specific or base
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    is_grpc = protocol.strip().lower() == "grpc"
    if not is_grpc and _port(given) != _GRPC_PORT:
        return (specific or base.rstrip("/") + "/v1/traces"), None
    parts = urlsplit(given if "://" in given else f"http://{given}")  # gRPC endpoints may come without a scheme
    port = _HTTP_PORT if _port(given) == _GRPC_PORT else _port(given)
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or "127.0.0.1"
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    path = parts.path if parts.path.endswith("/v1/traces") else parts.path.rstrip("/") + "/v1/traces"
    url = f"{parts.scheme}://{user}{host}{f':{port}' if port else ''}{path}"
    why = "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" if is_grpc else f"an endpoint on port {_GRPC_PORT}"
    return url, f"{why}: OTLP is sent over HTTP here, to {host}{f':{port}' if port else ''}{path}"


def _port(url: str) -> int | None:
    try:
        return urlsplit(url if "://" in url else f"http://{url}").port
    except ValueError:
        return None


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """W3C baggage format: `key=value,key=value`, values URL-encoded."""
    pairs = (part.partition("=") for part in text.split(","))
    return tuple((key.strip(), unquote(value.strip())) for key, equals, value in pairs if equals and key.strip())


_FROM_ENVIRONMENT: Final = (
    ("service.instance.id", "RUNPOD_POD_ID"),
    ("faas.name", "RUNPOD_ENDPOINT_ID"),
    ("service.name", "RUNPOD_ENDPOINT_ID"),
    ("host.name", "RUNPOD_POD_HOSTNAME"),
    ("cloud.region", "RUNPOD_DC_ID"),
)


def _resource(environ: Mapping[str, str]) -> dict[str, str]:
    found = {key: environ[name].strip() for key, name in _FROM_ENVIRONMENT if environ.get(name, "").strip()}
    if "service.instance.id" in found:
        found["cloud.provider"] = "runpod"
    for key, value in _headers(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")):
        found[key] = value
    if environ.get("OTEL_SERVICE_NAME", "").strip():
        found["service.name"] = environ["OTEL_SERVICE_NAME"].strip()
    found.setdefault("service.name", "unknown_service:python")
    # A container's host name is its own; where it is not, the boot id still tells workers apart.
    found.setdefault("host.name", os.uname().nodename)
    found.setdefault("service.instance.id", found["host.name"])
    return found


def _boot(text: str) -> tuple[str, str, str, int] | None:
    parts = text.split(",")
    if len(parts) != 4 or not all(is_hex(part, size) for part, size in zip(parts, (32, 32, 16), strict=False)):
        return None
    try:
        return parts[0], parts[1], parts[2], int(parts[3])
    except ValueError:
        return None


def is_hex(text: object, digits: int) -> bool:
    """True for an id of so many hex digits that is not all zeros."""
    if not isinstance(text, str) or len(text) != digits or _HEX.fullmatch(text) is None:
        return False
    return text.strip("0") != ""


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    try:
        value = int(environ[name])
    except (KeyError, ValueError):
        return default
    return value if value >= 0 else default


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _bounded_heartbeat(text: str | None) -> float:
    return min(_LONGEST_HEARTBEAT_SECONDS, max(0.05, _positive(text) or HEARTBEAT_SECONDS))
