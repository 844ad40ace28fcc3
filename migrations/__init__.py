"""SQL migrations: one statement per file, applied in the order of their names (`collector/migrate.py`)."""
