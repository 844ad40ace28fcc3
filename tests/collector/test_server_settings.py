"""Settings: defaults first, then what was written, and never a silent mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.settings import Settings, SettingsError


def test_every_setting_is_described_and_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    settings = Settings.from_env({})
    assert settings.database_url.get_secret_value() == "chdb:///somewhere/stallscope/store"
    assert all(field.description for field in Settings.model_fields.values())


def test_what_is_written_wins_and_secrets_do_not_print() -> None:
    settings = Settings.from_env(
        {
            "STALLSCOPE_RETENTION_DAYS": "3",
            "STALLSCOPE_READ_TOKENS": "hush",
            "STALLSCOPE_INSECURE": "true",
            "HOME": "/x",
        }
    )
    assert (settings.retention_days, settings.insecure) == (3, True)
    assert "hush" not in repr(settings)


def test_a_file_may_hold_the_value(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("acme:hush\n")
    settings = Settings.from_env({"STALLSCOPE_INGEST_TOKENS_FILE": str(tmp_path / "token")})
    assert settings.ingest_tokens.get_secret_value() == "acme:hush"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"STALLSCOPE_RETENTION_DAY": "3"}, "STALLSCOPE_RETENTION_DAY is no setting"),
        ({"STALLSCOPE_RETENTION_DAYS": "0"}, "STALLSCOPE_RETENTION_DAYS"),
        ({"STALLSCOPE_RETENTION_DAYS": ""}, "STALLSCOPE_RETENTION_DAYS"),
        ({"STALLSCOPE_QUERY_SECONDS": "soon"}, "STALLSCOPE_QUERY_SECONDS"),
        ({"STALLSCOPE_READ_TOKENS_FILE": "/no/such/file"}, "STALLSCOPE_READ_TOKENS_FILE: cannot read"),
        ({"STALLSCOPE_READ_TOKENS": "a", "STALLSCOPE_READ_TOKENS_FILE": "/dev/null"}, "are both set"),
    ],
)
def test_a_mistake_stops_the_server_and_is_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings.from_env(environ)


def test_the_workers_own_settings_may_be_in_the_same_environment() -> None:
    assert Settings.from_env({"STALLSCOPE_LOG_TAIL_BYTES": "99", "STALLSCOPE_URL": "http://x"})
