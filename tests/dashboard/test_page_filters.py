"""Durations, bytes, ages, times of filters and addresses: pure words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hostile import HOSTILE

from collector.errors import BadInput
from dashboard import filters, urls
from dashboard.urls import Target

NOW = datetime(2026, 5, 4, 3, 12, 5, 120_000, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "not known"),
        (float("nan"), "not known"),
        (float("inf"), "not known"),
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9999, "1.0 s"),
        (3.14, "3.1 s"),
        (59.97, "1 min 00 s"),
        (245, "4 min 05 s"),
        (3599.6, "1 h 00 min"),
        (3900, "1 h 05 min"),
        (183_600, "2 d 3 h"),
        (-3.14, "−3.1 s"),
    ],
)
def test_durations_read_well_at_every_size(seconds: float | None, words: str) -> None:
    assert filters.duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(None, "not known"), (0, "0 B"), (1023, "1023 B"), (16384, "16 KiB"), (1_600_000, "1.5 MiB")]
)
def test_sizes_are_in_binary_units(count: int | None, words: str) -> None:
    assert filters.size(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "just now"),
        (40, "40 s ago"),
        (600, "10 min ago"),
        (7200 * 3, "6 h ago"),
        (86400 * 40, "40 d ago"),
        (-30, "30 s ahead of this server's clock"),
    ],
)
def test_ages_are_counted_in_one_unit(seconds: float, words: str) -> None:
    assert filters.age(NOW - timedelta(seconds=seconds), NOW) == words


def test_times_are_told_in_utc_whatever_their_zone() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=-7)))
    assert filters.stamp(there) == "2026-05-04 03:12:05 UTC"
    assert filters.clock(there) == "03:12:05.120"
    assert filters.rfc3339(there) == "2026-05-04T03:12:05.120000Z"


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("", None),
        ("2h", NOW - timedelta(hours=2)),
        ("1d12h", NOW - timedelta(hours=36)),
        ("90s", NOW - timedelta(seconds=90)),
        ("2026-05-04T03:00:00Z", datetime(2026, 5, 4, 3, tzinfo=timezone.utc)),
        ("2026-05-04T05:00:00+02:00", datetime(2026, 5, 4, 3, tzinfo=timezone.utc)),
        ("2026-05-04", datetime(2026, 5, 4, tzinfo=timezone.utc)),
    ],
)
def test_a_time_filter_is_an_age_or_a_time(written: str, at: datetime | None) -> None:
    assert filters.moment(written, NOW, "since") == at


@pytest.mark.parametrize("written", ["yesterday", "2 hours", "h", "99999999999999999999d", "2026-13-01", *HOSTILE[:20]])
def test_a_time_that_cannot_be_read_is_refused_by_name(written: str) -> None:
    with pytest.raises(BadInput, match="since"):
        filters.moment(written, NOW, "since")


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_invisible_stays_in_shown_text(text: str) -> None:
    shown = filters.visible(text)
    assert not {character for character in shown if ord(character) < 32 and character not in "\n\t"}
    assert not set(shown) & set(filters.BIDI_CONTROLS)
    shown.encode()  # no lone surrogate


def test_a_cut_says_so() -> None:
    assert filters.short("abc", 3) == "abc"
    assert filters.short("abcd", 3) == "abc… (cut here; 4 characters)"


def test_an_attribute_reads_as_json_does() -> None:
    assert filters.compact({"a": [1, True, None, "x"], "b": 2.5}) == "{a: [1, true, null, x], b: 2.5}"


@pytest.mark.parametrize("form", ["html", "json", "md"])
@pytest.mark.parametrize("id", [text for text in HOSTILE if text and "\ud800" not in text and len(text) < 2000])
def test_an_address_names_exactly_the_id_that_it_was_made_from(id: str, form: urls.Form) -> None:
    address = urls.page("jobs", id, form)
    assert address.isascii()
    assert not set(address) & set(" \"'<>\\^`{}|")
    assert urls.target(address.removeprefix("/jobs/")) == Target(id, form)


def test_an_id_that_looks_like_a_twin_is_none() -> None:
    assert urls.page("jobs", "x.json") == "/jobs/x%2Ejson"
    assert urls.target("x%2Ejson") == Target("x.json", "html")
    assert urls.target("x%2Ejson.json") == Target("x.json", "json")


def test_a_list_address_holds_the_filters_that_are_set() -> None:
    assert urls.listing("/jobs", {"q": "a&b", "state": "", "limit": None}) == "/jobs?q=a%26b"
    assert urls.listing("/jobs", {}) == "/jobs"
