"""The chart, rendered by Helm's own engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

helm = pytest.importorskip("helm_python", reason="no Helm engine for this machine", exc_type=ImportError)

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm" / "stallscope"
CASES: Final = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
SERVER_IMAGE: Final = "ghcr.io/stallscope/stallscope"

Object = dict[str, Any]


@cache
def chart() -> Any:
    """Loaded once."""
    return helm.Chart.load(str(CHART))


def values_of(case: str) -> dict[str, Any]:
    """One of the sets of values in the chart's `ci` folder."""
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{case}-values.yaml").read_text(encoding="utf-8"))
    return found


@cache
def rendered(case: str) -> dict[str, str]:
    """File → text of one set of values."""
    files: dict[str, str] = chart().render(values_of(case), name="rel", namespace="gpu")
    return files


def objects_of(files: dict[str, str]) -> list[Object]:
    """Every object in them."""
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def objects(case: str) -> list[Object]:
    """Every object of one set of values."""
    return objects_of(rendered(case))


def pods_of(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Name, and pod template or pod, of all that runs."""
    for one in found:
        if one["kind"] == "Pod":
            yield one["metadata"]["name"], one
        elif "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]


def without_secrets(text: str) -> str:
    """Passwords that are made up at each rendering, as one word."""
    return re.sub(r"^  (password|dashboardPassword|url|dashboardUrl): \S+$", r"  \1: MADE-UP", text, flags=re.MULTILINE)
