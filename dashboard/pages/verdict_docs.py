"""What each verdict and each cause means, from the catalogue that the verdicts themselves use."""

from __future__ import annotations

from fastapi import Request, Response

from collector.diagnosis.verdicts import CAUSES, VERDICTS, CauseEntry, VerdictEntry
from collector.queries import NO_FAILURE
from dashboard import render, wording
from dashboard.contexts import DocEntry, Site, VerdictDocsPage
from dashboard.site import site_of


async def verdict_docs_page(request: Request) -> Response:
    """`/docs/verdicts`. Open to everyone: it is the manual."""
    return render.html("verdict_docs.html", verdict_docs_view(site_of(request, "Verdicts", twins=TWINS)))


async def verdict_docs_json(request: Request) -> Response:
    """`/docs/verdicts.json`."""
    return render.json(verdict_docs_view(site_of(request, "Verdicts")))


TWINS = (("JSON", "/docs/verdicts.json"),)


def verdict_docs_view(site: Site) -> VerdictDocsPage:
    """The catalogue as the page shows it. Pure."""
    return VerdictDocsPage(
        site=site,
        verdicts=tuple(_entry(entry, entry.code, entry.needs) for entry in VERDICTS.values()),
        causes=tuple(_entry(entry, f"cause-{entry.code}", "") for entry in CAUSES.values()),
    )


def _entry(entry: VerdictEntry | CauseEntry, anchor: str, needs: str) -> DocEntry:
    return DocEntry(
        code=entry.code,
        anchor=anchor,
        title=entry.title,
        meaning=entry.meaning,
        needs=needs,
        fault="" if entry.fault == "unknown" else wording.SIDES[entry.fault],
        retry="" if entry.code in NO_FAILURE or entry.code == "no_failure" else wording.RETRIES[entry.retry],
        advice=entry.advice,
    )
