"""Why a request is still queued: each reason many times over, from all that told and from less."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection
from itertools import combinations
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "diagnosis"))

import histories as h
import queues

from collector.diagnosis import answer_of
from collector.diagnosis.answer import Answer
from collector.diagnosis.lifecycle_waiting import CALLER, POLLER
from sdk_exporter.contract import Key

RUNS = 25
EVERYBODY = ("caller", "worker", "platform")


def asked(reason: str, seed: int, sources: Collection[str] = EVERYBODY) -> Answer:
    """The answer from what these told, in any order."""
    dice = random.Random(f"{reason}{seed}")  # noqa: S311  no secret
    now, told = queues.QUEUES[reason](dice)
    spans = [span for source in sources for span in told[source]]
    dice.shuffle(spans)
    return answer_of(h.evidence(spans, now=now), tenant="default")


@pytest.mark.parametrize("reason", queues.QUEUES)
def test_the_reason_is_right_every_time(reason: str) -> None:
    for seed in range(RUNS):
        answer = asked(reason, seed)
        verdict = answer.verdict
        assert (verdict.code, verdict.queue_reason, answer.state) == ("queue_stalled", reason, "stalled"), seed
        assert not answer.final
        of_capacity = reason in ("no_capacity", "throttled", "scaled_to_zero")
        expected = "capacity_unavailable" if of_capacity else "import_error" if reason == "crash_loop" else "unknown"
        assert verdict.cause == expected
        assert {item.source for item in verdict.evidence} >= {"caller", "collector"}
        assert POLLER not in verdict.missing


def test_the_story_of_the_crash_loop() -> None:
    verdict = asked("crash_loop", 3).verdict
    assert " workers started and died before start() in 10 minutes, last with " in verdict.sentence
    assert "No module named 'flash_attn'" in verdict.sentence
    assert "no worker has claimed it: crash loop: " in verdict.sentence
    assert verdict.confidence == "certain"


TELLS = {
    "no_capacity": {"platform"}, "throttled": {"platform"}, "scaled_to_zero": {"platform"}, "paused": {"platform"},
    "crash_loop": {"platform", "worker"}, "no_poller": {"platform", "worker"}, "funnelled": {"platform", "worker"},
    "bad_payload": {"worker"},
}  # fmt: skip
SUBSETS = [set(some) for size in (1, 2) for some in combinations(EVERYBODY, size)]


@pytest.mark.parametrize("sources", SUBSETS, ids=lambda some: "+".join(sorted(some)))
@pytest.mark.parametrize("reason", queues.QUEUES)
def test_less_than_all_still_gives_an_answer_that_says_so(reason: str, sources: set[str]) -> None:
    for seed in range(5):
        verdict = asked(reason, seed, sorted(sources)).verdict
        assert verdict.evidence
        told = {item.what for item in verdict.missing}
        if verdict.code == "queue_stalled":
            assert (POLLER.what in told) == ("platform" not in sources), verdict.missing
            assert (CALLER.what in told) == ("caller" not in sources)
            assert verdict.confidence != "certain" or "caller" in sources
        if sources & TELLS[reason] and reason != "bad_payload":
            assert (verdict.code, verdict.queue_reason) == ("queue_stalled", reason), verdict
        elif sources == {"caller"}:
            assert verdict.code in ("queued", "queue_stalled")
            assert verdict.confidence in ("certain", "possible")


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_slow_but_normal_cold_start_is_no_stall(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  no secret
    normal = dice.uniform(30, 1_800)
    elapsed = dice.uniform(1, normal)
    began = dice.uniform(0, 60)
    now = began + elapsed
    told = {Key.PLATFORM_STARTS: 20, Key.PLATFORM_START_SECONDS_P95: normal}
    spans = [h.request(0), *queues.answers(-30, began, attributes=told)]
    spans += queues.answers(began, now, initializing=1, attributes=told)
    spans += [queues.shown(began, "w1", "INITIALIZING"), queues.line(began, "w1", "start container")]
    with_worker = [*spans, *h.boot(began + elapsed / 3, worker="w1", boot="e" * 32)]
    for told_by in (spans, with_worker):
        answer = answer_of(h.evidence(told_by, now=now), tenant="default")
        assert (answer.verdict.code, answer.state) == ("queued", "queued"), answer.verdict.sentence
        assert "normal for this endpoint is up to" in answer.verdict.sentence


def test_a_start_that_takes_longer_than_is_normal_is_slow() -> None:
    told = {Key.PLATFORM_STARTS: 20, Key.PLATFORM_START_SECONDS_P95: 60.0}
    spans = [h.request(0), *queues.answers(0, 200, initializing=1, attributes=told)]
    spans += [queues.shown(0, "w1", "INITIALIZING")]
    verdict = answer_of(h.evidence(spans, now=200), tenant="default").verdict
    assert verdict.code == "cold_start_slow"
    assert "normal for this endpoint is up to 1 min (95 in 100 of its last 20 starts)" in verdict.sentence
    spans[-1] = queues.shown(150, "w1", "INITIALIZING")
    assert answer_of(h.evidence(spans, now=200), tenant="default").verdict.code == "queued"


def test_an_old_answer_tells_nothing_and_the_gap_is_cited() -> None:
    spans = [h.request(0), *queues.answers(-30, 100, throttled=2)]
    now = answer_of(h.evidence(spans, now=150), tenant="default").verdict
    assert now.queue_reason == "throttled"
    late = [*spans, queues.gap(99, 990)]
    assert answer_of(h.evidence(late, now=600), tenant="default").verdict.code == "queued"
    verdict = answer_of(h.evidence(late, now=1_000), tenant="default").verdict
    assert (verdict.queue_reason, verdict.confidence) == ("no_capacity", "possible")
    assert "the platform could not be asked (workers: HTTP 500)" in {item.text for item in verdict.evidence}


def test_a_moment_of_idleness_or_throttling_is_no_reason() -> None:
    for counts in ({"throttled": 1}, {"idle": 1}, {}):
        spans = [h.request(0), *queues.answers(-60, 20, running=2, jobs=2), *queues.answers(30, 45, **counts)]
        assert answer_of(h.evidence(spans, now=45), tenant="default").verdict.code == "queued"


def test_workers_that_are_busy_are_told_after_long() -> None:
    spans = [h.request(0), *queues.answers(-60, 1_000, running=3, jobs=3)]
    assert answer_of(h.evidence(spans, now=300), tenant="default").verdict.code == "queued"
    verdict = answer_of(h.evidence(spans, now=1_000), tenant="default").verdict
    assert verdict.queue_reason == "no_capacity"
    assert "all 3 workers of at most 3 are busy with other requests" in verdict.sentence


def test_a_worker_that_is_busy_and_asks_for_no_more_is_no_mute_one() -> None:
    """At one request at a time, no poll is made while one runs: that is the queue at work."""
    for now, code in ((200.0, "queued"), (1_000.0, "queue_stalled")):
        busy = [*queues.serving("w1", -90, now, jobs=["other"]), queues.take(now - 5, "w1", **{Key.CHANNEL_POLLS: 0})]
        verdict = answer_of(h.evidence([h.request(0), *busy], now=now), tenant="default").verdict
        assert (verdict.code, verdict.queue_reason) == (code, None if code == "queued" else "no_capacity")


def test_a_worker_that_fell_silent_is_none_that_serves() -> None:
    spans = [h.request(0), *queues.serving("w1", -90, 30)]
    verdict = answer_of(h.evidence(spans, now=1_000), tenant="default").verdict
    assert "possibly because no worker of its endpoint is heard of any more" in verdict.sentence
    assert (verdict.queue_reason, verdict.confidence) == ("no_capacity", "possible")
