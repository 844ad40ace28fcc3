"""Rows of the tables `jobs` and `verdict_history`, and the way from an answer to its row and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from pydantic import TypeAdapter

from collector.diagnosis.answer import Answer, Attempt, Group, Revision, State, Verdict, Wasted
from collector.json_forms import item_json, json_bytes
from sdk_exporter.contract import Key

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
INT64_MAX: Final = 2**63 - 1

NO_FAILURE: Final = frozenset({"completed", "queued", "running", "stopped"})
"""Verdict codes that are no failure: they have no group, and the command line answers 0 to them."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One request after its last diagnosis (table `jobs`; field order is column order)."""

    tenant: str
    job_id: str
    version: int  # grows with each write, nanoseconds of the digest's clock
    endpoint_id: str
    worker_ids: list[str]
    boot_ids: list[str]
    state: str
    is_final: bool
    code: str
    cause: str
    queue_reason: str
    fault: str
    retry: str
    confidence: str
    inferred: bool
    fingerprint: str  # empty where the verdict is no failure
    title: str
    sentence: str
    root_line: str
    revision: int
    first_ns: int  # start of the earliest record of the request
    last_ns: int
    digested_ms: int  # arrival of the newest record that the diagnosis has seen
    updated_ms: int  # the digest's clock at the write
    host: str
    gpu: str
    driver: str
    image: str
    release: str
    region: str
    sdk: str
    search_text: str
    document: str


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One revision of a request's verdict (table `verdict_history`; field order is column order)."""

    tenant: str
    job_id: str
    revision: int
    version: int
    at_ms: int
    code: str
    cause: str
    is_final: bool
    why: str


@dataclass(frozen=True, slots=True)
class LeftPlace:
    """Where a request stood in `job_times` before an earlier record of it came: taken out of the table."""

    tenant: str
    first_ns: int
    job_id: str
    version: int
    updated_ms: int
    gone: int = 1


@dataclass(frozen=True, slots=True)
class _Document:
    """What of an answer is kept in `jobs.document`; history and group are counted in their tables when read."""

    job_id: str
    tenant: str
    endpoint_id: str | None
    worker_ids: tuple[str, ...]
    state: State
    final: bool
    revision: int
    verdict: Verdict
    attempts: tuple[Attempt, ...]
    wasted: Wasted


_DOCUMENT: Final = TypeAdapter(_Document)


def document_of(answer: Answer) -> str:
    """The part of `answer` that outlives its spans, as JSON text."""
    kept = item_json(answer)
    del kept["history"], kept["group"]
    return json_bytes(kept).decode()


def answer_of_document(document: str, history: Sequence[Revision], group: Group | None) -> Answer:
    """The item of a list: the stored answer, without spans, phases and log tail."""
    kept = _DOCUMENT.validate_json(document)
    return Answer(
        job_id=kept.job_id,
        tenant=kept.tenant,
        endpoint_id=kept.endpoint_id,
        worker_ids=kept.worker_ids,
        state=kept.state,
        final=kept.final,
        revision=kept.revision,
        verdict=kept.verdict,
        attempts=kept.attempts,
        history=tuple(history),
        group=group,
        wasted=kept.wasted,
    )


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a worker runs on, as its resource tells; None where it does not."""

    host: str | None = None
    gpu: str | None = None
    driver: str | None = None
    image: str | None = None
    release: str | None = None
    region: str | None = None
    sdk: str | None = None  # version of the worker SDK


def hardware_of(resource: Mapping[str, Any]) -> Hardware:
    """Host, GPU model, driver, container image, release, region and worker SDK of a worker's resource."""

    def text(key: str) -> str | None:
        value = resource.get(key)
        return value if isinstance(value, str) and value else None

    image, tags = text(Key.CONTAINER_IMAGE_NAME), resource.get(Key.CONTAINER_IMAGE_TAGS)
    if image and isinstance(tags, list) and tags:
        image = f"{image}:{tags[0]}"
    return Hardware(
        host=text(Key.HOST_NAME),
        gpu=text(Key.HW_MODEL),
        driver=text(Key.HW_DRIVER_VERSION),
        image=image,
        release=text(Key.SERVICE_VERSION),
        region=text(Key.CLOUD_REGION),
        sdk=text(Key.SDK_VERSION),
    )


def time_of_ns(ns: int) -> datetime:
    """Unix nanoseconds as a UTC datetime, cut to its microseconds."""
    return EPOCH + timedelta(microseconds=ns // 1000)


def time_of_ms(ms: int) -> datetime:
    """Unix milliseconds as a UTC datetime."""
    return EPOCH + timedelta(milliseconds=ms)


def ns_of(at: datetime) -> int:
    """A time as Unix nanoseconds, exact to the microsecond, within what a column holds."""
    return within_int64((at - EPOCH) // timedelta(microseconds=1) * 1000)


def within_int64(ns: int) -> int:
    """`ns` as a column can hold it; the greatest value is left free for "before the newest row"."""
    return max(-INT64_MAX, min(ns, INT64_MAX - 1))


def ms_of(at: datetime) -> int:
    """A time as Unix milliseconds."""
    return (at - EPOCH) // timedelta(milliseconds=1)


def revision_of(record: dict[str, Any]) -> Revision:
    """A row of `verdict_history` as the answer tells it."""
    return Revision(at=time_of_ms(int(record["at_ms"])), code=str(record["code"]), why=str(record["why"]))
