"""The channels that the settings and the rules file name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pydantic import SecretStr

from collector.alerts.alertmanager import Alertmanager
from collector.alerts.email import Email
from collector.alerts.notices import Channel
from collector.alerts.pagerduty import EVENTS_URL, PagerDuty
from collector.alerts.rules import ChannelSpec
from collector.alerts.slack import Slack
from collector.alerts.webhook import Webhook
from collector.settings import PREFIX, Settings, SettingsError

Values = Mapping[str, str]
"""What a kind needs, by the names of the rules file. `where` says whose they are, for messages."""


def _webhook(values: Values, where: Callable[[str], str]) -> Channel:
    return Webhook(_http(where("url"), values["url"]), values.get("secret", ""))


def _slack(values: Values, where: Callable[[str], str]) -> Channel:
    return Slack(_http(where("url"), values["url"]))


def _pagerduty(values: Values, where: Callable[[str], str]) -> Channel:
    return PagerDuty(values["key"], _http(where("url"), values.get("url") or EVENTS_URL))


def _alertmanager(values: Values, where: Callable[[str], str]) -> Channel:
    return Alertmanager(_http(where("url"), values["url"]))


def _email(values: Values, where: Callable[[str], str]) -> Channel:
    recipients = tuple(filter(None, (part.strip() for part in re.split(r"[,\n]", values.get("to", "")))))
    try:
        return Email(values["url"], values.get("from", ""), recipients)
    except SettingsError as error:
        raise SettingsError(f"{where('url')}, {where('from')}, {where('to')}: {error}") from None


KINDS: Final[Mapping[str, Callable[[Values, Callable[[str], str]], Channel]]] = {
    "webhook": _webhook,
    "slack": _slack,
    "pagerduty": _pagerduty,
    "alertmanager": _alertmanager,
    "email": _email,
}
_FROM_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "webhook": {"url": "alert_webhook_url", "secret": "alert_webhook_secret"},
    "slack": {"url": "alert_slack_url"},
    "pagerduty": {"key": "alert_pagerduty_key", "url": "alert_pagerduty_url"},
    "alertmanager": {"url": "alert_alertmanager_url"},
    "email": {"url": "alert_smtp_url", "from": "alert_email_from", "to": "alert_email_to"},
}
"""The setting of each value; a kind is set where the first of its values is."""


def channels_of(settings: Settings, specs: Sequence[ChannelSpec] = ()) -> dict[str, Channel]:
    """Every channel that is set, by its name. Raises SettingsError naming the one that cannot be used."""
    made = {}
    for kind, names in _FROM_SETTINGS.items():
        values = {value: _plain(getattr(settings, name)) for value, name in names.items()}
        if values[next(iter(names))]:
            made[kind] = KINDS[kind](values, partial(_setting, names))
    for spec in specs:
        made[spec.name] = KINDS[spec.kind](spec.values, partial("channel {}: {}".format, spec.name))
    return made


def _setting(names: Mapping[str, str], value: str) -> str:
    return f"{PREFIX}{names[value].upper()}"


def _plain(value: str | SecretStr) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _http(name: str, url: str) -> str:
    if not re.match(r"https?://[^/\s]", url):
        raise SettingsError(f"{name} begins with http:// or https:// and names a host")
    return url
