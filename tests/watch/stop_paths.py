"""The ways in which a stop channel falls silent, told by the exporter's own `Channel` under a clock of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from sdk_exporter.contract import ChannelViolation, Key, SpanName
from sdk_exporter.hooks import channels
from sdk_exporter.hooks.channels import Channel, Poll

TICK_SECONDS = 0.2
JSON = "application/json"


@dataclass(frozen=True)
class Path:
    """How one poll goes once the channel is broken: after how long it ends, with what, and how long the SDK pauses.

    `after_seconds` None: no poll is made any more.
    """

    after_seconds: float | None = 0.05
    status: int | None = 200
    content_type: str = JSON
    error: BaseException | None = None
    violation: ChannelViolation | None = None
    is_empty: bool = False
    pause_seconds: float = 1.0


GOOD = Path(10.0, 204, "", is_empty=True)
PATHS = {
    "5xx": Path(status=503, error=RuntimeError()),
    "429": Path(status=429, error=RuntimeError(), pause_seconds=5.0),
    "refused, DNS or TLS": Path(status=None, error=ConnectionRefusedError()),
    "polls that hang": Path(90.0, None, error=TimeoutError(), pause_seconds=0.0),
    "content type": Path(content_type="text/html", violation=ChannelViolation.CONTENT_TYPE),
    "unparsable": Path(violation=ChannelViolation.PARSE),
    "not an object": Path(violation=ChannelViolation.NOT_OBJECT),
    "ids no list": Path(violation=ChannelViolation.NOT_LIST),
    "ids no strings": Path(violation=ChannelViolation.NON_STRING_IDS),
    "wrong key": Path(violation=ChannelViolation.WRONG_KEY),
    "instant empty answers": Path(0.001, 204, "", is_empty=True, pause_seconds=0.0),
    "redelivery hot loop": Path(0.001, pause_seconds=0.0),
    "no polls at all": Path(None),
}
NO_ADDRESS = "no address"
"""The path of a worker that cannot make a stop address of its own: told once, for good."""


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Ticking:
    """A channel under a clock, and what it has told."""

    channel: Channel
    clock: _Clock
    told: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def with_a_good_poll(cls) -> Iterator[Ticking]:
        """One that has been answered once."""
        clock = _Clock()
        made = cls(Channel(SpanName.STOP_CHANNEL, clock), clock)
        with patch.object(channels.events, "point", lambda name, attributes: made.told.append(attributes)):
            made.channel.expected(always=True)
            made.poll_well()
            yield made

    @property
    def states(self) -> list[str]:
        return [report[Key.CHANNEL_STATE] for report in self.told]

    def poll_well(self) -> None:
        self.channel.begins()
        self.channel.answered(Poll(self.clock), is_empty=True, is_idle=True)

    def look(self, seconds: float) -> None:
        """The beat thread looks for so long."""
        _ticks(self.channel, self.clock, self.clock.now, self.clock.now + seconds)


def reports(path: Path | None, breaks_at: float, until: float) -> list[tuple[float, dict[str, Any]]]:
    """Seconds and attributes of each report of a worker that starts at 0 and whose channel breaks later.

    A poll that is open when it breaks gets its good answer still: the worst case for finding it. `path` None: the
    channel is disabled from `breaks_at` on, when the worker starts.
    """
    clock, told = _Clock(), list[tuple[float, dict[str, Any]]]()
    begin = clock.now

    def point(name: str, attributes: dict[str, Any]) -> None:
        told.append((clock.now - begin, {key: value for key, value in attributes.items() if value is not None}))

    with patch.object(channels.events, "point", point):
        channel = Channel(SpanName.STOP_CHANNEL, clock)
        if path is None:
            clock.now = begin + breaks_at
            channel.disabled()
            _ticks(channel, clock, clock.now, begin + until)
        else:
            channel.expected(always=True)
            _poll_until(channel, clock, path, begin + breaks_at, begin + until)
    return told


def _poll_until(channel: Channel, clock: _Clock, path: Path, breaks_at: float, until: float) -> None:
    following = clock.now
    while clock.now < until:
        now = GOOD if clock.now < breaks_at else path
        if now.after_seconds is None:
            _ticks(channel, clock, following, until)
            return
        channel.begins()
        poll = Poll(clock)
        poll.status, poll.content_type = now.status, now.content_type
        following = _ticks(channel, clock, following, min(clock.now + now.after_seconds, until))
        if clock.now >= until:
            return
        if now.error is not None:
            channel.failed(poll, now.error)
        else:
            channel.answered(poll, is_empty=now.is_empty, is_idle=True, violation=now.violation)
        following = _ticks(channel, clock, following, min(clock.now + now.pause_seconds, until))


def _ticks(channel: Channel, clock: _Clock, following: float, until: float) -> float:
    """Let the beat thread look until then. Returns when it looks next."""
    while following <= until:
        clock.now = max(clock.now, following)
        channel.tick()
        following += TICK_SECONDS
    clock.now = max(clock.now, until)
    return following
