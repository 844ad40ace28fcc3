"""Addresses of pages. Ids are hostile text: they are percent-encoded here, and read back from the raw path here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote, urlencode

from collector.app import decoded

Form = Literal["html", "json", "md"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a path asks for: an id, and the form of the page."""

    id: str
    form: Form


def encoded(text: str) -> str:
    """One path segment that means exactly `text`.

    A dot before a last `json` or `md` is encoded too, which nothing in URLs requires: that is how an id that ends in
    `.json` is told from the JSON twin of a page.
    """
    segment = quote(text.encode("utf-8", "replace"), safe="")
    for form in get_args(Form):
        if segment.endswith(f".{form}"):
            return f"{segment[: -len(form) - 1]}%2E{form}"
    return segment


def page(kind: str, id: str, form: Form = "html") -> str:
    """The address of a page about one thing: `page("jobs", "a/b", "md")` → `/jobs/a%2Fb.md`."""
    return f"/{kind}/{encoded(id)}" + ("" if form == "html" else f".{form}")


def events(job_id: str) -> str:
    """The address of the API's events about an open request."""
    return f"/api/v1/jobs/{quote(job_id.encode('utf-8', 'replace'), safe='')}/events"


def listing(path: str, filters: Mapping[str, str | int | None]) -> str:
    """The address of a list with the filters that are set."""
    written = {name: str(value) for name, value in filters.items() if value not in (None, "")}
    return f"{path}?{urlencode(written, errors='replace')}" if written else path


def target(raw: str) -> Target:
    """The id and the form that the still encoded rest of a path names. The inverse of `page`."""
    for twin in get_args(Form):
        if raw.endswith(f".{twin}"):
            return Target(decoded(raw[: -len(twin) - 1]), twin)
    return Target(decoded(raw), "html")
