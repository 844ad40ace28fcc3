"""`stallscope rediagnose` as a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_commands import stallscope


def test_a_store_is_diagnosed_once_more(tmp_path: Path) -> None:
    pytest.importorskip("chdb", reason="no embedded engine: pip install chdb-core", exc_type=ImportError)
    url = f"chdb://{tmp_path}/store"
    early = stallscope("rediagnose", "--json", STALLSCOPE_DATABASE_URL=url)
    assert (early.returncode, json.loads(early.stderr.splitlines()[-1])["code"]) == (1, "api_error")
    assert stallscope("migrate", STALLSCOPE_DATABASE_URL=url).returncode == 0
    done = stallscope("rediagnose", "--since", "1h", "--json", STALLSCOPE_DATABASE_URL=url)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"diagnosed": 0, "revised": 0, "failed": 0})


def test_a_store_that_is_away_is_said_to_be() -> None:
    done = stallscope("rediagnose", "--json", STALLSCOPE_DATABASE_URL="clickhouse://127.0.0.1:9/x")
    assert (done.returncode, json.loads(done.stderr.splitlines()[-1])["code"]) == (3, "network_error")
