"""Who is asking: the only place where a token is looked at.

Three kinds that do not stand for each other: ingest sends spans, read sees pages and the API, admin changes things and
reads. A token belongs to one tenant and sees nothing else. Without any token the server answers this machine only.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, NoReturn

from fastapi import Depends
from starlette.requests import HTTPConnection

from .errors import NotAllowed, NotSignedIn
from .settings import Settings, SettingsError

COOKIE: Final = "stallscope_token"
"""Holds a read or admin token, set by the sign-in page."""
DEFAULT_TENANT: Final = "default"
_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends: a tenant, by one of its tokens (as digest; None where the server has none)."""

    tenant: str
    token: bytes | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Known tokens by kind, as digest → tenant. Secrets themselves are not kept."""

    ingest: Mapping[bytes, str]
    read: Mapping[bytes, str]
    admin: Mapping[bytes, str]
    insecure: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Tokens:
        """Raises SettingsError where a list cannot be read."""
        return cls(
            ingest=_parse("STALLSCOPE_INGEST_TOKENS", settings.ingest_tokens.get_secret_value()),
            read=_parse("STALLSCOPE_READ_TOKENS", settings.read_tokens.get_secret_value()),
            admin=_parse("STALLSCOPE_ADMIN_TOKENS", settings.admin_tokens.get_secret_value()),
            insecure=settings.insecure,
        )

    @property
    def none_set(self) -> bool:
        """Nobody has a token: everyone on this machine is let in."""
        return not (self.ingest or self.read or self.admin)

    def may_read(self, secret: str) -> str | None:
        """The tenant whose pages this token opens."""
        return _tenant_of(secret, self.read) or _tenant_of(secret, self.admin)

    def may_send(self, secret: str) -> str | None:
        """The tenant that this token sends spans for."""
        return _tenant_of(secret, self.ingest)

    def may_change(self, secret: str) -> str | None:
        """The tenant that this token administers."""
        return _tenant_of(secret, self.admin)

    def knows(self, secret: str) -> bool:
        """Whether it is a token of any kind."""
        return any(_tenant_of(secret, kind) for kind in (self.ingest, self.read, self.admin))


def _parse(name: str, text: str) -> dict[bytes, str]:
    tokens: dict[bytes, str] = {}
    for entry in filter(None, (part.strip() for part in re.split(r"[,\n]", text))):
        tenant, colon, secret = entry.partition(":")
        if not colon:
            tenant, secret = DEFAULT_TENANT, entry
        if not secret or not _TENANT.fullmatch(tenant):
            raise SettingsError(f"{name}: each entry is `tenant:secret` or `secret`; a tenant is letters, digits, _.-")
        digest = _digest(secret)
        if tokens.get(digest, tenant) != tenant:
            raise SettingsError(f"{name}: the same secret is given to {tokens[digest]} and {tenant}")
        tokens[digest] = tenant
    return tokens


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _tenant_of(secret: str, tokens: Mapping[bytes, str]) -> str | None:
    """Compared with all, each in constant time: time tells neither a prefix nor a place in the list."""
    given, found = _digest(secret), None
    for digest, tenant in tokens.items():
        if hmac.compare_digest(given, digest):
            found = tenant
    return found


def tokens_of(request: HTTPConnection) -> Tokens:
    """The tokens that this app knows."""
    tokens = request.app.state.parts.tokens
    if not isinstance(tokens, Tokens):  # the app's state is untyped; say it here rather than deep in a route
        raise TypeError("create_app has not run")
    return tokens


def ingest_sender(request: HTTPConnection) -> Sender:
    """Who sends spans with this request. Raises NotSignedIn or NotAllowed."""
    tokens = tokens_of(request)
    if tokens.none_set:
        return Sender(_this_machine(request, tokens))
    return sender_of(tokens, request.headers.get("authorization", ""))


def sender_of(tokens: Tokens, authorization: str) -> Sender:
    """Who sends spans with this `Authorization`. Raises NotSignedIn or NotAllowed."""
    secret = _bearer(authorization)
    tenant = secret and tokens.may_send(secret)
    if not secret or not tenant:
        _refuse(tokens, secret, "send spans", "STALLSCOPE_INGEST_TOKENS")
    return Sender(tenant, _digest(secret))


def sender_on_this_machine(tokens: Tokens, host: str) -> Sender:
    """Who sends spans from `host` to a server without tokens. Raises NotAllowed for another machine.

    For gRPC, which no page in a browser can speak: there the name that was asked for tells nothing.
    """
    _only_this_machine(tokens, host)
    return Sender(DEFAULT_TENANT)


def read_tenant(request: HTTPConnection) -> str:
    """The tenant that this request may see. A cookie does where there is no Authorization header."""
    tokens = tokens_of(request)
    if tokens.none_set:
        return _this_machine(request, tokens)
    secret = _bearer(request.headers.get("authorization", "")) or request.cookies.get(COOKIE)
    return (secret and tokens.may_read(secret)) or _refuse(tokens, secret, "read", "STALLSCOPE_READ_TOKENS")


def admin_tenant(request: HTTPConnection) -> str:
    """The tenant that this request may change things of."""
    tokens = tokens_of(request)
    if tokens.none_set:
        return _this_machine(request, tokens)
    secret = _bearer(request.headers.get("authorization", "")) or request.cookies.get(COOKIE)
    return (secret and tokens.may_change(secret)) or _refuse(tokens, secret, "change this", "STALLSCOPE_ADMIN_TOKENS")


IngestSender = Annotated[Sender, Depends(ingest_sender)]
ReadTenant = Annotated[str, Depends(read_tenant)]
AdminTenant = Annotated[str, Depends(admin_tenant)]


def _bearer(authorization: str) -> str | None:
    scheme, _, secret = authorization.partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None


def _refuse(tokens: Tokens, secret: str | None, what: str, setting: str) -> NoReturn:
    if secret and tokens.knows(secret):
        raise NotAllowed(f"this token may not {what}; one of {setting} may")
    raise NotSignedIn(f"to {what}, send `Authorization: Bearer` with one of {setting}")


def _this_machine(request: HTTPConnection, tokens: Tokens) -> str:
    """Let a caller on this machine in. The Host header is asked too, or a page of another site whose name was pointed
    at 127.0.0.1 could read everything through the visitor's browser."""
    if request.client is not None:
        _only_this_machine(tokens, request.client.host)
    if not tokens.insecure and not is_loopback(request.url.hostname or ""):
        raise NotAllowed("no token is set, so only requests to localhost or 127.0.0.1 are answered")
    return DEFAULT_TENANT


def _only_this_machine(tokens: Tokens, host: str) -> None:
    if not tokens.insecure and not is_loopback(host):
        raise NotAllowed("no token is set, so only this machine is answered; set STALLSCOPE_INGEST_TOKENS and others")


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, is this machine by definition."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
