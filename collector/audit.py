"""Who changed what: a line in the store before the change is made, so that none is made without one."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.requests import Request

from sdk_exporter.bounds import clip
from sdk_exporter.redaction import redact

from .clickhouse import Database
from .queries import cursor as cursors
from .queries.pages import LIMIT_DEFAULT, Page, checked_limit, page_of
from .queries.stored import ms_of, time_of_ms

REQUEST_BYTES: Final = 2_048


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change that was asked for (table `audit`; field order is column order)."""

    tenant: str
    at_ms: int
    id: str
    token: str
    address: str
    request: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """The same as the API tells it. `token`: the start of the SHA-256 of the token, empty where the server has none."""

    at: datetime
    token: str
    address: str
    request: str


async def record(request: Request, tenant: str, token: str) -> None:
    """Store that the holder of `token` may now do what `request` asks for. Raises StoreUnavailable: nothing is done."""
    db: Database = request.app.state.parts.db
    path = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope.get("query_string", b"")
    asked = b"%s %s%s" % (request.method.encode(), path.partition(b"?")[0], b"?" + query if query else b"")
    row = AuditRow(
        tenant=tenant,
        at_ms=time.time_ns() // 1_000_000,
        id=uuid.uuid4().hex,
        token=token,
        address=request.client.host if request.client else "",
        request=clip(redact(asked.decode("utf-8", "replace")), REQUEST_BYTES),
    )
    await db.insert("audit", [row], token=row.id)


_LIST: Final = """
SELECT tenant, at_ms, id, token, address, request
FROM audit
WHERE tenant = {tenant:String} AND at_ms >= {since_ms:Int64}
  AND (at_ms, id) < ({before_ms:Int64}, {before_id:String})
ORDER BY at_ms DESC, id DESC
LIMIT {limit:UInt32}
"""


async def entries(
    db: Database, tenant: str, since: datetime, *, cursor: str | None = None, limit: int = LIMIT_DEFAULT
) -> Page[AuditEntry]:
    """What was asked to change since then, newest first."""
    before = cursors.read(cursor)
    parameters = {
        "tenant": tenant,
        "since_ms": ms_of(since),
        "before_ms": before.first_ns,
        "before_id": before.job_id,
        "limit": checked_limit(limit) + 1,
    }
    rows = await db.query(_LIST, parameters, max_rows=limit + 1)
    return page_of(
        rows,
        limit,
        lambda row: AuditEntry(time_of_ms(row["at_ms"]), row["token"], row["address"], row["request"]),
        lambda row: (row["at_ms"], row["id"]),
    )
