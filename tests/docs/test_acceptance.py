"""Every line of the acceptance page names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_line_has_a_test_and_every_test_exists() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    rows = re.findall(r"^\| A(\d+) \|.*\| ([^|]+) \|$", (ROOT / "docs/acceptance.md").read_text("utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 53))
    for number, tests in rows:
        named = set(re.findall(r"`(test_\w+)`", tests))
        assert named, number
        assert named <= defined, (number, named - defined)


def test_prestart_is_described_as_it_runs() -> None:  # A38
    page = (ROOT / "docs/exporter.md").read_text(encoding="utf-8")
    assert "before the job loop" not in page
    assert "alongside" in page
