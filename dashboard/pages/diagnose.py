"""Paste a log that somebody sent you, and read the verdict. Nothing is stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, get_args

from fastapi import Request, Response

from collector.auth import ReadTenant
from collector.diagnosis import diagnose_tail
from collector.diagnosis.answer import LogTail, Verdict
from collector.diagnosis.clues import CluePhase, Clues
from dashboard import render, wording
from dashboard.contexts import DiagnosePage, Site, TailView
from dashboard.pages.failure import evidence_of
from dashboard.site import form_of, site_of
from dashboard.tail_view import tail_view
from sdk_exporter import bounds
from sdk_exporter.contract import LOG_TAIL_BYTES
from sdk_exporter.redaction import count, redact

PHASES: Final[tuple[CluePhase, ...]] = get_args(CluePhase)
EXIT_CODES: Final = range(-64, 256)


@dataclass(frozen=True, slots=True)
class Pasted:
    """What the form held, as it was written."""

    text: str = ""
    phase: str = ""
    exit_code: str = ""


async def diagnose_page(request: Request, tenant: ReadTenant) -> Response:
    """`/diagnose`."""
    return render.html("diagnose.html", diagnose_view(site_of(request, "Diagnose", "Diagnose"), Pasted()))


async def diagnose(request: Request, tenant: ReadTenant) -> Response:
    """The form sent in."""
    fields = await form_of(request)
    pasted = Pasted(
        text=fields.get("log_tail", "").replace("\r\n", "\n"),  # browsers send CRLF whatever was pasted
        phase=fields.get("phase", ""),
        exit_code=fields.get("exit_code", "").strip(),
    )
    site = site_of(request, "Diagnose", "Diagnose")
    problem = problem_with(pasted)
    if problem:
        return render.html("diagnose.html", diagnose_view(site, pasted, problem), status=400)
    # Milliseconds of a processor: not on the loop that serves everyone.
    shown, verdict = await asyncio.to_thread(read, pasted)
    return render.html("diagnose.html", diagnose_view(site, pasted, verdict=verdict, shown=shown))


def read(pasted: Pasted) -> tuple[str, Verdict]:
    """The end of the pasted log without its secrets, and the verdict on it. Redacted before it is cut: a cut secret
    would not be known as one."""
    shown = bounds.tail(redact(pasted.text), LOG_TAIL_BYTES)
    return shown, diagnose_tail(clues_of(pasted, shown))


def problem_with(pasted: Pasted) -> str:
    """Why the form cannot be used; empty where it can."""
    if not pasted.text.strip():
        return "Paste some lines of a log first."
    if pasted.phase not in ("", *PHASES):
        return "There is no such phase."
    if pasted.exit_code and _exit_code(pasted.exit_code) is None:
        return f"An exit code is a number between {EXIT_CODES.start} and {EXIT_CODES.stop - 1}."
    return ""


def clues_of(pasted: Pasted, text: str) -> Clues:
    """The form as clues. What was left open is not known."""
    phase = next((phase for phase in PHASES if phase == pasted.phase), None)
    return Clues(text=text, phase=phase, exit_code=_exit_code(pasted.exit_code))


def _exit_code(written: str) -> int | None:
    digits = written.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        return None
    return int(written) if int(written) in EXIT_CODES else None


def diagnose_view(
    site: Site, pasted: Pasted, problem: str = "", *, verdict: Verdict | None = None, shown: str = ""
) -> DiagnosePage:
    """The form, and the verdict where there is one. Pure."""
    tail = _tail(pasted.text, shown, verdict) if verdict else None
    return DiagnosePage(
        site=site,
        pasted=pasted.text[-LOG_TAIL_BYTES:],
        phase=pasted.phase,
        exit_code=pasted.exit_code,
        phases=PHASES,
        problem=problem,
        verdict=verdict,
        fault=wording.SIDES[verdict.fault] if verdict else "",
        evidence=evidence_of(verdict, {}, tail) if verdict else (),
        tail=tail,
    )


def _tail(pasted: str, shown: str, verdict: Verdict) -> TailView:
    whole = len(pasted.encode("utf-8", "replace"))
    dropped = max(0, whole - LOG_TAIL_BYTES)
    tail_read = LogTail(shown, len(shown.encode()), dropped, 0, count(shown), dropped == 0, "worker")
    return tail_view(tail_read, verdict)
