"""What every page handler shares: the frame, the clock, headers, forms and what a path names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.convertors import Convertor, register_url_convertor

from collector.app import raw_path_tail
from collector.auth import COOKIE
from collector.errors import BadInput, NotFound, TooLarge
from dashboard.contexts import Site
from dashboard.render import static_url
from dashboard.urls import Form, Target, target
from sdk_exporter.bounds import clip
from sdk_exporter.contract import JOB_ID_BYTES

FORM_BYTES: Final = 1 << 20  # a pasted log; only its last 16 KiB are read anyway
FORM_FIELDS: Final = 20

# `same-origin` and not `no-referrer`: browsers then send `Origin: null` with forms, and the sign-in could not check it.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Anything(Convertor[str]):
    """The rest of a path whatever it holds: ids may contain slashes, and newlines too, where `path` stops."""

    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        """The text as it is."""
        return value

    def to_string(self, value: str) -> str:
        """The text as it is."""
        return value


register_url_convertor("anything", Anything())


class PageRoute(APIRoute):
    """A route whose answers carry the headers of a page. What can be read can be asked for its head too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.methods and "GET" in self.methods:
            self.methods.add("HEAD")

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The usual handler, and the headers."""
        handle = super().get_route_handler()

        async def with_headers(request: Request) -> Response:
            return secured(await handle(request))

        return with_headers


def secured(response: Response) -> Response:
    """`response` with the headers of a page, unless it brought its own."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(timezone.utc)


def site_of(
    request: Request, title: str, section: str = "", *, twins: tuple[tuple[str, str], ...] = (), search: str = ""
) -> Site:
    """The frame of a page."""
    return Site(
        title=title,
        section=section,
        now=clock(),
        signed_in=COOKIE in request.cookies,
        search=search,
        stylesheet=static_url("stallscope.css"),
        script=static_url("stallscope.js"),
        twins=twins,
    )


def target_of(request: Request, prefix: str, forms: Collection[Form] = ("html", "json")) -> Target:
    """The id and form that this request's path names behind `prefix`; the id cut where ids are cut when stored.

    Raises NotFound where the page has no such form.
    """
    named = target(raw_path_tail(request, prefix))
    if named.form not in forms:
        raise NotFound(f"This page has no form `.{named.form}`.")
    return replace(named, id=clip(named.id, JOB_ID_BYTES))


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a posted form. Raises TooLarge and BadInput; a body that says it is small is not believed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadInput("content-type: a form is application/x-www-form-urlencoded")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            raise TooLarge("a form", FORM_BYTES)
    try:
        pairs = parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, errors="replace", max_num_fields=FORM_FIELDS
        )
    except ValueError:
        raise BadInput(f"a form has no more than {FORM_FIELDS} fields") from None
    return dict(pairs)
