"""A typed page → HTML, and its JSON and Markdown twins. The one place that knows templates."""

from __future__ import annotations

import csv as csvlib
import dataclasses
import hashlib
import io
import json as jsonlib
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from fastapi import Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from collector.diagnosis.answer import Answer
from collector.json_forms import item_json, time_text
from dashboard import filters, urls, wording
from dashboard.contexts import JobRow, Site

STATIC: Final[Mapping[str, str]] = {
    "stallscope.css": "text/css; charset=utf-8",
    "stallscope.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@lru_cache
def static_file(name: str) -> bytes:
    """The bytes of a file in `static/`. Only names of `STATIC` are asked for."""
    return resources.files("dashboard").joinpath("static").joinpath(name).read_bytes()


@lru_cache
def static_url(name: str) -> str:
    """Its address, which changes with its content, so that browsers may keep it for good."""
    return f"/static/{name}?v={hashlib.sha256(static_file(name)).hexdigest()[:12]}"


def _shown(value: object) -> object:
    """Every expression of every template passes here: hostile characters become visible, None becomes words."""
    if value is None:
        return filters.NOT_KNOWN
    if isinstance(value, str) and not isinstance(value, Markup):
        return filters.visible(value)
    return value


@lru_cache
def environment() -> Environment:
    """The templates, with escaping always on and unknown names an error."""
    env = Environment(
        loader=PackageLoader("dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (
        filters.duration,
        filters.size,
        filters.number,
        filters.plural,
        filters.age,
        filters.stamp,
        filters.clock,
        filters.rfc3339,
        filters.words,
        filters.short,
        filters.ticks,
    ):
        env.filters[function.__name__] = function
    env.globals.update(
        page_url=urls.page,
        events_url=urls.events,
        listing_url=urls.listing,
        tones=wording.TONES,
        marks=wording.MARKS,
        sides=wording.SIDES,
        retries=wording.RETRIES,
        confidences=wording.CONFIDENCES,
        vantages=wording.VANTAGES,
        icon_url=static_url("icon.svg"),
    )
    return env


def html_text(template: str, page: Any) -> str:
    """The page as HTML. `page` is one of `contexts`, whose `site` frames it."""
    return environment().get_template(template).render(page=page, site=page.site)


def html(template: str, page: Any, *, status: int = 200) -> Response:
    """The page as an answer."""
    return Response(html_text(template, page), status, media_type="text/html")


def json(value: Any, *, status: int = 200) -> Response:
    """Any context or plain value as JSON, in the API's forms. The frame of a page is left out."""
    body = jsonlib.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False)
    return Response(body.encode("utf-8", "replace"), status, media_type="application/json")


def csv(head: Sequence[str], rows: Iterable[Sequence[object]], *, next_url: str | None = None) -> Response:
    """A table as CSV (RFC 4180). A list that goes on says where, in a `Link` header."""
    written = io.StringIO()
    table = csvlib.writer(written)
    table.writerow(head)
    table.writerows([_cell(value) for value in row] for row in rows)
    headers = {"Link": f'<{next_url}>; rel="next"'} if next_url else {}
    return Response(
        written.getvalue().encode("utf-8", "replace"), headers=headers, media_type="text/csv; charset=utf-8"
    )


def _cell(value: object) -> str:
    """A value as a cell that no spreadsheet takes for a formula, whatever a worker wrote."""
    text = "" if value is None else filters.visible(str(value))
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def markdown(text: str) -> Response:
    """Markdown as an answer."""
    return Response(text.encode("utf-8", "replace"), media_type="text/markdown; charset=utf-8")


def plain(value: Any) -> Any:
    """Dataclasses as objects without their `site`, requests as items of the API's list, times in RFC 3339."""
    if isinstance(value, (JobRow, Answer)):
        return item_json(value.answer if isinstance(value, JobRow) else value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: plain(item) for name, item in fields if not isinstance(item, Site) and name != "form_secret"}
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
