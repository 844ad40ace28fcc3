"""The collector as the ingest benchmark runs it: taking in and storing, without the verdicts that rotel has none of.

`python benchmarks/ingest_server.py PORT`, settings from the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys

import uvicorn

from collector import health, ingest, memory, metrics, migrate
from collector.app import create_app
from collector.clickhouse import Database
from collector.settings import Settings


async def _migrated(settings: Settings) -> None:
    db = await Database.open(settings)
    await migrate.apply(db, retention_days=settings.retention_days)
    await db.close()


def main() -> int:
    """Serve until SIGTERM."""
    settings = Settings.from_env(os.environ)
    asyncio.run(_migrated(settings))
    memory.keep_little()
    app = create_app(settings, [health.router, metrics.router, ingest.router])
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
