"""Sign in with a read token: it becomes a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from collector.auth import COOKIE, tokens_of
from dashboard import forms, render
from dashboard.contexts import LoginPage
from dashboard.sign_ins import sign_ins_of
from dashboard.site import form_of, site_of

SIGNED_IN_SECONDS: Final = 7 * 86400


async def login_page(request: Request) -> Response:
    """`/login`."""
    return _form(request, request.query_params.get("next", ""))


async def login(request: Request) -> Response:
    """The form sent in. Refused without the form's own secret, or from another site's page."""
    fields = await form_of(request)
    next = local_path(fields.get("next", ""))
    if not forms.is_own(request, fields.get("form_secret", "")):
        return _form(request, next, "The form was too old, or came from elsewhere. Here is a fresh one.", status=403)
    if fields.get("action") == "sign-out":
        return _signed_out(request)
    token, sign_ins = fields.get("token", "").strip(), sign_ins_of(request)
    address = request.client.host if request.client else ""
    sign_ins.admit(address)
    if not token or not token.isascii() or tokens_of(request).may_read(token) is None:
        sign_ins.failed(address)
        return _form(request, next, "No token like this may read here.", status=401)
    response = RedirectResponse(next, 303)
    response.set_cookie(
        COOKIE, token, max_age=SIGNED_IN_SECONDS, httponly=True, samesite="lax", secure=forms.secure(request)
    )
    return response


def local_path(written: str) -> str:
    """`written` where it is a path on this server, else the front page: the sign-in leads nowhere else."""
    plain = all(character.isprintable() for character in written)
    if not plain or not written.startswith("/") or written.startswith(("//", "/\\")) or urlsplit(written).netloc:
        return "/"
    return "/" if written.partition("?")[0] == "/login" else written


def _form(request: Request, next: str, problem: str = "", *, status: int = 200) -> Response:
    secret = forms.secret_for(request)
    page = LoginPage(
        site=site_of(request, "Sign in"),
        form_secret=secret,
        next=local_path(next),
        problem=problem,
        needed=not tokens_of(request).none_set,
    )
    return forms.remembered(render.html("login.html", page, status=status), request, secret)


def _signed_out(request: Request) -> Response:
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="lax", secure=forms.secure(request))
    return response
