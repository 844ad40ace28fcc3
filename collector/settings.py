"""Every setting of the server: one frozen object, read once at the edge and passed down.

Defaults first, then what the user wrote, then validation: 0 is a value and never means "default". An unknown
`STALLSCOPE_*` name stops the server (a typing mistake must not be a silent default). `docs/settings.md` describes each;
a test keeps both in step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

PREFIX: Final = "STALLSCOPE_"
FILE_SUFFIX: Final = "_FILE"

READ_BY_OTHERS: Final = frozenset(
    {
        # the worker's exporter, which may share an environment with the server (`stallscope demo`)
        "STALLSCOPE_LOG_CAPTURE",
        "STALLSCOPE_LOG_TAIL_BYTES",
        "STALLSCOPE_HANDLER_LOGS",
        "STALLSCOPE_MASK_EMAILS",
        "STALLSCOPE_SPOOL_DIR",
        "STALLSCOPE_SPOOL_BYTES",
        "STALLSCOPE_HEARTBEAT_SECONDS",
        "STALLSCOPE_FLUSH_SECONDS",
        "STALLSCOPE_HANDOVER",
        "STALLSCOPE_BOOT",
        "STALLSCOPE_DEBUG",
        # the command line as a client
        "STALLSCOPE_URL",
        "STALLSCOPE_TOKEN",
    }
)


class SettingsError(ValueError):
    """A setting that cannot be used. The message names it."""


def default_data_directory() -> Path:
    """Where the embedded store lives unless told otherwise (XDG base directories)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "stallscope"


class Settings(BaseModel):
    """The server's settings. The environment name of a field is `STALLSCOPE_` and its name in capitals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: SecretStr = Field(
        default_factory=lambda: SecretStr(f"chdb://{default_data_directory() / 'store'}"),
        description="Where spans are stored: `chdb:///path` (embedded), `clickhouse://user:password@host:8123/database`"
        " or `clickhouses://…` (TLS).",
    )
    ingest_tokens: SecretStr = Field(
        SecretStr(""), description="Tokens that may send spans: `tenant:secret[,…]`, or `secret` for tenant `default`."
    )
    read_tokens: SecretStr = Field(SecretStr(""), description="Tokens that may read pages and the API, same form.")
    operate_tokens: SecretStr = Field(
        SecretStr(""),
        description="Tokens that may read, and say what became of failures and alerts (acknowledge, resolve, note).",
    )
    admin_tokens: SecretStr = Field(SecretStr(""), description="Tokens that may change things and read, same form.")
    metrics_tokens: SecretStr = Field(
        SecretStr(""),
        description="Secrets that may read `/metrics`, with commas between. None: open, or closed for several tenants.",
    )
    insecure: bool = Field(
        False,
        description="Answer other machines although no token is set. Everyone who reaches the port reads everything.",
    )
    tls_certificate: str = Field(
        "", description="PEM file of the server's certificate and its chain: both ports speak TLS."
    )
    tls_key: str = Field("", description="PEM file of its private key.")
    tls_client_ca: str = Field(
        "", description="PEM file of the CAs whose client certificates are let in: mutual TLS on both ports."
    )
    retention_days: int = Field(14, ge=1, le=3650, description="Days that spans are kept, counted from their arrival.")
    body_bytes: int = Field(
        64 << 20, ge=1024, description="Most bytes of a request body to `/v1/*`, as sent and again when inflated."
    )
    in_flight_bytes: int = Field(
        256 << 20, ge=1 << 20, description="Bytes of request bodies in memory at once; above it the answer is 503."
    )
    ingest_rate: float = Field(
        0, ge=0, description="Records (spans and others) a second of one ingest token, above it 429. 0: no limit."
    )
    journal_dir: str = Field(
        "",
        description="A folder for the journal. With one, 200 means that spans are on its disk; ClickHouse gets them"
        " moments later, or when it is back. Empty: 200 means that ClickHouse has them.",
    )
    journal_bytes: int = Field(
        1 << 30, ge=1 << 20, description="Most bytes of the journal; when they are used up the answer is 503."
    )
    query_seconds: float = Field(10.0, gt=0, description="Longest time of a query for a page or the API.")
    insert_seconds: float = Field(30.0, gt=0, description="Longest time of an insert, after which the answer is 503.")
    digest_seconds: float = Field(
        5.0, gt=0, description="How often open requests are diagnosed again, so that silence is noticed."
    )

    watch_seconds: float = Field(
        5.0, gt=0, description="How often workers, stop channels and alert rules are looked at."
    )
    public_url: str = Field("", description="Address of this server in a browser, for links in alerts.")
    runbook_url: str = Field(
        "", description="Where the runbooks that alerts name are; empty: `/docs/runbooks` of STALLSCOPE_PUBLIC_URL."
    )
    alert_rules: str = Field("", description="A YAML file with alert rules over the built-in ones; see docs/alerts.md.")
    alert_webhook_url: SecretStr = Field(SecretStr(""), description="Alerts are POSTed there as JSON.")
    alert_webhook_secret: SecretStr = Field(
        SecretStr(""), description="Signs webhooks (Standard Webhooks): `whsec_` and base64, or any text."
    )
    alert_slack_url: SecretStr = Field(SecretStr(""), description="Incoming webhook of Slack for alerts.")
    alert_pagerduty_key: SecretStr = Field(
        SecretStr(""), description="Routing key of a PagerDuty integration (Events API v2) for alerts."
    )
    alert_pagerduty_url: str = Field("https://events.pagerduty.com", description="Where PagerDuty's Events API is.")
    alert_alertmanager_url: SecretStr = Field(
        SecretStr(""), description="A Prometheus Alertmanager that alerts are sent to (API v2)."
    )
    alert_smtp_url: SecretStr = Field(
        SecretStr(""), description="Mail server for alerts: `smtp://[user:password@]host[:port]` or `smtps://…`."
    )
    alert_email_from: str = Field("", description="Sender of alerts by e-mail.")
    alert_email_to: str = Field("", description="Recipients of alerts by e-mail, with commas between.")
    alert_heartbeat_url: SecretStr = Field(
        SecretStr(""), description="Dead man's switch: asked for (GET) once a minute while the watcher works."
    )

    platform_key: SecretStr = Field(
        SecretStr(""), description="API key with which `serve --platform` asks the platform; reading is enough."
    )
    platform_endpoints: str = Field("", description="Endpoints that it asks about, with commas between. Empty: all.")
    platform_seconds: float = Field(15.0, gt=0, description="How often it asks.")
    platform_tenant: str = Field("default", min_length=1, description="The tenant that its records belong to.")
    platform_api_url: str = Field("https://api.runpod.io/v2", description="Where the platform's REST API is.")
    platform_invoke_url: str = Field("https://api.runpod.ai/v2", description="Where its invoke API is.")

    _files: dict[str, str] = PrivateAttr(default_factory=dict)
    """Field → file, of those that were given as a file."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Settings from environment variables. `NAME_FILE` names a file that holds the value.

        Raises SettingsError naming the variable: unknown, unreadable, given twice, or with a value that does not fit.
        """
        written: dict[str, Any] = {}
        files: dict[str, str] = {}
        for name, value in environ.items():
            if not name.startswith(PREFIX) or name in READ_BY_OTHERS:
                continue
            field = name[len(PREFIX) :].lower()
            if field not in cls.model_fields and name.endswith(FILE_SUFFIX):
                field = field[: -len(FILE_SUFFIX)]
                files[field], value = value, _content(name, value)
            if field not in cls.model_fields:
                raise SettingsError(f"{name} is no setting of Stallscope; see docs/settings.md")
            if field in written:
                raise SettingsError(f"{PREFIX}{field.upper()} and its {FILE_SUFFIX} form are both set; keep one")
            written[field] = value
        return cls._checked(written, files)

    def read_again(self) -> Settings:
        """The same, with what the files hold now. Raises SettingsError as `from_env` does."""
        texts = {field: _content(f"{PREFIX}{field.upper()}{FILE_SUFFIX}", name) for field, name in self._files.items()}
        return self._checked({**dict(self), **texts}, self._files)

    @classmethod
    def _checked(cls, written: Mapping[str, Any], files: dict[str, str]) -> Settings:
        try:
            settings = cls(**written)
        except ValidationError as error:
            first = error.errors()[0]
            raise SettingsError(f"{PREFIX}{str(first['loc'][0]).upper()}: {first['msg']}") from None
        settings._files = files
        return settings


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"{name}: cannot read {path!r}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: {path!r} is not UTF-8 text") from None
