"""Who is asking: the only place where a token is looked at.

Kinds that do not stand for each other: ingest sends spans, read sees pages and the API; operate reads, and says what
became of failures and alerts; admin changes things, and may do all that operate may. A token belongs to one tenant and
sees nothing else. Without any token the server answers this machine only. One more kind reads `/metrics`, which count
all tenants and belong to none.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, NoReturn

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from . import audit
from .errors import NotAllowed, NotSignedIn
from .settings import Settings, SettingsError

log = logging.getLogger(__name__)

COOKIE: Final = "stallscope_token"
"""Holds a read or admin token, set by the sign-in page."""
DEFAULT_TENANT: Final = "default"
READ_AGAIN_SECONDS: Final = 5.0
"""How often files of tokens are read again."""
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
    operate: Mapping[bytes, str]
    admin: Mapping[bytes, str]
    metrics: Mapping[bytes, str]
    insecure: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Tokens:
        """Raises SettingsError where a list cannot be read."""
        return cls(
            ingest=_parse("STALLSCOPE_INGEST_TOKENS", settings.ingest_tokens.get_secret_value()),
            read=_parse("STALLSCOPE_READ_TOKENS", settings.read_tokens.get_secret_value()),
            operate=_parse("STALLSCOPE_OPERATE_TOKENS", settings.operate_tokens.get_secret_value()),
            admin=_parse("STALLSCOPE_ADMIN_TOKENS", settings.admin_tokens.get_secret_value()),
            metrics=_parse("STALLSCOPE_METRICS_TOKENS", settings.metrics_tokens.get_secret_value()),
            insecure=settings.insecure,
        )

    @property
    def none_set(self) -> bool:
        """Nobody has a token: everyone on this machine is let in."""
        return not (self.ingest or self.read or self.operate or self.admin)

    @property
    def tenants(self) -> frozenset[str]:
        """Everyone who has a token."""
        return frozenset(tenant for kind in self._of_tenants for tenant in kind.values())

    @property
    def _of_tenants(self) -> tuple[Mapping[bytes, str], ...]:
        return self.ingest, self.read, self.operate, self.admin

    def may_read(self, secret: str) -> str | None:
        """The tenant whose pages this token opens."""
        return _tenant_of(secret, self.read) or self.may_operate(secret)

    def may_operate(self, secret: str) -> str | None:
        """The tenant of whose failures and alerts this token may say what became of them."""
        return _tenant_of(secret, self.operate) or _tenant_of(secret, self.admin)

    def may_send(self, secret: str) -> str | None:
        """The tenant that this token sends spans for."""
        return _tenant_of(secret, self.ingest)

    def may_change(self, secret: str) -> str | None:
        """The tenant that this token administers."""
        return _tenant_of(secret, self.admin)

    def may_see_metrics(self, secret: str) -> bool:
        """Whether this token opens `/metrics`. Open to all where they can tell a tenant nothing about another."""
        if not self.metrics:
            return len(self.tenants) < 2
        return _tenant_of(secret, self.metrics) is not None

    def knows(self, secret: str) -> bool:
        """Whether it is a token of any kind."""
        return any(_tenant_of(secret, kind) for kind in (*self._of_tenants, self.metrics))


class KeyRing:
    """The tokens in force. Those that came from files are read again, so that they change without a restart."""

    def __init__(self, settings: Settings, count: Callable[[str], None] = lambda result: None) -> None:
        """`count` is told `changed` or `failed`. Raises SettingsError where a list cannot be read."""
        self.tokens = Tokens.of(settings)
        self._settings, self._count = settings, count
        self._problem = ""

    async def keep_reading(self) -> None:
        """Look every few seconds, for ever."""
        while True:
            await asyncio.sleep(READ_AGAIN_SECONDS)
            await asyncio.to_thread(self.read_again)

    def read_again(self) -> None:
        """Take what the files hold now. Where that is nothing, or cannot be read, the earlier tokens stay in force:
        half a written file must neither lock everyone out nor, as "no token is set", let this machine in unasked."""
        try:
            tokens = Tokens.of(self._settings.read_again())
        except SettingsError as error:
            self._stay(str(error))
            return
        if tokens.none_set and not self.tokens.none_set:
            self._stay("no file of tokens holds any")
            return
        self._problem = ""
        if tokens != self.tokens:
            kinds = (tokens.ingest, tokens.read, tokens.operate, tokens.admin)
            log.warning("the tokens changed: %d may send, %d read, %d operate, %d change things", *map(len, kinds))
            self.tokens = tokens
            self._count("changed")

    def _stay(self, problem: str) -> None:
        if problem != self._problem:  # told once, not every few seconds
            log.warning("the tokens were not renewed, the earlier ones stay: %s", problem)
            self._count("failed")
        self._problem = problem


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
    secret = secret_of(request)
    return (secret and tokens.may_read(secret)) or _refuse(tokens, secret, "read", "STALLSCOPE_READ_TOKENS")


async def operate_tenant(request: Request) -> str:
    """The tenant of whose failures and alerts this request may say what became of them; on record before it does."""
    return await _changer(request, Tokens.may_operate, "say this", "STALLSCOPE_OPERATE_TOKENS")


async def admin_tenant(request: Request) -> str:
    """The tenant that this request may change things of. What may change something is on record before it does."""
    return await _changer(request, Tokens.may_change, "change this", "STALLSCOPE_ADMIN_TOKENS")


async def _changer(request: Request, may: Callable[[Tokens, str], str | None], what: str, setting: str) -> str:
    tokens = tokens_of(request)
    secret, tenant = None, None
    if tokens.none_set:
        tenant = _this_machine(request, tokens)
    else:
        secret = secret_of(request)
        tenant = secret and may(tokens, secret)
    if not tenant:
        _refuse(tokens, secret, what, setting)
    if request.method not in ("GET", "HEAD"):
        await audit.record(request, tenant, short_name(secret))
    return tenant


def secret_of(request: HTTPConnection) -> str | None:
    """The token of this request: of its Authorization header, or else of its cookie."""
    return _bearer(request.headers.get("authorization", "")) or request.cookies.get(COOKIE)


def may_operate(request: HTTPConnection) -> bool:
    """Whether this visitor may say what became of failures: only then are the forms for it shown."""
    tokens, secret = tokens_of(request), secret_of(request)
    return tokens.none_set or bool(secret and tokens.may_operate(secret))


def short_name(secret: str | None) -> str:
    """What a token is called where it must not be shown: the start of its SHA-256. Empty for none."""
    return _digest(secret).hex()[:12] if secret else ""


def metrics_reader(request: Request) -> None:
    """Raises NotSignedIn where `/metrics` needs another token."""
    tokens = tokens_of(request)
    secret = _bearer(request.headers.get("authorization", "")) or ""
    if not tokens.may_see_metrics(secret):
        _refuse(tokens, secret, "read metrics of all tenants", "STALLSCOPE_METRICS_TOKENS")


ReadTenant = Annotated[str, Depends(read_tenant)]
OperateTenant = Annotated[str, Depends(operate_tenant)]
AdminTenant = Annotated[str, Depends(admin_tenant)]
MetricsReader = Depends(metrics_reader)


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
