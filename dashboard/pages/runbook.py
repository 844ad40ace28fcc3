"""What to do about an alert: the pages of `docs/runbooks`, which travel with the package."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from importlib.abc import Traversable
from pathlib import Path
from typing import Final

from fastapi import Request, Response
from markdown_it import MarkdownIt
from markupsafe import Markup

from collector.errors import NotFound
from dashboard import render
from dashboard.contexts import RunbookPage
from dashboard.site import site_of

_NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


async def runbook_page(request: Request, name: str) -> Response:
    """`/docs/runbooks/{name}`, also with `.md`. Open to everyone: a page at night must open wherever it is read."""
    body = runbook_html(name.removesuffix(".md"))
    if body is None:
        raise NotFound("no runbook by this name")
    return render.html("runbook.html", RunbookPage(site=site_of(request, "Runbook"), body=body))


@lru_cache
def runbook_html(name: str) -> Markup | None:
    """The page as HTML; None where there is none."""
    page = _folder().joinpath(f"{name}.md") if _NAME.fullmatch(name) else None
    if page is None or not page.is_file():
        return None
    return Markup(MarkdownIt("commonmark", {"html": False}).render(page.read_text(encoding="utf-8")))  # noqa: S704  ours


def _folder() -> Traversable:
    """In a wheel beside the alerts, in a checkout where they are written."""
    shipped = resources.files("collector.alerts").joinpath("runbooks")
    return shipped if shipped.is_dir() else Path(__file__).parents[2] / "docs" / "runbooks"
