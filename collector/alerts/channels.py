"""The channels that the settings name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from collector.alerts.alertmanager import Alertmanager
from collector.alerts.email import Email
from collector.alerts.notices import Channel
from collector.alerts.pagerduty import PagerDuty
from collector.alerts.slack import Slack
from collector.alerts.webhook import Webhook
from collector.settings import Settings, SettingsError


def _webhook(settings: Settings) -> Channel | None:
    url = settings.alert_webhook_url.get_secret_value()
    secret = settings.alert_webhook_secret.get_secret_value()
    return Webhook(_http("STALLSCOPE_ALERT_WEBHOOK_URL", url), secret) if url else None


def _slack(settings: Settings) -> Channel | None:
    url = settings.alert_slack_url.get_secret_value()
    return Slack(_http("STALLSCOPE_ALERT_SLACK_URL", url)) if url else None


def _pagerduty(settings: Settings) -> Channel | None:
    key = settings.alert_pagerduty_key.get_secret_value()
    return PagerDuty(key, _http("STALLSCOPE_ALERT_PAGERDUTY_URL", settings.alert_pagerduty_url)) if key else None


def _alertmanager(settings: Settings) -> Channel | None:
    url = settings.alert_alertmanager_url.get_secret_value()
    return Alertmanager(_http("STALLSCOPE_ALERT_ALERTMANAGER_URL", url)) if url else None


def _email(settings: Settings) -> Channel | None:
    url = settings.alert_smtp_url.get_secret_value()
    recipients = tuple(filter(None, (part.strip() for part in re.split(r"[,\n]", settings.alert_email_to))))
    return Email(url, settings.alert_email_from, recipients) if url else None


CHANNELS: Final[Mapping[str, Callable[[Settings], Channel | None]]] = {
    "webhook": _webhook,
    "slack": _slack,
    "pagerduty": _pagerduty,
    "alertmanager": _alertmanager,
    "email": _email,
}


def channels_of(settings: Settings) -> dict[str, Channel]:
    """Every channel that is set. Raises SettingsError naming the one that cannot be used."""
    made = {name: make(settings) for name, make in CHANNELS.items()}
    return {name: channel for name, channel in made.items() if channel is not None}


def _http(name: str, url: str) -> str:
    if not re.match(r"https?://[^/\s]", url):
        raise SettingsError(f"{name} begins with http:// or https:// and names a host")
    return url
