"""Write what follows from elsewhere: the chart's table of values, and the part of its schema that names settings.

`make docs` runs it. A comment that begins with `# --` above a value in values.yaml is that value's line in the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import SecretStr

from collector.settings import Settings

CHART: Final = Path(__file__).parent / "stallscope"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"

SET_ELSEWHERE: Final = {"insecure", "alert_rules", "tls_certificate", "tls_key", "tls_client_ca"}
"""Settings that other values of the chart make; secrets come from Secrets alone."""
NOT_OFFERED: Final = {"journal_dir", "journal_bytes"}
"""A journal is worth what its disk is: a pod that may be anywhere has none that outlives it."""


def camel(field: str) -> str:
    """`retention_days` as values are written: `retentionDays`."""
    head, *rest = field.split("_")
    return head + "".join(word.capitalize() for word in rest)


def settings_schema() -> dict[str, Any]:
    """The schema of `config`: settings that hold no secret, with their types and bounds."""
    properties = {}
    for name, field in Settings.model_fields.items():
        if field.annotation is SecretStr or name in SET_ELSEWHERE | NOT_OFFERED:
            continue
        described = Settings.model_json_schema()["properties"][name]
        kept = ("type", "minimum", "maximum", "exclusiveMinimum")
        properties[camel(name)] = {key: described[key] for key in kept if key in described}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def alert_keys_schema() -> dict[str, Any]:
    """The schema of `alerts.keys`: secret settings of alerts, each naming a key."""
    names = [name.removeprefix("alert_") for name, field in Settings.model_fields.items()
             if name.startswith("alert_") and field.annotation is SecretStr]  # fmt: skip
    key = {"$ref": "#/$defs/key"}
    return {"type": "object", "additionalProperties": False, "properties": {camel(name): key for name in names}}


def schema_text() -> str:
    """values.schema.json as it should be."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    schema["properties"]["config"] = settings_schema()
    schema["properties"]["alerts"]["properties"]["keys"] = alert_keys_schema()
    return json.dumps(schema, indent=2) + "\n"


def rows() -> Iterator[tuple[str, str, str]]:
    """Path, default and line of each value that is described."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, values: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
        for key, value in node.value:
            where = f"{path}.{key.value}".lstrip(".")
            above = re.match(r"\s*# -- (.*)", lines[key.start_mark.line - 1])
            if above:
                yield where, json.dumps(values[key.value]), above[1]
            elif isinstance(value, yaml.MappingNode):
                yield from walk(value, values[key.value], where)

    yield from walk(yaml.compose(text), yaml.safe_load(text), "")


def readme_text() -> str:
    """README.md with the table as it should be."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    table = ["| value | default | what |", "|---|---|---|"]
    table += [f"| `{path}` | `{default}` | {line} |" for path, default, line in rows()]
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *table, END + after])


if __name__ == "__main__":
    (CHART / "values.schema.json").write_text(schema_text(), encoding="utf-8")
    (CHART / "README.md").write_text(readme_text(), encoding="utf-8")
