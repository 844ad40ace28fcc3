"""This request beside the last good one of its endpoint: in what they differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from collector.diagnosis.answer import Answer, PhaseName
from collector.queries.stored import hardware_of
from collector.rows import Attributes
from dashboard.contexts import Comparison, Difference
from dashboard.filters import duration
from sdk_exporter.contract import Key, SpanName

LINES: Final = 12
NOT_TOLD: Final = "not told"
TIMES_DIFFERENT: Final = 2.0  # durations closer than this are the same
SECONDS_DIFFERENT: Final = 0.2  # and so are durations that lie closer than this
TIMED: Final[tuple[PhaseName, ...]] = ("queued", "boot", "prestart", "claimed", "gated", "run", "deliver")

# What a setting is called for a reader, the record that carries it, and its attribute there.
_SETTINGS: Final = (
    ("bound on prestart (s)", SpanName.PRESTART, Key.PRESTART_TIMEOUT_SECONDS),
    ("handler", SpanName.JOB_RUN, Key.HANDLER_KIND),
    ("requests taken at once", SpanName.JOB_CLAIMED, Key.CLAIM_BATCH_SIZE),
)
Pair = tuple[str, str, str]  # name, here, there; a value that no record tells is empty


def compared(here: Answer, resource: Attributes, there: Answer, good_resource: Attributes, at: datetime) -> Comparison:
    """The comparison. `resource` and `good_resource`: what each worker told of itself; `at`: when the good one ran."""
    # A request that no worker has had differs from one that was served in everything, which tells nothing.
    facts = [*_of_workers(resource, good_resource), *_settings(here, there)] if resource else []
    differ = [Difference(name, a or NOT_TOLD, b or NOT_TOLD) for name, a, b in facts if a != b]
    differ += list(_timings(here, there))
    return Comparison(
        job_id=there.job_id,
        at=at,
        differences=tuple(differ[:LINES]),
        left_out=max(0, len(differ) - LINES),
        same=tuple(name for name, a, b in facts if a and a == b),
    )


def _of_workers(here: Attributes, there: Attributes) -> Iterator[Pair]:
    """Image, release, SDK, GPU, driver, host, region and worker: what changes with a release comes first."""
    a, b = hardware_of(here), hardware_of(there)
    yield "image", a.image or "", b.image or ""
    yield "release", a.release or "", b.release or ""
    yield "worker SDK", _sdk(here), _sdk(there)
    yield "GPU", a.gpu or "", b.gpu or ""
    yield "driver", a.driver or "", b.driver or ""
    yield "host", a.host or "", b.host or ""
    for name, key in (("region", Key.CLOUD_REGION), ("GPU unit", Key.HW_ID), ("worker", Key.SERVICE_INSTANCE_ID)):
        yield name, _text(here, key), _text(there, key)


def _sdk(resource: Attributes) -> str:
    return " ".join(filter(None, (_text(resource, Key.SDK_NAME), _text(resource, Key.SDK_VERSION))))


def _text(attributes: Attributes, key: str) -> str:
    value = attributes.get(key)
    return "" if value is None or isinstance(value, (list, dict)) else str(value)


def _settings(here: Answer, there: Answer) -> Iterator[Pair]:
    for name, record, key in _SETTINGS:
        yield name, _told(here, record, key), _told(there, record, key)


def _told(answer: Answer, record: str, key: str) -> str:
    """The newest value of an attribute in records of one name; empty where none has it."""
    found = [_text(span.attributes, key) for span in answer.spans if span.name.startswith(record)]
    return next((text for text in reversed(found) if text), "")


def _timings(here: Answer, there: Answer) -> Iterator[Difference]:
    for name in TIMED:
        a, b = _seconds(here, name), _seconds(there, name)
        if b is None or not _came_to(here, name) or (a is not None and not _far_apart(a, b)):
            continue
        yield Difference(f"time in {name}", "its end was never told" if a is None else duration(a), duration(b))


def _far_apart(a: float, b: float) -> bool:
    return abs(a - b) >= SECONDS_DIFFERENT and max(a, b) >= TIMES_DIFFERENT * min(a, b)


def _seconds(answer: Answer, name: PhaseName) -> float | None:
    """Seconds that its newest attempt spent in a phase, as far as they are known."""
    newest = max((phase.attempt for phase in answer.phases), default=1)
    known = [
        phase.seconds
        for phase in answer.phases
        if phase.name == name and phase.attempt == newest and phase.seconds is not None
    ]
    return sum(known) if known else None


def _came_to(answer: Answer, name: PhaseName) -> bool:
    return any(phase.name == name for phase in answer.phases)
