"""What people said about a failure: resolved, open again, notes. Whether it came back is worked out when it is read."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from collector.clickhouse import Database
from collector.errors import BadInput
from collector.queries.groups import GroupSummary
from collector.queries.stored import ms_of, time_of_ms
from sdk_exporter.bounds import clip
from sdk_exporter.redaction import redact

GroupAction = Literal["resolve", "reopen", "note"]
GroupState = Literal["open", "resolved", "came_back"]
NOTE_BYTES: Final = 4_096
NOTES_READ: Final = 100
WHO_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class GroupActionRow:
    """One thing that somebody said (table `group_actions`; field order is column order)."""

    tenant: str
    fingerprint: str
    at_ms: int
    id: str
    action: str
    who: str
    note: str


@dataclass(frozen=True, slots=True)
class Said:
    """The same as a page tells it. `who` is empty where the server has no tokens."""

    at: datetime
    action: GroupAction
    who: str
    note: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a failure counts as dealt with. `resolved_at` stays where it came back since."""

    state: GroupState = "open"
    resolved_at: datetime | None = None


async def say(
    db: Database, tenant: str, fingerprint: str, action: GroupAction, now: datetime, *, who: str = "", note: str = ""
) -> None:
    """Store it. A note is freed of secrets, as everything that is kept. Raises BadInput for a note without text."""
    written = clip(redact(note.strip()), NOTE_BYTES)
    if action == "note" and not written:
        raise BadInput("note: write something first")
    row = GroupActionRow(tenant, fingerprint, ms_of(now), uuid.uuid4().hex, action, clip(who, WHO_BYTES), written)
    await db.insert("group_actions", [row], token=row.id)


_SAID: Final = """
SELECT at_ms, action, who, note
FROM group_actions
WHERE tenant = {tenant:String} AND fingerprint = {fingerprint:String}
ORDER BY at_ms DESC, id DESC
LIMIT {most:UInt32}
"""


async def said_about(db: Database, tenant: str, fingerprint: str) -> tuple[Said, ...]:
    """What was said about one failure, the newest first."""
    parameters = {"tenant": tenant, "fingerprint": fingerprint, "most": NOTES_READ}
    rows = await db.query(_SAID, parameters, max_rows=NOTES_READ)
    return tuple(Said(time_of_ms(int(row["at_ms"])), row["action"], row["who"], row["note"]) for row in rows)


_RESOLVED: Final = """
SELECT fingerprint, max(at_ms) AS newest_ms
FROM group_actions
WHERE tenant = {tenant:String} AND fingerprint IN {fingerprints:Array(String)} AND action IN ('resolve', 'reopen')
GROUP BY fingerprint
HAVING argMax(action, (at_ms, id)) = 'resolve'
"""


async def standings(db: Database, tenant: str, groups: Sequence[GroupSummary]) -> Mapping[str, Standing]:
    """How each of these failures stands, by fingerprint: one that was seen after it was resolved came back."""
    asked = [group.fingerprint for group in groups]
    if not asked:
        return {}
    rows = await db.query(_RESOLVED, {"tenant": tenant, "fingerprints": asked}, max_rows=len(asked))
    resolved = {str(row["fingerprint"]): time_of_ms(int(row["newest_ms"])) for row in rows}
    return {group.fingerprint: _standing(group, resolved.get(group.fingerprint)) for group in groups}


def _standing(group: GroupSummary, resolved_at: datetime | None) -> Standing:
    if resolved_at is None:
        return Standing()
    return Standing("came_back" if group.last_seen > resolved_at else "resolved", resolved_at)
