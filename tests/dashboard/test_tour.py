"""The paths of docs/tour.md lead where it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import serving
from selenium.webdriver import Chrome
from tour import IMAGES, MOST_CLICKS, QUESTIONS, seed, walk

from collector.settings import Settings

PAGE = Path(__file__).parent.parent.parent / "docs" / "tour.md"


@pytest.fixture
def town(settings: Settings) -> Iterator[str]:
    """A server with the day that the tour shows."""
    with serving(settings) as address:
        seed(address)
        yield address


def test_each_question_is_answered_in_few_clicks(browser: Chrome, town: str) -> None:
    for question in QUESTIONS:
        assert len(question.clicks) <= MOST_CLICKS
        walk(browser, town, question)


def test_the_page_shows_each_question_and_its_picture() -> None:
    text = PAGE.read_text(encoding="utf-8")
    pictures = re.findall(r"\(images/(tour-[a-z]+\.png)\)", text)
    assert pictures == [f"tour-{question.name}.png" for question in QUESTIONS]
    assert all((IMAGES / picture).is_file() for picture in pictures)
