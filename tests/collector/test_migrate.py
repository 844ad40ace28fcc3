"""Migrations: once, in order, safe at once and after a kill, and never over an edited file."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import migrations
from collector import migrate
from collector.clickhouse import Database
from collector.settings import Settings

NAMES = [migration.name for migration in migrate.known()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the program's migrations, to be changed."""
    for entry in Path(migrations.__file__).parent.iterdir():
        if entry.suffix == ".sql" or entry.name == "LATEST":
            shutil.copy(entry, tmp_path)
    return tmp_path


async def test_applies_once_and_plans_nothing_after(empty_db: Database) -> None:
    assert [one.name for one in await migrate.plan(empty_db)] == NAMES
    with pytest.raises(migrate.MigrationError, match="migrations wait, the first is 0001_spans"):
        await migrate.check(empty_db)
    assert [one.name for one in await migrate.apply(empty_db, retention_days=14)] == NAMES
    assert await migrate.plan(empty_db) == []
    assert await migrate.apply(empty_db, retention_days=14) == []
    await migrate.check(empty_db)


async def test_two_at_once_and_a_kill_between_statement_and_record(empty_db: Database, settings: Settings) -> None:
    other = await Database.open(settings)
    await asyncio.gather(migrate.apply(empty_db, retention_days=14), migrate.apply(other, retention_days=14))
    assert await migrate.plan(other) == []
    await other.command(f"TRUNCATE TABLE {migrate.RECORDS}")  # every statement ran, no record was written
    assert [one.name for one in await migrate.apply(other, retention_days=14)] == NAMES
    await other.close()


async def test_an_edited_or_missing_file_is_refused(db: Database, folder: Path) -> None:
    edited = folder / NAMES[0]
    edited.write_text(edited.read_text() + "\n-- changed")
    with pytest.raises(migrate.MigrationError, match=f"{NAMES[0]} was edited"):
        await migrate.plan(db, migrate.known(folder))
    with pytest.raises(migrate.MigrationError, match="older than the store"):
        await migrate.apply(db, retention_days=14, migrations=migrate.known()[1:])


async def test_age_follows_the_setting_and_is_changed_only_when_it_differs(db: Database) -> None:
    async def ages() -> dict[str, str]:
        rows = await db.query(
            "SELECT name, create_table_query AS q FROM system.tables WHERE database = currentDatabase()"
        )
        return {row["name"]: row["q"] for row in rows}

    async def alters() -> int:
        [row] = await db.query("SELECT count() AS n FROM system.mutations WHERE database = currentDatabase()")
        return int(row["n"])

    await migrate.apply(db, retention_days=3)
    assert "toIntervalDay(3)" in (await ages())["spans"]
    assert "toIntervalDay(30)" in (await ages())["jobs"], "what a request came to outlives its spans tenfold"
    assert "toIntervalDay(14)" not in str(await ages())
    documents = await db.query(
        "SELECT create_table_query AS q FROM system.tables WHERE database = currentDatabase() AND name = 'jobs'"
    )
    assert documents[0]["q"].count("TTL") == 2, "only the searched text and the row itself have an age"
    before = await alters()
    await migrate.apply(db, retention_days=3)
    assert await alters() == before


def test_the_folder_must_be_sound(folder: Path) -> None:
    (folder / "LATEST").write_text("0000_else.sql")
    with pytest.raises(migrate.MigrationError, match="LATEST"):
        migrate.known(folder)
    last = folder / "9999_last.sql"
    (folder / "LATEST").write_text(last.name)
    for text, said in [("CREATE TABLE IF NOT EXISTS x", "first line says why"), ("-- why\nCREATE TABLE x", "twice")]:
        last.write_text(text)
        with pytest.raises(migrate.MigrationError, match=said):
            migrate.known(folder)


def test_each_migration_says_why_and_is_one_statement() -> None:
    for migration in migrate.known():
        assert len(migration.why) > 20
        assert ";" not in migration.statement
