"""The Prometheus rules: held to promtool, to the metrics that there are, and to the runbooks that they name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pytest
from debian import program
from parts import eventually

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "alerts" / "stallscope.rules.yaml"


@pytest.fixture
def promtool() -> str:
    return program("promtool")


@pytest.mark.parametrize("words", [("check", "rules", "stallscope.rules.yaml"),
                                   ("test", "rules", "stallscope.rules.test.yaml")])  # fmt: skip
def test_promtool_agrees(promtool: str, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [promtool, *words], cwd=RULES.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_names_a_page_that_is_there() -> None:
    text = RULES.read_text(encoding="utf-8")
    pages = re.findall(r"runbook_url: https://\S+/main/(docs/\S+)", text)
    assert len(pages) == text.count("- alert: ")
    assert [page for page in pages if not (ROOT / page).is_file()] == []


async def test_every_metric_that_the_rules_ask_for_is_served(server: httpx.AsyncClient) -> None:
    asked = set(re.findall(r"\bstallscope_[a-z_]+", RULES.read_text(encoding="utf-8")))

    async def looked() -> bool:
        served = (await server.get("/metrics")).text
        return not re.search(r"^stallscope_watch_last_success_timestamp_seconds 0\.0$", served, re.MULTILINE)

    await eventually(looked)
    served = set(re.findall(r"^# TYPE (\w+)", (await server.get("/metrics")).text, re.MULTILINE))
    assert asked - served == set()
