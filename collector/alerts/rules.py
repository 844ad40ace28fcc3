"""Alert rules as data: read from YAML, each mistake told with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, get_args

import yaml

from collector.diagnosis.verdicts import VERDICTS
from collector.settings import SettingsError
from collector.watch.ledger import Severity

Measure = Literal["finding", "verdicts", "failure_ratio", "new_group"]
FINDING_CODES: Final = frozenset(
    {
        "stop_channel_dead",
        "stop_channel_disabled",
        "stop_channel_violating",
        "stop_channel_spinning",
        "intake_spinning",
        "zombie_heartbeat",
        "heartbeat_never_started",
        "exit_deferred",
        "crash_loop",
        "bad_host",
        "telemetry_lost",
        "clock_skewed",
        "no_time_bound",
    }
)
CHANNEL_NAMES: Final = ("webhook", "slack", "pagerduty", "alertmanager", "email")
RULES_BYTES: Final = 1 << 20
_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?")
_MAPPING, _SEQUENCE, _SCALAR = yaml.MappingNode, yaml.SequenceNode, yaml.ScalarNode


class RulesError(SettingsError):
    """A rules file that cannot be used. The message has the file and the line."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When to alert. Seconds for all times; docs/alerts.md describes each field."""

    name: str
    measure: Measure
    severity: Severity
    codes: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()  # patterns; none: all
    threshold: float = 1.0
    minimum: int = 1
    window_seconds: float = 900.0
    for_seconds: float = 0.0
    keep_seconds: float = 60.0
    every_seconds: float = 0.0  # 0: every round
    only_open: bool = False
    holds_when_telemetry_is_lost: bool = False
    channels: tuple[str, ...] = ()  # none: all
    runbook: str = ""

    def covers(self, endpoint_id: str) -> bool:
        """Whether the rule is about this endpoint."""
        return not self.endpoints or any(fnmatchcase(endpoint_id, pattern) for pattern in self.endpoints)


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts that fit are evaluated and shown, and nobody is told. Patterns; an empty one fits everything."""

    until: datetime
    comment: str
    rule: str = ""
    endpoint: str = ""
    tenant: str = ""

    def fits(self, tenant: str, rule: str, endpoint_id: str, now: datetime) -> bool:
        """Whether this alert is silenced now."""
        if now >= self.until:
            return False
        pairs = ((self.tenant, tenant), (self.rule, rule), (self.endpoint, endpoint_id))
        return all(not pattern or fnmatchcase(value, pattern) for pattern, value in pairs)


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A way to tell some tenants. `values`: what its kind needs, read from files already."""

    name: str
    kind: str
    tenants: tuple[str, ...]  # patterns
    values: Mapping[str, str] = field(repr=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one server."""

    rules: tuple[Rule, ...]
    silences: tuple[Silence, ...] = ()
    channels: tuple[ChannelSpec, ...] = ()

    def reaches(self, channel: str, tenant: str) -> bool:
        """Whether this channel is told of this tenant's alerts: its own ones, or where it has none, the settings'."""
        own = {spec.name for spec in self.channels if any(fnmatchcase(tenant, one) for one in spec.tenants)}
        return channel in own if own else channel in CHANNEL_NAMES

    def named(self, name: str) -> Rule | None:
        """The rule of this name; None where it is gone since."""
        return next((rule for rule in self.rules if rule.name == name), None)


def load(path: str | None) -> RuleSet:
    """The built-in rules, and those of the file at `path` over them. Raises RulesError."""
    built_in = _built_in()
    if not path:
        return built_in
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise RulesError(f"STALLSCOPE_ALERT_RULES: cannot read {path}: {error.strerror}") from None
    if len(raw) > RULES_BYTES:
        raise RulesError(f"STALLSCOPE_ALERT_RULES: {path} has {len(raw)} bytes; the most is {RULES_BYTES}")
    return parse(raw.decode("utf-8", "replace"), path, over=built_in)


def stamp_of(path: str) -> tuple[int, int] | None:
    """Time and size of the rules file, to tell whether it has changed; None where there is none to be read."""
    try:
        status = Path(path).stat() if path else None
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if status else None


@lru_cache
def _built_in() -> RuleSet:
    text = resources.files("collector.alerts").joinpath("rules.yaml").read_text(encoding="utf-8")
    return parse(text, "rules.yaml", over=RuleSet(()))


def parse(text: str, name: str, *, over: RuleSet) -> RuleSet:
    """Rules of a YAML text over other rules. `name` is the file's, for messages. Raises RulesError."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise RulesError(f"{name}{line}: {getattr(error, 'problem', None) or 'no YAML'}") from None
    except RecursionError:
        raise RulesError(f"{name}: nested too deeply") from None
    if root is None:
        return over
    file = _File(name)
    parts = file.fields(root, {"rules", "disable", "silences", "channels"})
    channels = [file.channel(node) for node in file.items(parts.get("channels"))]
    for at, channel in enumerate(channels):
        if channel.name in {*CHANNEL_NAMES, *(one.name for one in channels[:at])}:
            raise file.wrong(file.items(parts.get("channels"))[at], f"name: {channel.name} is taken")
    file.channel_names.extend(channel.name for channel in channels)
    mine = [file.rule(node) for node in file.items(parts.get("rules"))]
    for at, rule in enumerate(mine):
        if rule.name in {one.name for one in mine[:at]}:
            raise file.wrong(file.items(parts.get("rules"))[at], f"name: {rule.name} is given twice")
    gone = {rule.name for rule in mine}
    for node in file.items(parts.get("disable")):
        if over.named(file.text(node)) is None:
            raise file.wrong(node, f"disable: there is no rule {file.text(node)!r}")
        gone.add(file.text(node))
    kept = [rule for rule in over.rules if rule.name not in gone]
    silences = [file.silence(node) for node in file.items(parts.get("silences"))]
    return RuleSet((*kept, *mine), (*over.silences, *silences), (*over.channels, *channels))


@dataclass(frozen=True, slots=True)
class _File:
    """Reads nodes, which know their line, where loaded values would not."""

    name: str
    readers: Mapping[str, Callable[[_File, yaml.Node], Any]] = field(default_factory=lambda: _READERS)
    channel_names: list[str] = field(default_factory=lambda: list(CHANNEL_NAMES))

    def wrong(self, node: yaml.Node, message: str) -> RulesError:
        return RulesError(f"{self.name}:{node.start_mark.line + 1}: {message}")

    def fields(self, node: yaml.Node, known: set[str]) -> dict[str, yaml.Node]:
        if not isinstance(node, _MAPPING):
            raise self.wrong(node, f"a mapping is expected, with {', '.join(sorted(known))}")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.text(key)
            if name not in known:
                raise self.wrong(key, f"{name}: no such field; known are {', '.join(sorted(known))}")
            if name in found:
                raise self.wrong(key, f"{name}: given twice")
            found[name] = value
        return found

    def items(self, node: yaml.Node | None) -> list[yaml.Node]:
        if node is None:
            return []
        if not isinstance(node, _SEQUENCE):
            raise self.wrong(node, "a list is expected")
        return list(node.value)

    def text(self, node: yaml.Node) -> str:
        if not isinstance(node, _SCALAR):
            raise self.wrong(node, "a single value is expected")
        return str(node.value)

    def rule(self, node: yaml.Node) -> Rule:
        found = self.fields(node, set(self.readers))
        for needed in ("name", "measure", "severity"):
            if needed not in found:
                raise self.wrong(node, f"{needed}: missing")
        values: dict[str, Any] = {}
        for name, value in found.items():
            attribute = f"{name}_seconds" if name in ("window", "for", "keep", "every") else name
            try:
                values[attribute] = self.readers[name](self, value)
            except ValueError as error:
                if isinstance(error, RulesError):
                    raise
                raise self.wrong(value, f"{name}: {error}") from None
        rule = Rule(**values)
        self._check(rule, found, node)
        return rule

    def _check(self, rule: Rule, found: Mapping[str, yaml.Node], node: yaml.Node) -> None:
        known = {"finding": FINDING_CODES, "verdicts": frozenset(VERDICTS)}.get(rule.measure)
        if known is None:
            if rule.codes:
                raise self.wrong(found["codes"], f"codes: {rule.measure} has none")
        elif not rule.codes:
            raise self.wrong(node, f"codes: {rule.measure} needs at least one")
        else:
            for code in self.items(found["codes"]):
                if self.text(code) not in known:
                    raise self.wrong(code, f"codes: {self.text(code)!r} is no {rule.measure.rstrip('s')} code")
        if rule.measure == "failure_ratio" and not 0 < rule.threshold <= 1:
            raise self.wrong(found.get("threshold", node), "threshold: of a ratio, more than 0 and at most 1")

    def channel(self, node: yaml.Node) -> ChannelSpec:
        found = self.fields(node, {"name", "kind", "tenants", *_VALUES, *(f"{one}_file" for one in _SECRETS)})
        for needed in ("name", "kind", "tenants"):
            if needed not in found:
                raise self.wrong(node, f"{needed}: missing")
        kind = self.text(found["kind"])
        if kind not in _NEEDS:
            raise self.wrong(found["kind"], f"kind: {kind[:64]!r} is none of {', '.join(_NEEDS)}")
        if not _CHANNEL_NAME.fullmatch(self.text(found["name"])):
            raise self.wrong(found["name"], "name: small letters, digits and hyphens, at most 64")
        values = self._values(found)
        allowed = {*_NEEDS[kind], *_MAY_HAVE.get(kind, ())}
        for name in values:
            if name not in allowed:
                raise self.wrong(found.get(name) or found[f"{name}_file"], f"{name}: a channel of {kind} has none")
        for needed in _NEEDS[kind]:
            if not values.get(needed):
                raise self.wrong(node, f"{needed}: missing")
        tenants = tuple(self.text(item) for item in self.items(found["tenants"]))
        if not tenants:
            raise self.wrong(found["tenants"], 'tenants: at least one, or "*" for all')
        return ChannelSpec(self.text(found["name"]), kind, tenants, values)

    def _values(self, found: Mapping[str, yaml.Node]) -> dict[str, str]:
        values = {name: self.text(found[name]) for name in _VALUES if name in found}
        for name in _SECRETS:
            if (node := found.get(f"{name}_file")) is None:
                continue
            if name in values:
                raise self.wrong(node, f"{name}: given as a value and as a file; keep one")
            try:
                values[name] = Path(self.text(node)).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else "no text"
                raise self.wrong(node, f"{name}_file: cannot read it: {why}") from None
        return values

    def silence(self, node: yaml.Node) -> Silence:
        found = self.fields(node, {"until", "comment", "rule", "endpoint", "tenant"})
        for needed in ("until", "comment"):
            if needed not in found:
                raise self.wrong(node, f"{needed}: missing")
        words = {name: self.text(value) for name, value in found.items() if name != "until"}
        try:
            until = datetime.fromisoformat(self.text(found["until"]).replace("Z", "+00:00"))
        except ValueError:
            raise self.wrong(found["until"], "until: a time is RFC 3339, such as 2026-01-31T12:00:00Z") from None
        if until.tzinfo is None:
            raise self.wrong(found["until"], "until: a time has a zone, such as 2026-01-31T12:00:00Z")
        return Silence(until=until.astimezone(timezone.utc), **words)


_CHANNEL_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
_SECRETS: Final = ("url", "secret", "key")
_VALUES: Final = (*_SECRETS, "from", "to")
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "webhook": ("url",),
    "slack": ("url",),
    "pagerduty": ("key",),
    "alertmanager": ("url",),
    "email": ("url", "from", "to"),
}
_MAY_HAVE: Final[Mapping[str, tuple[str, ...]]] = {"webhook": ("secret",), "pagerduty": ("url",)}


def _name(file: _File, node: yaml.Node) -> str:
    if not _NAME.fullmatch(file.text(node)):
        raise ValueError("CamelCase letters and digits, at most 64")
    return file.text(node)


def _one_of(words: Sequence[str]) -> Callable[[_File, yaml.Node], str]:
    def read(file: _File, node: yaml.Node) -> str:
        if file.text(node) not in words:
            raise ValueError(f"{file.text(node)[:64]!r} is none of {', '.join(words)}")
        return file.text(node)

    return read


def _texts(file: _File, node: yaml.Node) -> tuple[str, ...]:
    return tuple(file.text(item) for item in file.items(node))


def _number(file: _File, node: yaml.Node) -> float:
    try:
        number = float(file.text(node))
    except ValueError:
        raise ValueError(f"{file.text(node)[:64]!r} is no number") from None
    if not 0 < number < 1e12:
        raise ValueError("a number above 0")
    return number


def _count(file: _File, node: yaml.Node) -> int:
    number = _number(file, node)
    if number != int(number):
        raise ValueError("a whole number")
    return int(number)


def _flag(file: _File, node: yaml.Node) -> bool:
    if file.text(node) not in ("true", "false"):
        raise ValueError("true or false")
    return file.text(node) == "true"


def _duration(file: _File, node: yaml.Node) -> float:
    text = file.text(node)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text[:64]!r} is no duration such as 30s, 5m, 1h30m")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total > 30 * 86_400:
        raise ValueError("at most 30d")
    return total


_READERS: Final[Mapping[str, Callable[[_File, yaml.Node], Any]]] = {
    "name": _name,
    "measure": _one_of(get_args(Measure)),
    "severity": _one_of(get_args(Severity)),
    "codes": _texts,
    "endpoints": _texts,
    "threshold": _number,
    "minimum": _count,
    "window": _duration,
    "for": _duration,
    "keep": _duration,
    "every": _duration,
    "only_open": _flag,
    "holds_when_telemetry_is_lost": _flag,
    "channels": lambda file, node: tuple(_one_of(file.channel_names)(file, item) for item in file.items(node)),
    "runbook": lambda file, node: file.text(node),
}
