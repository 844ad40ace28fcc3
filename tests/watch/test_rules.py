"""Rules as data: what can be written, and that each mistake is told with its line."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from pydantic import SecretStr

from collector.alerts.channels import KINDS, channels_of
from collector.alerts.rules import CHANNEL_NAMES, FINDING_CODES, RulesError, RuleSet, load, parse
from collector.settings import Settings, SettingsError

BUILT_IN = load(None)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_the_built_in_rules_are_those_that_the_page_describes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")
    for rule in BUILT_IN.rules:
        assert f"| `{rule.name}` |" in page
    for code in FINDING_CODES:
        assert f"`{code}`" in page
    assert set(CHANNEL_NAMES) == set(KINDS)


def test_each_built_in_rule_has_a_runbook() -> None:
    folder = Path(__file__).parents[2] / "docs" / "runbooks"
    for rule in BUILT_IN.rules:
        assert (folder / f"{rule.runbook}.md").is_file(), rule.name


def test_a_rule_takes_the_place_of_the_built_in_one() -> None:
    text = """
rules:
  - name: StrandedClaims
    measure: verdicts
    codes: [stranded_claim, worker_killed]
    severity: warning
    window: 1h30m
    endpoints: ["prod-*"]
    channels: [slack]
disable: [NewFailureGroup]
"""
    rules = parse(text, "mine.yaml", over=BUILT_IN)
    mine = rules.named("StrandedClaims")
    assert mine is not None
    assert (mine.window_seconds, mine.channels, mine.severity) == (5400.0, ("slack",), "warning")
    assert mine.covers("prod-llama")
    assert not mine.covers("test-llama")
    assert rules.named("NewFailureGroup") is None
    assert len(rules.rules) == len(BUILT_IN.rules) - 1


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("rules:\n- name: a\n  measure: new_group\n  severity: error", 2, "CamelCase"),
        ("rules:\n- name: A\n  measure: finding\n  severity: error", 2, "codes: finding needs"),
        ("rules:\n- name: A\n  measure: finding\n  codes: [crash_loop, nope]\n  severity: error", 4, "'nope'"),
        ("rules:\n- name: A\n  measure: verdicts\n  codes: [crash_loop]\n  severity: error", 4, "no verdict code"),
        ("rules:\n- name: A\n  measure: sum\n  severity: error", 3, "none of"),
        ("rules:\n- name: A\n  severity: error", 2, "measure: missing"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  windw: 1m", 5, "windw: no such field"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  window: 5 minutes", 5, "no duration"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  threshold: .nan", 5, "no number"),
        ("rules:\n- name: A\n  measure: failure_ratio\n  severity: error\n  threshold: 20", 5, "at most 1"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  name: B", 5, "given twice"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  only_open: maybe", 5, "true or false"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  channels: [fax]", 5, "'fax'"),
        ("rules:\n- name: A\n  measure: new_group\n  severity: error\n  codes: [x]", 5, "has none"),
        ("rules: {}", 1, "a list"),
        ("- rules", 1, "a mapping"),
        ("rules:\n  - name: [", 2, ""),
        ("disable: [Nothing]", 1, "there is no rule"),
        ("silences:\n- until: tomorrow\n  comment: x", 2, "RFC 3339"),
        ("silences:\n- until: 2026-01-01T00:00:00\n  comment: x", 2, "has a zone"),
        ("silences:\n- until: 2026-01-01T00:00:00Z", 2, "comment: missing"),
        ("channels:\n- kind: slack\n  tenants: [a]\n  url: http://x", 2, "name: missing"),
        ("channels:\n- name: a\n  kind: fax\n  tenants: [a]", 3, "'fax' is none of"),
        ("channels:\n- name: slack\n  kind: slack\n  tenants: [a]\n  url: http://x", 2, "slack is taken"),
        ("channels:\n- name: a\n  kind: slack\n  tenants: [a]", 2, "url: missing"),
        ("channels:\n- name: a\n  kind: slack\n  tenants: []\n  url: http://x", 4, "at least one"),
        ("channels:\n- name: a\n  kind: slack\n  tenants: [a]\n  url: http://x\n  key: k", 6, "slack has none"),
        ("channels:\n- name: a\n  kind: slack\n  tenants: [a]\n  url_file: /nowhere/x", 5, "cannot read it"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(RulesError) as caught:
        parse(text, "mine.yaml", over=BUILT_IN)
    assert str(caught.value).startswith(f"mine.yaml:{line}: "), str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "rules: []"])
def test_an_empty_file_keeps_the_built_in_rules(text: str) -> None:
    assert parse(text, "mine.yaml", over=BUILT_IN) == BUILT_IN


@pytest.mark.parametrize("text", ["[" * 50_000, "&a [*a, *a]", "!!python/object/apply:os.system [x]", "\x00", "a: &b"])
def test_hostile_files_are_refused(text: str) -> None:
    with pytest.raises(RulesError):
        parse(text, "mine.yaml", over=RuleSet(()))


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(RulesError, match="STALLSCOPE_ALERT_RULES"):
        load("/nowhere/rules.yaml")


def test_a_tenant_with_channels_of_its_own_is_told_there_alone(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("routing-key\n", encoding="utf-8")
    text = f"""
channels:
  - name: acme-pages
    kind: pagerduty
    tenants: ["acme*"]
    key_file: {tmp_path}/key
rules:
  - name: CrashLoop
    measure: finding
    codes: [crash_loop]
    severity: error
    channels: [acme-pages, slack]
"""
    rules = parse(text, "mine.yaml", over=BUILT_IN)
    found = channels_of(Settings(alert_slack_url=SecretStr("https://slack.example/x")), rules.channels)
    assert set(found) == {"slack", "acme-pages"}
    assert "routing-key" not in repr(rules)
    reached = {(name, tenant) for name in found for tenant in ("acme-1", "other") if rules.reaches(name, tenant)}
    assert reached == {("acme-pages", "acme-1"), ("slack", "other")}
    bad = parse(text.replace("pagerduty", "slack").replace("key_file", "url_file"), "mine.yaml", over=BUILT_IN)
    with pytest.raises(SettingsError, match="channel acme-pages: url begins with http"):
        channels_of(Settings(), bad.channels)


def test_a_silence_fits_until_it_ends() -> None:
    text = 'silences:\n- until: 2026-01-01T01:00:00Z\n  comment: moving\n  endpoint: "llama-*"\n  rule: CrashLoop'
    (silence,) = parse(text, "mine.yaml", over=BUILT_IN).silences
    assert silence.fits("default", "CrashLoop", "llama-chat", NOW)
    assert not silence.fits("default", "CrashLoop", "llama-chat", NOW.replace(hour=1))
    assert not silence.fits("default", "CrashLoop", "sdxl", NOW)
    assert not silence.fits("default", "FailureRate", "llama-chat", NOW)
