"""What the chart starts is started here: its commands, its settings and its ClickHouse, with the real programs."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from charts import CASES, CHART, ROOT, SERVER_IMAGE, Object, chart, objects, objects_of, pods_of, values_of
from clickhouse_server import ClickHouseServer, find_library
from parts import served, skip_or_fail

from collector import asgi, migrate
from collector.alerts.rules import load
from collector.auth import Tokens
from collector.cli import main
from collector.clickhouse import Database, target_of
from collector.settings import Settings

sys.path.insert(0, str(ROOT / "helm"))
import generate

CONTENT = {
    "database": "clickhouses://stallscope:secret@clickhouse.example.com:8443/stallscope",
    "tokens": "acme:a-long-secret",
    "alerts": "https://alerts.example.com/hook",
}


def server_containers(case: str) -> list[tuple[str, Object, Object]]:
    """Name, container and pod of each that runs Stallscope's own image with a command of its own."""
    return [
        (name, container, pod["spec"])
        for name, pod in pods_of(objects(case))
        for container in pod["spec"]["containers"]
        if container["image"].startswith(SERVER_IMAGE) and "command" not in container
    ]


def mounted(folder: Path, container: Object, pod: Object, found: list[Object]) -> None:
    """Lay out under `folder` the files that Kubernetes would mount for this container."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        volume, where = volumes[mount["name"]], folder / mount["mountPath"].lstrip("/")
        where.mkdir(parents=True, exist_ok=True)
        if "secret" in volume:
            items = volume["secret"].get("items")
            names = [item["path"] for item in items] if items else _whole_secret(mount["name"], container)
            for name in names:
                (where / name).write_text(CONTENT.get(mount["name"], "-----BEGIN"), encoding="utf-8")
        if "configMap" in volume:
            (config,) = [one for one in found if one["kind"] == "ConfigMap"
                         and one["metadata"]["name"] == volume["configMap"]["name"]]  # fmt: skip
            for name, text in config["data"].items():
                (where / name).write_text(text, encoding="utf-8")


def _whole_secret(name: str, container: Object) -> list[str]:
    if name == "tls":
        return ["tls.crt", "tls.key"]
    values = [one.get("value", "") for one in container["env"]]
    return [Path(value).name for value in values if value.startswith(f"/etc/stallscope/{name}/")]


@pytest.mark.parametrize("case", CASES)
def test_the_server_reads_every_setting_and_file_that_it_is_given(case: str, tmp_path: Path) -> None:
    for name, container, pod in server_containers(case):
        folder = tmp_path / name
        mounted(folder, container, pod, objects(case))
        env = {one["name"]: one["value"] for one in container["env"] if one["name"].startswith("STALLSCOPE_")}
        for variable, value in env.items():
            if value.startswith("/etc/"):
                assert (folder / value.lstrip("/")).is_file(), f"{variable} names {value}, which nothing mounts"
                env[variable] = str(folder / value.lstrip("/"))
        settings = Settings.from_env(env)
        assert target_of(settings.database_url.get_secret_value()).host
        load(settings.alert_rules)
        if "migration" not in name:
            assert Tokens.of(settings).none_set is settings.insecure
        secret = {f"STALLSCOPE_{field.upper()}" for field, kind in Settings.model_fields.items()
                  if "SecretStr" in str(kind.annotation)}  # fmt: skip
        assert secret.isdisjoint(env), "a secret comes as a file"


@pytest.mark.parametrize("case", CASES)
def test_no_secret_stands_in_an_object(case: str) -> None:
    for _, pod in pods_of(objects(case)):
        for one in (one for container in pod["spec"]["containers"] for one in container.get("env", ())):
            if re.search("PASSWORD|SECRET|TOKEN|DATABASE_URL", one["name"]):
                assert "valueFrom" in one or one["value"].startswith("/etc/stallscope/"), one["name"]


@pytest.mark.parametrize("case", CASES)
def test_the_commands_are_those_of_the_command_line(case: str) -> None:
    found = server_containers(case)
    assert {"serve"} <= {container["args"][0] for _, container, _ in found}
    for _, container, _ in found:
        command = main.commands[container["args"][0]]
        with click.Context(main) as above:
            command.make_context(container["args"][0], [str(word) for word in container["args"][1:]], parent=above)


def test_a_number_of_a_value_arrives_as_it_was_written() -> None:
    values = {**values_of("external"), "config": {"bodyBytes": 67108864, "watchSeconds": 2.5, "ingestRate": 1000000}}
    (collector,) = [one for one in objects_of(chart().render(values, name="rel")) if one["kind"] == "Deployment"
                    and one["metadata"]["name"].endswith("collector")]  # fmt: skip
    env = {one["name"]: one["value"] for one in collector["spec"]["template"]["spec"]["containers"][0]["env"]}
    told = [env[f"STALLSCOPE_{name}"] for name in ("BODY_BYTES", "WATCH_SECONDS", "INGEST_RATE")]
    assert told == ["67108864", "2.5", "1000000"]


def test_the_schema_knows_no_setting_that_the_server_does_not_have() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    assert set(schema["config"]["properties"]) <= set(generate.settings_schema()["properties"]), "run `make docs`"
    keys = schema["alerts"]["properties"]["keys"]["properties"]
    assert set(keys) <= set(generate.alert_keys_schema()["properties"]), "run `make docs`"


def test_the_table_of_values_is_that_of_the_values() -> None:
    assert (CHART / "README.md").read_text(encoding="utf-8") == generate.readme_text(), "run `make docs`"


# ------------------------------------------------------------------------------------------- the trial's own ClickHouse


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A real ClickHouse with the files and the passwords that the chart gives it. Its address, by key of the Secret."""
    try:
        find_library()
    except FileNotFoundError as error:
        skip_or_fail(f"no ClickHouse server: {error}")
    found = objects("trial")
    data = next(one for one in found if one["kind"] == "Secret")["data"]
    secret = {key: base64.b64decode(value).decode() for key, value in data.items()}
    config = next(one for one in found if one["kind"] == "ConfigMap")["data"]
    (pod,) = [pod for name, pod in pods_of(found) if name.endswith("clickhouse")]
    for one in pod["spec"]["containers"][0]["env"]:
        monkeypatch.setenv(one["name"], secret[one["valueFrom"]["secretKeyRef"]["key"]])
    server = ClickHouseServer(tmp_path / "clickhouse")
    for kind in ("config", "users"):
        folder = server.folder / f"{kind}.d"
        folder.mkdir(parents=True)
        # Here it listens on this machine alone, and its library needs the user that nobody needs in a pod.
        text = re.sub(r"<listen_host>.*?</listen_host>", "", config[f"{kind}.xml"])
        (folder / "stallscope.xml").write_text(text.replace('<default remove="remove"/>', ""), encoding="utf-8")
    with server:
        yield {key: re.sub(r"@[^/]+/", f"@127.0.0.1:{server.http_port}/", secret[key]) for key in secret if "rl" in key}


async def test_the_trials_clickhouse_takes_the_migration_and_gives_dashboards_few_rights(trial: dict[str, str]) -> None:
    db = await Database.open(Settings(database_url=trial["url"]))  # type: ignore[arg-type]
    assert await migrate.apply(db, retention_days=14)
    logs = {row["name"] for row in await db.query("SELECT name FROM system.tables WHERE database = 'system'")}
    assert logs.isdisjoint({"trace_log", "text_log", "metric_log", "asynchronous_metric_log"})
    async with served(asgi.dashboard_only(Settings(database_url=trial["dashboardUrl"]))) as client:  # type: ignore[arg-type]
        assert (await client.get("/readyz")).status_code == 200
        for path in ("/", "/jobs", "/groups", "/alerts", "/stop-channels", "/status", "/api/v1/workers"):
            assert (await client.get(path)).status_code == 200, path
        acted = await client.post("/api/v1/findings/none:x:1/acknowledge")
        assert acted.status_code == 404, "on record, and then there was none"
        (entry,) = (await client.get("/api/v1/audit")).json()["items"]
        assert entry["request"] == "POST /api/v1/findings/none:x:1/acknowledge"
    other = await Database.open(Settings(database_url=trial["dashboardUrl"]))  # type: ignore[arg-type]
    with pytest.raises(Exception, match="ACCESS_DENIED"):
        await other.command("TRUNCATE TABLE spans")
    await other.close()
    await db.close()


def test_the_page_on_security_tells_the_rights_that_the_trial_gives() -> None:
    granted = re.findall(r"GRANT (\w+ ON [\w.*]+)", (CHART / "files" / "clickhouse" / "users.xml").read_text())
    told = re.findall(r"GRANT (\w+ ON [\w.*]+) TO dashboard", (ROOT / "docs" / "security.md").read_text())
    assert set(told) == set(granted) - {"ALL ON stallscope.*"}
