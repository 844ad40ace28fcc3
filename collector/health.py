"""Alive and ready: two different questions. A store that is away makes the process unready, never dead."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from .app import parts_of
from .errors import StallscopeError

router = APIRouter(include_in_schema=False)

READY_SECONDS: Final = 2.0


@router.get("/healthz")
async def healthz() -> JSONResponse:
    """The process is up."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(request: Request) -> JSONResponse:
    """The store answers now and its migrations are applied; else 503 with the reason. Says what the journal holds, and
    how it goes with what is asked of its own accord: a platform that does not answer makes nothing unready."""
    parts = parts_of(request)
    reason = parts.store.reason
    if parts.store.ready.is_set():
        try:
            await parts.db.query("SELECT 1", seconds=READY_SECONDS)
        except StallscopeError as error:
            reason = str(error)
    journal: dict[str, Any] = {}
    if parts.journal is not None:
        journal["journal"] = {"bytes": parts.journal.bytes_waiting, "age_seconds": parts.journal.age_seconds}
    sources = {name: {"ok": (told := state()).ok, "detail": told.detail} for name, state in parts.sources.items()}
    if reason:
        return JSONResponse(
            {"status": "not ready", "reason": reason, **journal, **sources}, 503, headers={"Retry-After": "1"}
        )
    return JSONResponse({"status": "ready", **journal, **sources})
