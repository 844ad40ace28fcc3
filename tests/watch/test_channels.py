"""Each channel in front of a real receiver on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone

import httpx
import pytest
from pydantic import SecretStr
from sinks import HttpSink, MailSink, http_sink, mail_sink

from collector.alerts.alertmanager import Alertmanager
from collector.alerts.channels import channels_of
from collector.alerts.email import Email
from collector.alerts.notices import Channel, DeliveryFailed, Notice, dedup_key, flat, runbook_address
from collector.alerts.pagerduty import PagerDuty
from collector.alerts.slack import Slack
from collector.alerts.webhook import Webhook
from collector.settings import Settings, SettingsError

NOW = datetime(2026, 1, 1, 3, 11, tzinfo=timezone.utc)
NOTICE = Notice(
    id="ntc_1",
    dedup_key="stallscope/default/DeadStopChannel/llama-chat",
    kind="open",
    tenant="default",
    rule="DeadStopChannel",
    group="llama-chat",
    code="stop_channel_dead",
    severity="critical",
    sentence="Stop channel of endpoint llama-chat is dead on 14 of 14 workers since 03:10 (HTTP 200, text/html).",
    endpoint_id="llama-chat",
    worker_ids=("w-1",),
    job_ids=("j-1",),
    opened_at=NOW,
    resolved_at=None,
    url="https://stallscope.example/alerts",
    runbook_url="https://stallscope.example/runbook",
    evidence=("<!channel> & co\nsecond line",),
)


@pytest.fixture
def sink() -> Iterator[HttpSink]:
    with http_sink() as taking:
        yield taking


@pytest.fixture
def mail() -> Iterator[MailSink]:
    with mail_sink() as taking:
        yield taking


async def send(channel: Channel, notice: Notice = NOTICE) -> None:
    async with httpx.AsyncClient() as client:
        await channel.send(client, notice, NOW)


async def test_a_webhook_is_signed_and_carries_its_id(sink: HttpSink) -> None:
    secret = base64.b64encode(b"only-for-tests").decode()
    await send(Webhook(sink.url, f"whsec_{secret}"))
    (got,) = sink.got
    assert got.headers["webhook-id"] == got.headers["idempotency-key"] == "ntc_1"
    signed = f"ntc_1.{int(NOW.timestamp())}.".encode() + got.body
    expected = base64.b64encode(hmac.new(b"only-for-tests", signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert (got.json["sentence"], got.json["opened_at"]) == (NOTICE.sentence, "2026-01-01T03:11:00.000000Z")


async def test_slack_gets_no_mention_out_of_a_log_line(sink: HttpSink) -> None:
    await send(Slack(f"{sink.url}/services/x"))
    (got,) = sink.got
    assert "<!channel>" not in got.body.decode()
    assert got.json["blocks"][1]["text"]["text"] == "> &lt;!channel&gt; &amp; co second line"
    assert got.json["text"].endswith(NOTICE.sentence)


HOSTILE = (
    "Stop channel of endpoint *a* _b_ ~c~ `d` <!channel> <https://evil.example|click> [x](https://evil.example)"
    " \u202edaed\u2066\x00\x1b[31m\ud800\r\nBcc: all@example.org\nFrom: boss@example.org\u2028 is dead"
)


async def test_slack_takes_no_markup_from_a_name(sink: HttpSink) -> None:
    await send(Slack(sink.url), replace(NOTICE, sentence=flat(HOSTILE), endpoint_id=HOSTILE, evidence=(HOSTILE,)))
    message = sink.got[0].json
    assert message["mrkdwn"] is False
    texts = [block["text"] for block in message["blocks"] if "text" in block]
    texts += [element for block in message["blocks"] for element in block.get("elements", [])]
    marked = [text["text"] for text in texts if text["type"] != "plain_text"]
    assert marked == ["<https://stallscope.example/alerts|Alerts> · <https://stallscope.example/runbook|Runbook>"]
    assert "<!channel>" not in sink.got[0].body.decode()


async def test_a_letter_takes_no_header_and_no_hidden_character_from_a_name(mail: MailSink) -> None:
    hostile = replace(NOTICE, sentence=HOSTILE, endpoint_id=HOSTILE, worker_ids=(HOSTILE,), evidence=(HOSTILE,))
    await send(Email(mail.url, "stallscope@example.org", ("a@example.org",)), hostile)
    (got,) = mail.got
    assert (got["Bcc"], got["From"], got["To"]) == (None, "stallscope@example.org", "a@example.org")
    text = got.get_content() + str(got["Subject"])
    assert not set(text) & set("\x00\x1b\u202e\u2066\u2028")
    assert not [line for line in got.get_content().splitlines() if line.startswith(("Bcc:", "From:"))]


@pytest.mark.parametrize("make", [Webhook, Alertmanager, lambda url: PagerDuty("key", url)])
async def test_other_channels_carry_a_hostile_name_whole(sink: HttpSink, make: Callable[[str], Channel]) -> None:
    await send(make(sink.url), replace(NOTICE, sentence=flat(HOSTILE), endpoint_id="a\r\nb", evidence=(flat(HOSTILE),)))
    assert "\\ud800" not in sink.got[0].body.decode()
    assert sink.got[0].json


async def test_pagerduty_triggers_and_resolves_one_incident(sink: HttpSink) -> None:
    channel = PagerDuty("routing", sink.url)
    await send(channel)
    await send(channel, replace(NOTICE, kind="resolved", resolved_at=NOW))
    assert [got.path for got in sink.got] == ["/v2/enqueue"] * 2
    trigger, resolve = (got.json for got in sink.got)
    assert (trigger["event_action"], trigger["payload"]["severity"]) == ("trigger", "critical")
    assert resolve == {"routing_key": "routing", "event_action": "resolve", "dedup_key": trigger["dedup_key"]}


async def test_alertmanager_gets_the_same_labels_until_the_end(sink: HttpSink) -> None:
    channel = Alertmanager(sink.url)
    await send(channel)
    await send(channel, replace(NOTICE, kind="resolved", resolved_at=NOW, sentence="other"))
    assert [got.path for got in sink.got] == ["/api/v2/alerts"] * 2
    (opened,), (ended,) = (got.json for got in sink.got)
    assert opened["labels"] == ended["labels"]
    assert (opened["labels"]["alertname"], opened["labels"]["endpoint"]) == ("DeadStopChannel", "llama-chat")
    assert (opened["endsAt"], ended["endsAt"]) == ("2026-01-01T03:21:00.000000Z", "2026-01-01T03:11:00.000000Z")


async def test_letters_about_one_alert_make_one_thread(mail: MailSink) -> None:
    channel = Email(mail.url, "stallscope@example.org", ("a@example.org", "b@example.org"))
    await send(channel)
    await send(channel, replace(NOTICE, id="ntc_2", kind="resolved", sentence="over\r\nBcc: all@example.org"))
    opened, ended = mail.got
    assert opened["Subject"] == f"[critical] {NOTICE.sentence}"
    assert (opened["Message-ID"], opened["References"]) == ("<ntc_1@stallscope.invalid>", ended["References"])
    assert ended["Bcc"] is None
    assert "Endpoint: llama-chat" in opened.get_content()


@pytest.mark.parametrize(("status", "again"), [(503, True), (429, True), (400, False), (302, False)])
async def test_an_answer_tells_whether_to_try_again(sink: HttpSink, status: int, again: bool) -> None:
    sink.answers = [status]
    with pytest.raises(DeliveryFailed, match=f"HTTP {status}") as caught:
        await send(Webhook(f"{sink.url}/secret-path"))
    assert caught.value.retryable is again
    assert "secret-path" not in str(caught.value)


@pytest.mark.parametrize(
    "channel",
    [Webhook("http://127.0.0.1:9/secret"), Email("smtp://127.0.0.1:9", "a@example.org", ("b@example.org",))],
    ids=["webhook", "email"],
)
async def test_nobody_there_is_worth_another_try(channel: Channel) -> None:
    with pytest.raises(DeliveryFailed, match="no answer") as caught:
        await send(channel)
    assert caught.value.retryable
    assert "secret" not in str(caught.value)


async def test_a_password_is_not_sent_in_the_clear(mail: MailSink) -> None:
    channel = Email(mail.url.replace("//", "//user:pass@"), "a@example.org", ("b@example.org",))
    with pytest.raises(DeliveryFailed):
        await send(channel)
    assert mail.got == []


def test_a_long_key_fits_pagerduty_and_stays_distinct() -> None:
    keys = {dedup_key("default", "A", "x" * 300 + end) for end in ("1", "2")}
    assert len(keys) == 2
    assert all(len(key.encode()) <= 255 for key in keys)


def test_settings_name_channels_and_a_bad_one_stops_the_server() -> None:
    settings = Settings(
        alert_webhook_url=SecretStr("https://example.org/x"),
        alert_smtp_url=SecretStr("smtp://mail.example.org"),
        alert_email_from="a@example.org",
        alert_email_to="b@example.org, c@example.org",
    )
    assert set(channels_of(settings)) == {"webhook", "email"}
    with pytest.raises(SettingsError, match="STALLSCOPE_ALERT_SLACK_URL"):
        channels_of(Settings(alert_slack_url=SecretStr("slack.com/x")))
    with pytest.raises(SettingsError, match="STALLSCOPE_ALERT_EMAIL_FROM"):
        channels_of(Settings(alert_smtp_url=SecretStr("smtp://mail.example.org")))


@pytest.mark.parametrize(
    ("base", "public", "name", "address"),
    [
        ("", "", "crash-loop", ""),
        ("", "https://s.example/", "crash-loop", "https://s.example/docs/runbooks/crash-loop"),
        ("https://wiki.example/r/", "https://s.example", "crash-loop", "https://wiki.example/r/crash-loop"),
        ("", "", "https://wiki.example/mine", "https://wiki.example/mine"),
        ("https://wiki.example", "", "", ""),
    ],
)
def test_a_runbook_has_an_address_that_opens(base: str, public: str, name: str, address: str) -> None:
    assert runbook_address(base, public, name) == address
