"""The worker's distribution stands alone: its wheel imports in an empty environment, without the server."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SERVER_PACKAGES = ("collector", "dashboard", "fastapi", "clickhouse_connect", "pandas", "uvicorn", "jinja2")

IMPORT_AND_LIST = """
import sys
before = set(sys.modules)
import sdk_exporter
print("\\n".join(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def _wheel(project: Path, target: Path) -> Path:
    # Built with this environment's hatchling: no network is needed.
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(project)],
        check=True,
        capture_output=True,
    )
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def exporter_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel(ROOT / "sdk_exporter", tmp_path_factory.mktemp("exporter"))


def test_the_exporter_wheel_imports_alone_and_loads_the_standard_library_only(
    exporter_wheel: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    packages = next((tmp_path / "empty" / "lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(exporter_wheel) as archive:  # what pip would do, less the dependencies
        archive.extractall(packages)
    answer = subprocess.run([str(python), "-c", IMPORT_AND_LIST], check=True, capture_output=True, text=True)
    loaded = set(answer.stdout.split())
    assert "sdk_exporter" in loaded
    assert loaded - {"sdk_exporter"} <= set(sys.stdlib_module_names)


def test_the_exporter_wheel_holds_every_module_and_nothing_of_the_server(exporter_wheel: Path) -> None:
    with zipfile.ZipFile(exporter_wheel) as archive:
        shipped = {name for name in archive.namelist() if name.endswith(".py")}
    source = {
        f"sdk_exporter/{path.relative_to(ROOT / 'sdk_exporter')}"
        for path in (ROOT / "sdk_exporter").rglob("*.py")
        if "build" not in path.parts
    }
    assert shipped == source


def test_importing_the_exporter_in_the_worker_loads_no_opentelemetry() -> None:
    answer = subprocess.run([sys.executable, "-c", IMPORT_AND_LIST], check=True, capture_output=True, text=True)
    assert not {"opentelemetry", "google", "requests", *SERVER_PACKAGES} & set(answer.stdout.split())


def test_the_server_wheel_ships_pages_styles_and_migrations(tmp_path: Path) -> None:
    with zipfile.ZipFile(_wheel(ROOT, tmp_path)) as archive:
        shipped = set(archive.namelist())
    for pattern in ("migrations/*.sql", "migrations/LATEST", "dashboard/templates/*", "dashboard/static/*"):
        wanted = {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern) if path.is_file()}
        assert wanted, f"nothing matches {pattern}"
        assert wanted <= shipped
