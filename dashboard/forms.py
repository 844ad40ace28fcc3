"""Forms that change something: sent by our own page and by nobody else's. The value in the form is the cookie's, which
another site can neither read nor set; what a browser says of the form's origin is believed too.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from fastapi import Request, Response

from collector.auth import is_loopback
from collector.errors import NotAllowed

FORM_COOKIE: Final = "stallscope_form"
FORM_SECONDS: Final = 12 * 3600
SECRET_CHARACTERS: Final = 32


def secret_for(request: Request) -> str:
    """The value for the forms of a page: the one that the browser has, so that two open pages agree."""
    kept = request.cookies.get(FORM_COOKIE, "")
    return kept if len(kept) == SECRET_CHARACTERS and kept.isascii() else secrets.token_urlsafe(24)


def remembered(response: Response, request: Request, secret: str) -> Response:
    """`response`, with the cookie that its forms must agree with."""
    response.set_cookie(
        FORM_COOKIE,
        secret,
        max_age=FORM_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=secure(request),
    )
    return response


def is_own(request: Request, secret: str) -> bool:
    """The form holds what its cookie holds, and the browser does not say that another site's page sent it."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host", ""):
        return False
    kept = request.cookies.get(FORM_COOKIE, "")
    return bool(kept) and hmac.compare_digest(kept.encode(), secret.encode("utf-8", "replace"))


def checked(request: Request, fields: dict[str, str]) -> None:
    """Raises NotAllowed for a form that is not our own."""
    if not is_own(request, fields.get("form_secret", "")):
        raise NotAllowed("The form was too old, or came from elsewhere: go back, read the page again and send it anew.")


def secure(request: Request) -> bool:
    """A cookie travels over TLS only, but for this machine's own loopback, where there is none."""
    return request.url.scheme == "https" or not is_loopback(request.url.hostname or "")
