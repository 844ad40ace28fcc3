"""`stallscope explain`: the verdict of one request, or of a log that somebody sent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from collector.cli.client import fetch_answer, fetch_markdown, open_client
from collector.cli.durations import duration_option
from collector.cli.failures import FAILED, USAGE, CommandFailed

GOOD: Final = frozenset({"completed", "stopped", "queued", "running"})
"""Verdict codes that are no bad news."""
LOOK_SECONDS: Final = 0.5
LOG_BYTES: Final = 64 << 20
"""Most bytes read of a log: only its end counts."""


@click.command()
@click.argument("job_id", required=False)
@click.option(
    "--wait", metavar="DURATION", callback=duration_option, help="Return when the verdict is final, at most after this."
)
@click.option("--log", "log_file", type=click.Path(allow_dash=True), help="Explain this log instead; - is stdin.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it as Markdown, for an issue or a chat.")
def explain(job_id: str | None, wait: float | None, log_file: str | None, *, as_json: bool, as_markdown: bool) -> int:
    """Say why the request JOB_ID failed or stalled.

    Asks the server at STALLSCOPE_URL. With --log no server is needed. Exits 0 for a request that is completed, stopped,
    queued or running, else 1.
    """
    if (job_id is None) == (log_file is None):
        raise click.UsageError("give either a JOB_ID or --log FILE")
    if as_json and as_markdown:
        raise click.UsageError("give either --json or --markdown")
    if log_file is not None:
        if wait is not None:
            raise click.UsageError("--wait goes with a JOB_ID")
        verdict = _verdict_of_log(log_file)
        click.echo(_log_text(verdict, as_json=as_json, as_markdown=as_markdown))
        return _exit_code(verdict)
    return _explain_job(job_id or "", wait, as_json=as_json, as_markdown=as_markdown)


def _explain_job(job_id: str, wait: float | None, *, as_json: bool, as_markdown: bool) -> int:
    with open_client() as client:
        answer = _final(lambda: fetch_answer(client, job_id), wait or 0.0)
        if as_json:
            click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        elif as_markdown:
            click.echo(fetch_markdown(client, job_id).rstrip())
        else:
            click.echo(verdict_text(answer["verdict"], heading=f"Request {answer['job_id']}: {answer['state']}"))
    if wait is not None and not answer["final"]:
        raise CommandFailed(f"the verdict was not final after {wait:g} s", "timeout", retryable=True)
    return _exit_code(answer["verdict"])


def _final(ask: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The answer once it is final, or what there is when the time is over. A request not yet known may still come."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            answer = ask()
            if answer["final"] or left <= 0:
                return answer
        except CommandFailed as failure:
            if left <= 0 or not (failure.code == "not_found" or failure.retryable):
                raise
        time.sleep(min(LOOK_SECONDS, max(left, 0)))


def _verdict_of_log(log_file: str) -> dict[str, Any]:
    # Loaded here: explaining a request needs none of it.
    from collector.diagnosis import diagnose_tail
    from collector.diagnosis.clues import Clues
    from collector.json_forms import verdict_json
    from sdk_exporter.bounds import tail
    from sdk_exporter.contract import LOG_OVERLAP_BYTES, LOG_TAIL_BYTES
    from sdk_exporter.redaction import redact

    text = _read_end(log_file)
    # A piece more than the tail is redacted first, so that no secret is cut before it is recognised.
    piece = text[-4 * (LOG_TAIL_BYTES + LOG_OVERLAP_BYTES) :]
    safe = tail(redact(piece, truncated=len(piece) < len(text)), LOG_TAIL_BYTES)
    return verdict_json(diagnose_tail(Clues(text=safe)))


def _read_end(log_file: str) -> str:
    try:
        with click.open_file(log_file, "rb") if log_file == "-" else Path(log_file).open("rb") as stream:
            if log_file != "-":
                stream.seek(max(0, Path(log_file).stat().st_size - LOG_BYTES))
            raw = b""
            while piece := stream.read(1 << 20):
                raw = (raw + piece)[-LOG_BYTES:]
    except OSError as error:
        raise CommandFailed(
            f"cannot read {log_file}: {error.strerror or error}", "usage_error", exit_code=USAGE
        ) from None
    if not raw.strip():
        raise CommandFailed(f"{log_file} holds no text", "usage_error", exit_code=USAGE)
    return raw.decode("utf-8", "replace")


def _log_text(verdict: dict[str, Any], *, as_json: bool, as_markdown: bool) -> str:
    if as_json:
        return json.dumps(verdict, ensure_ascii=False, indent=2)
    return _markdown(verdict) if as_markdown else verdict_text(verdict, heading="The log")


def verdict_text(verdict: dict[str, Any], *, heading: str) -> str:
    """The verdict for a person: sentence first, then what it rests on, what to do, what is not known."""
    code = click.style(f"{verdict['code']} / {verdict['cause']}", fg="green" if verdict["code"] in GOOD else "red")
    lines = [heading, f"{code}  ({verdict['confidence']})", "", verdict["sentence"]]
    lines += _block("Evidence", [_evidence_line(item) for item in verdict["evidence"]])
    lines += _block("What to do", verdict["advice"])
    lines += _block("Not known", [f"{gap['what']}: {gap['how']}" for gap in verdict["missing"]])
    return "\n".join(lines)


def _evidence_line(item: dict[str, Any]) -> str:
    place = f"line {item['line']}" if item.get("line") else item["what"].replace("_", " ")
    return f"{item['source']}, {place}: {item['text']}"


def _block(title: str, entries: list[str]) -> list[str]:
    indented = [entry.replace("\n", "\n    ") for entry in entries]
    return ["", click.style(title, bold=True), *(f"  - {entry}" for entry in indented)] if entries else []


def _markdown(verdict: dict[str, Any]) -> str:
    lines = [f"## {verdict['title']}", "", verdict["sentence"], ""]
    lines += [f"`{verdict['code']}` / `{verdict['cause']}`, {verdict['confidence']}"]
    for item in verdict["evidence"]:
        lines += ["", *(f"    {line}" for line in item["text"].splitlines())]
    lines += ["", *(f"- {advice}" for advice in verdict["advice"])] if verdict["advice"] else []
    return "\n".join(lines)


def _exit_code(verdict: dict[str, Any]) -> int:
    return 0 if verdict["code"] in GOOD else FAILED
