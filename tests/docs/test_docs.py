"""The reference pages say what the code has, and nothing that it has not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

from collector import errors
from collector.settings import PREFIX, READ_BY_OTHERS, Settings
from sdk_exporter import contract

DOCS = Path(__file__).parents[2] / "docs"


def in_code_marks(page: str) -> set[str]:
    """Everything between backticks on a page."""
    return set(re.findall(r"`([^`\n]+)`", (DOCS / page).read_text(encoding="utf-8")))


def test_every_setting_is_described_and_nothing_else() -> None:
    described = {word for word in in_code_marks("settings.md") if re.fullmatch(r"STALLSCOPE_[A-Z_]+", word)}
    assert described == {PREFIX + name.upper() for name in Settings.model_fields} | READ_BY_OTHERS


@pytest.mark.parametrize("name", sorted(set(Settings.model_fields) - {"database_url"}))
def test_the_described_default_is_the_default(name: str) -> None:
    row = next(
        line
        for line in (DOCS / "settings.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{PREFIX}{name.upper()}`")
    )
    default = getattr(Settings(), name)
    if hasattr(default, "get_secret_value"):
        assert "| none |" in row
    else:
        assert json.loads(row.split("|")[2].strip(" `")) == default


def error_classes() -> Iterator[type[errors.StallscopeError]]:
    todo = [errors.StallscopeError]
    while todo:
        found = todo.pop()
        yield found
        todo += found.__subclasses__()


def test_every_error_code_is_described_with_its_status() -> None:
    rows = {}
    for line in (DOCS / "errors.md").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `(\w+)` \| ([\d, ]+) \| (yes|no) \|", line):
            rows[match[1]] = ({int(status) for status in match[2].split(",")}, match[3] == "yes")
    for kind in error_classes():
        if kind is errors.NotFound:  # its code is the reason
            continue
        statuses, retryable = rows[kind.code]
        assert kind.status in statuses
        assert retryable == kind.retryable
    assert {"never_seen", "past_retention", "not_found"} <= set(rows)


def contract_words() -> set[str]:
    words: set[str] = set()
    for group in (contract.SpanName, contract.Key):
        words |= {value for name, value in vars(group).items() if name.isupper()}
    for value in vars(contract).values():
        if isinstance(value, type) and issubclass(value, Enum) and value.__module__ == contract.__name__:
            words |= {str(member) for member in value}
    return words


def test_every_name_and_word_of_the_contract_is_described() -> None:
    described = in_code_marks("contract.md")
    assert contract_words() - described == set()
    keys = {word for word in described if word.startswith("stallscope.") and not word.endswith("…")}
    assert keys - contract_words() - {"stallscope.loss.<reason>"} == set()
