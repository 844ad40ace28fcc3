"""The text of `docs/verdicts.md`, printed from the catalogue: `python -m collector.diagnosis.verdicts_page`.

A module of its own: what the package itself imports cannot be run by `-m` without a warning. A test keeps page and
catalogue in step.
"""

from __future__ import annotations

import sys
from typing import Final

from collector.diagnosis.verdicts import CAUSES, VERDICTS

BESIDE: Final = (
    "## What happened to others",
    "",
    "Once its own records have spoken, what others told sharpens the verdict about a failed request. The first two can"
    " change code and cause; the others add a sentence with its numbers, and say whether to send the request again.",
    "",
    "- The handler of another request ended the worker (`SystemExit`): then the verdict is `worker_crashed`, and a"
    " retry helps.",
    "- An earlier request on the worker met an error after which no GPU call of the process works any more, and none"
    " has gone well since: that request is named, and a retry on another worker helps.",
    "- Each of two or more workers that ran the request ended in the middle of it: a retry would cost the next one.",
    "- Three or more workers of the endpoint ended before `start()` within 10 minutes.",
    "- All of the failure is with one image, release or worker SDK version, and so many requests with others went"
    " before without it that this is no chance (5 %).",
    "- The failure is more frequent on the host, GPU, driver, image, release, region or SDK version of this request"
    " than elsewhere in its endpoint: at least three failures, at least twice the rate, false discoveries held to 5 %.",
    "- Every request of the endpoint has ended so for three requests or more.",
    "",
    "The endpoint is looked at over the seven days before the request and one day after it. A list shows what was known"
    " a minute after the failure; the page looks again.",
)


def markdown() -> str:
    """The text of `docs/verdicts.md`."""
    lines = [
        "# Verdicts",
        "",
        "A verdict keeps two things apart: *what happened to the request* (the verdict code) and *why* (the cause"
        " code). The phase in which something failed never changes the cause.",
        "",
        "This page is printed from the catalogue that the verdicts themselves use"
        " (`python -m collector.diagnosis.verdicts_page`).",
        "",
        "## What happened to the request",
    ]
    for verdict in VERDICTS.values():
        lines += ["", f'<a id="{verdict.code}"></a>', "", f"### `{verdict.code}`: {verdict.title}", "", verdict.meaning]
        lines += ["", f"Evidence: {verdict.needs}", ""]
        lines += [f"Usual fault: `{verdict.fault}`. Retry: {verdict.retry}. A known cause says better than this."]
        lines += _advice(verdict.advice)
        lines += ["", f"Example: *{verdict.example}*"]
    lines += ["", *BESIDE, "", "## Why"]
    for cause in CAUSES.values():
        # The two lists share the word `unknown`, hence the prefix.
        lines += ["", f'<a id="cause-{cause.code}"></a>', "", f"### Cause `{cause.code}`: {cause.title}", ""]
        lines += [cause.meaning, "", f"Usual fault: `{cause.fault}`. Retry: {cause.retry}."]
        lines += _advice(cause.advice)
    return "\n".join(lines) + "\n"


def _advice(advice: tuple[str, ...]) -> list[str]:
    return ["", "What to do:", "", *(f"- {item}" for item in advice)] if advice else []


if __name__ == "__main__":
    sys.stdout.write(markdown())
