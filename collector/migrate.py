"""Bring the store's tables up to date: `migrations/*.sql` in order, each once, each checked.

One statement a file, and each may be run again without harm (IF NOT EXISTS and the like), because ClickHouse has no
transactions: after a kill between a statement and its record, or with two processes at it, a statement runs twice.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final

import migrations as sql_files

from .clickhouse import Database
from .errors import StallscopeError

RECORDS: Final = "stallscope_migrations"
STATEMENT_SECONDS: Final = 300.0
KEPT_LONGER: Final = {"jobs": 10, "job_times": 10, "verdict_history": 10, "audit": 10, "group_actions": 10}
"""Tables kept a multiple of STALLSCOPE_RETENTION_DAYS: what a request came to outlives its spans."""
_TABLE_AGE = re.compile(r"TTL (?P<before>.*?)toIntervalDay\((?P<days>\d+)\)")
_COLUMN_AGE = re.compile(
    r"`(?P<column>\w+)` (?:(?!\) ENGINE)[^`])*? TTL (?P<before>[^`]*?)toIntervalDay\((?P<days>\d+)\)"
)
"""Stops where the list of columns ends: the age of the table is not its last column's."""
_RUNS_TWICE = re.compile(r"\bIF (NOT )?EXISTS\b|\bMODIFY\b|^INSERT INTO job_times\b", re.IGNORECASE)
"""`job_times` keeps one row of those with the same key and version."""


class MigrationError(StallscopeError):
    """The migrations of this program and of the store do not fit together. The message says which file."""

    code, title = "migration_error", "Migrations do not fit"


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its name, why it exists (the comment that it begins with), its statement, the checksum of its text."""

    name: str
    why: str
    statement: str
    checksum: str


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A record in the store's own table."""

    name: str
    checksum: str
    applied_ms: int


def known(folder: Path | None = None) -> list[Migration]:
    """The migrations of this program, in order. Raises MigrationError where the folder is not sound."""
    folder = folder or Path(sql_files.__file__).parent
    found = sorted(folder.glob("*.sql"))
    migrations = [_read(entry) for entry in found]
    latest = (folder / "LATEST").read_text(encoding="utf-8").strip()
    if not migrations or migrations[-1].name != latest:
        raise MigrationError(f"migrations/LATEST names {latest}, which is not the last file")
    return migrations


def _read(entry: Path) -> Migration:
    text = entry.read_text(encoding="utf-8").strip()
    lines = text.splitlines()
    comment = list(takewhile(lambda line: line.startswith("--"), lines))
    statement = "\n".join(lines[len(comment) :])
    if not comment or not statement:
        raise MigrationError(f"{entry.name}: the first line says why, as a comment; the statement follows")
    if not _RUNS_TWICE.search(statement):
        raise MigrationError(f"{entry.name}: a statement must be harmless when it runs twice (IF NOT EXISTS)")
    return Migration(
        name=entry.name,
        why=" ".join(line.removeprefix("--").strip() for line in comment),
        statement=statement.strip().rstrip(";"),
        checksum=hashlib.sha256(text.encode()).hexdigest(),
    )


async def plan(db: Database, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Migrations that wait to be applied. Changes nothing.

    Raises MigrationError where an applied one was edited since, or is missing here (a newer program was at this store).
    """
    migrations = known() if migrations is None else migrations
    applied = await _applied(db)
    missing = sorted(applied.keys() - {migration.name for migration in migrations})
    if missing:
        raise MigrationError(
            f"the store has {missing[0]}, which this program does not know: it is older than the store"
        )
    for migration in migrations:
        if applied.get(migration.name, migration.checksum) != migration.checksum:
            raise MigrationError(f"{migration.name} was edited after it was applied; put the change into a new file")
    return [migration for migration in migrations if migration.name not in applied]


async def apply(db: Database, *, retention_days: int, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply what `plan` names, then set the age at which rows go. Returns what was applied."""
    pending = await plan(db, migrations)
    await db.command(
        f"CREATE TABLE IF NOT EXISTS {RECORDS} (name String, checksum String, applied_ms Int64)"
        " ENGINE = ReplacingMergeTree ORDER BY name"
    )
    for migration in pending:
        await db.command(migration.statement, seconds=STATEMENT_SECONDS)
        record = AppliedMigration(migration.name, migration.checksum, time.time_ns() // 1_000_000)
        await db.insert(RECORDS, [record], token=f"{migration.name}-{migration.checksum}")
    await keep_for(db, retention_days)
    return pending


async def check(db: Database) -> None:
    """Raise MigrationError where a migration waits. A store that a newer program has been at is fine: changes add."""
    applied = await _applied(db)
    waiting = [migration.name for migration in known() if migration.name not in applied]
    if waiting:
        raise MigrationError(f"{len(waiting)} migrations wait, the first is {waiting[0]}: run `stallscope migrate`")


async def keep_for(db: Database, retention_days: int) -> None:
    """Give every table and column with an age its age, by changing it only where it differs."""
    tables = await db.query(
        "SELECT name, engine_full, create_table_query FROM system.tables"
        " WHERE database = currentDatabase() AND position(create_table_query, 'toIntervalDay') > 0 ORDER BY name"
    )
    for table in tables:
        kept = retention_days * KEPT_LONGER.get(table["name"], 1)
        changes = [
            f"MODIFY TTL {found['before']}toIntervalDay({kept})"
            for found in _TABLE_AGE.finditer(table["engine_full"])
            if int(found["days"]) != kept
        ] + [
            f"MODIFY COLUMN {found['column']} TTL {found['before']}toIntervalDay({retention_days})"
            for found in _COLUMN_AGE.finditer(table["create_table_query"])
            if int(found["days"]) != retention_days
        ]
        for change in changes:
            await db.command(f"ALTER TABLE {table['name']} {change}", seconds=STATEMENT_SECONDS)


async def _applied(db: Database) -> dict[str, str]:
    """Name to checksum of what the store has. A store never migrated has nothing."""
    exists = await db.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND name = {name:String}", {"name": RECORDS}
    )
    if not exists:
        return {}
    rows = await db.query(f"SELECT DISTINCT name, checksum FROM {RECORDS} ORDER BY name")  # noqa: S608 (a constant)
    return {row["name"]: row["checksum"] for row in rows}
