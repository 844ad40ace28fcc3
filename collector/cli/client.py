"""The command line as a client of the server: `STALLSCOPE_URL`, `STALLSCOPE_TOKEN`, and errors in the CLI's words."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import quote

import httpx

from collector.cli.failures import UNREACHABLE, USAGE, CommandFailed, unreachable

DEFAULT_URL: Final = "http://127.0.0.1:4318"
CALL_SECONDS: Final = 30.0


def open_client() -> httpx.Client:
    """A client of the server that the environment names."""
    token = os.environ.get("STALLSCOPE_TOKEN", "").strip()
    base = os.environ.get("STALLSCOPE_URL", "").strip() or DEFAULT_URL
    try:
        url = httpx.URL(base.rstrip("/"))
        usable = url.scheme in ("http", "https") and bool(url.host)
    except httpx.InvalidURL:
        usable = False
    if not usable:
        raise CommandFailed(f"STALLSCOPE_URL is no http address: {base!r}", "usage_error", exit_code=USAGE)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=base.rstrip("/"), headers=headers, timeout=CALL_SECONDS, trust_env=False)


def fetch_answer(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """The whole answer for one request. Raises CommandFailed: not_found, auth_error, network_error, api_error."""
    answer = _get(client, f"/api/v1/jobs/{quote(job_id, safe='')}")
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict) or "verdict" not in body:
        raise CommandFailed(f"{client.base_url} does not answer as a Stallscope server", "api_error")
    return body


def fetch_markdown(client: httpx.Client, job_id: str) -> str:
    """The request's page as Markdown."""
    return _get(client, f"/jobs/{quote(job_id, safe='')}.md").text


def _get(client: httpx.Client, path: str) -> httpx.Response:
    try:
        answer = client.get(path)
    except httpx.TimeoutException:
        raise CommandFailed(
            f"{client.base_url} did not answer in {CALL_SECONDS:g} s",
            "call_timeout",
            retryable=True,
            exit_code=UNREACHABLE,
        ) from None
    except httpx.HTTPError as error:
        raise unreachable(f"cannot reach {client.base_url}: {error}") from None
    if answer.status_code == httpx.codes.OK:
        return answer
    raise _refused(answer)


def _refused(answer: httpx.Response) -> CommandFailed:
    try:
        problem = answer.json()
        detail, retryable = str(problem["detail"]), bool(problem.get("retryable"))
    except (ValueError, KeyError, TypeError):
        detail, retryable = f"HTTP {answer.status_code}", answer.status_code >= 500
    if answer.status_code in (401, 403):
        return CommandFailed(f"{detail} (STALLSCOPE_TOKEN)", "auth_error")
    if answer.status_code == httpx.codes.NOT_FOUND:
        return CommandFailed(detail, "not_found")
    return CommandFailed(detail, "api_error", retryable=retryable)
