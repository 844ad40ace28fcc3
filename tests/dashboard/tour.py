"""The tour of docs/tour.md, walked in a real browser: five people's questions, each with the clicks that answer it.

`python tests/dashboard/tour.py` walks it over a fresh store and writes the screenshots of the page.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from browsing import browsing, listed, send, serving, waiting
from otlp_worker import completed, earlier, handler_out_of_memory, prestart_out_of_memory, running, span
from pydantic import SecretStr
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from collector.settings import Settings
from sdk_exporter.contract import Key, SpanName

MOST_CLICKS = 5
IMAGES = Path(__file__).parent.parent.parent / "docs" / "images"
STUCK, BILLED, BROKEN = "req-stuck-7", "req-cancelled-3", "req-new-image-1"


@dataclass(frozen=True, slots=True)
class Click:
    """One thing that a person does: follow the link that a selector finds, or type into the search box."""

    selector: str = ""
    typed: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, what is done for it from the front page, and what the last page must say."""

    name: str
    shows: str  # what of the last page the picture begins with
    clicks: Sequence[Click]
    answers: Sequence[str]  # texts in the page's main part


QUESTIONS: Sequence[Question] = (
    Question("stuck", "main", (Click(typed=STUCK),), ("In run for", "usually 2.9 s", "95 of 100 are through")),
    Question("billed", "#timeline", (Click(typed=BILLED),), ("was cancelled", "Since the cancel", "GPU held")),
    Question(
        "worker",
        "main",
        (
            Click(".chart .legend a[href*=prestart_failed]"),
            Click("main .job-id"),
            Click("[aria-labelledby=elsewhere] a.big"),
        ),
        ("What stands out", "host-bad"),
    ),
    Question(
        "fault",
        "main",
        (Click(typed="http://127.0.0.1:4318/jobs/req-host-1"),),
        ("whose side", "What to do now", "host-bad"),
    ),
    Question("image", "#wasted", (Click(typed=BROKEN),), ("Beside the last good request", "release", "v2", "v1")),
)


def seed(address: str) -> None:
    """A day of an endpoint: good requests, a bad host, a new image, a cancelled and a stuck request."""
    good = [f"req-good-{number}" for number in range(12)]
    for number, job_id in enumerate(good):
        send(address, earlier(completed(job_id), 3600 + number * 60), release="v1", host=f"host-{number % 4}",
             worker=f"w-{number % 4}", boot=f"{number % 4:032x}")  # fmt: skip
    bad = [f"req-host-{number}" for number in range(6)]
    for number, job_id in enumerate(bad):
        send(address, earlier(prestart_out_of_memory(job_id), 1800 - number * 60), release="v1", host="host-bad",
             worker="w-bad", boot=f"{100 + number:032x}")  # fmt: skip
    send(address, _cancelled(BILLED), release="v1", host="host-1", worker="w-1", boot=f"{201:032x}")
    send(address, handler_out_of_memory(BROKEN), release="v2", host="host-2", worker="w-2", boot=f"{202:032x}")
    send(address, running(STUCK), release="v1", host="host-3", worker="w-3", boot=f"{203:032x}")
    listed(address, *good, *bad, BILLED, BROKEN, STUCK)


def _cancelled(job_id: str) -> list[dict[str, object]]:
    """A handler that went on for 40 s after its request was cancelled."""
    job = {Key.INVOCATION_ID: job_id}
    stop = {**job, Key.STOP_OUTCOME: "ignored", Key.STOP_SECONDS: 40.0}
    return [
        span(SpanName.JOB_CLAIMED, -60, -60, attributes=job),
        span(SpanName.JOB_STOP, -45, -5, error=True, attributes=stop),
        span(SpanName.JOB_RUN, -59.9, -5, attributes={**job, Key.HANDLER_KIND: "sync"}),
    ]


def walk(browser: Chrome, address: str, question: Question) -> float:
    """Do the clicks, see the answer; the seconds that the machine took."""
    began = time.monotonic()
    browser.get(f"{address}/")
    for click in question.clicks:
        before = browser.current_url
        if click.typed:
            browser.find_element(By.ID, "search").send_keys(click.typed, Keys.ENTER)
        else:
            # By key: the page scrolls softly, and a pointer could hit what slides by.
            browser.find_elements(By.CSS_SELECTOR, click.selector)[0].send_keys(Keys.ENTER)
        waiting(browser).until(lambda it, before=before: it.current_url != before)
    waiting(browser).until(lambda it: told(it, question), question.name)
    return time.monotonic() - began


def told(browser: Chrome, question: Question) -> bool:
    """Whether the page says all of it. A busy store may not have answered in time: the page is then read again."""
    said = " ".join(browser.find_element(By.TAG_NAME, "main").text.split())
    if all(answer in said for answer in question.answers):
        return True
    browser.refresh()
    return False


def take_pictures(folder: Path) -> None:
    """The last page of each question, as a file."""
    with tempfile.TemporaryDirectory() as store:
        settings = Settings(database_url=SecretStr(f"chdb://{store}/store"))
        with serving(settings) as address, browsing(width=1100, height=1400) as browser:
            seed(address)
            for question in QUESTIONS:
                seconds = walk(browser, address, question)
                browser.execute_script(
                    "document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant'})", question.shows
                )
                browser.save_screenshot(str(folder / f"tour-{question.name}.png"))
                print(f"{question.name}: {len(question.clicks)} clicks, {seconds:.1f} s")


if __name__ == "__main__":
    take_pictures(IMAGES)
