"""The text of `docs/verdicts.md`, printed from the catalogue: `python -m collector.diagnosis.verdicts_page`.

A module of its own: what the package itself imports cannot be run by `-m` without a warning. A test keeps page and
catalogue in step.
"""

from __future__ import annotations

import sys

from collector.diagnosis.verdicts import CAUSES, VERDICTS


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
    lines += ["", "## Why"]
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
