"""The health of one channel, from reports alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from collector.watch.channels import health
from collector.watch.sightings import Report

SECOND = 1_000_000_000


def report(at: float, state: str, **told: Any) -> Report:
    facts: dict[str, Any] = {
        "polls": None, "failures": None, "consecutive_failures": None, "last_ok_age_seconds": None, "violation": "",
        "hold_seconds": None, "rate_per_second": None, "http_status": None, "content_type": "", "span_id": "",
    }  # fmt: skip
    return Report(at_ns=round(at * SECOND), state=state, **{**facts, **told})


def test_thirty_seconds_and_three_polls_are_both_needed() -> None:
    first = report(0, "failing", consecutive_failures=1, last_ok_age_seconds=0.0)
    assert health([first, report(29, "failing", consecutive_failures=9)], 0).state == "failing"
    assert health([first, report(300, "failing", consecutive_failures=2)], 0).state == "failing"
    assert health([first, report(30, "failing", consecutive_failures=3)], 0).state == "dead"


def test_the_last_word_holds_while_the_worker_beats() -> None:
    told = [report(0, "failing", consecutive_failures=3, last_ok_age_seconds=4.0)]
    assert health(told, 20 * SECOND).state == "failing"
    assert health(told, 26 * SECOND).state == "dead"


def test_one_good_answer_after_a_death_that_only_time_told_is_not_enough() -> None:
    told = [report(0, "failing", consecutive_failures=3, last_ok_age_seconds=4.0), report(60, "ok", polls=1)]
    assert health(told, 61 * SECOND).state == "dead"
    assert health([*told, report(61, "ok", polls=1, failures=0)], 62 * SECOND).state == "ok"


def test_a_short_failure_ends_with_the_first_good_answer() -> None:
    told = [report(0, "failing", consecutive_failures=2, last_ok_age_seconds=2.0), report(5, "ok", polls=1)]
    assert health(told, 6 * SECOND).state == "ok"


def test_no_reports_and_unknown_words_are_no_death() -> None:
    assert health([], 0).state == "ok"
    assert health([report(0, "melted")], 900 * SECOND).state == "ok"


def test_only_the_worker_can_say_that_nobody_polls() -> None:
    old_answer = report(60, "ok", polls=0, last_ok_age_seconds=60.0)
    assert health([old_answer], 900 * SECOND).state == "ok"
    told = report(60, "failing", polls=0, unanswered_seconds=30.0, is_polling=False)
    found = health([old_answer, told], 61 * SECOND)
    assert (found.state, found.why, found.since_ns) == ("dead", "no polls at all", 30 * SECOND)
    assert health([replace(told, is_polling=True)], 61 * SECOND).why == "polls without an answer"
    assert health([told, report(70, "ok", polls=1), report(71, "ok", polls=1, failures=0)], 72 * SECOND).state == "ok"


def test_what_the_newest_answer_was_is_said() -> None:
    def why(**told: Any) -> str:
        return health([report(0, "failing", consecutive_failures=1, **told)], 0).why

    assert why(http_status=503, error_type="503") == "HTTP 503"
    assert why(http_status=200, content_type="text/html", violation="content_type") == "HTTP 200, text/html"
    assert why(error_type="aiohttp.client_exceptions.ClientConnectorDNSError") == "ClientConnectorDNSError"
    assert why(error_type="timeout") == "timeout"
    assert why() == "polls that fail"
