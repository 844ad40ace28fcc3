"""`stallscope alert test`: a real process in front of a real receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sinks import http_sink, mail_sink


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STALLSCOPE_")}
    command = [sys.executable, "-m", "collector.cli", "alert", "test", *arguments]
    return subprocess.run(
        command, env={**environ, **settings}, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_test_arrives() -> None:
    with http_sink() as sink:
        done = run("webhook", "--json", STALLSCOPE_ALERT_WEBHOOK_URL=sink.url)
        assert (done.returncode, json.loads(done.stdout)) == (0, {"channel": "webhook", "sent": True})
        assert sink.got[0].json["kind"] == "test"


def test_a_letter_arrives() -> None:
    with mail_sink() as sink:
        done = run(
            "email",
            STALLSCOPE_ALERT_SMTP_URL=sink.url,
            STALLSCOPE_ALERT_EMAIL_FROM="a@example.org",
            STALLSCOPE_ALERT_EMAIL_TO="b@example.org",
        )
        assert done.returncode == 0, done.stderr
        assert sink.got[0]["Subject"].startswith("[info] Test: ")


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "said"),
    [
        (["fax"], {}, 2, "none of"),
        (["slack"], {}, 2, "no setting names slack"),
        (["slack"], {"STALLSCOPE_ALERT_SLACK_URL": "ftp://x"}, 2, "STALLSCOPE_ALERT_SLACK_URL"),
        (["slack"], {"STALLSCOPE_ALERT_SLACK_URL": "http://127.0.0.1:9/s"}, 3, "did not take it"),
    ],
)
def test_what_cannot_be_sent_is_said(arguments: list[str], settings: dict[str, str], code: int, said: str) -> None:
    done = run(*arguments, **settings)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_mistake_in_the_rules_stops_the_server_with_its_line(tmp_path: Path) -> None:
    rules = tmp_path / "mine.yaml"
    rules.write_text("rules:\n- name: A\n  measure: sum\n  severity: error\n", encoding="utf-8")
    environ = {**os.environ, "STALLSCOPE_ALERT_RULES": str(rules), "STALLSCOPE_DATABASE_URL": f"chdb://{tmp_path}/s"}
    command = [sys.executable, "-m", "collector.cli", "serve", "--port", "0"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"{rules}:3: measure: 'sum' is none of" in done.stderr
