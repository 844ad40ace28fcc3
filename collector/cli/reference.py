"""The page `docs/cli.md`, made from the parser: `python -m collector.cli.reference > docs/cli.md`."""

from __future__ import annotations

import inspect
from typing import Final, get_args

import click

from collector.caller import errors
from collector.cli import main
from collector.cli.calling import EXIT_CODES
from collector.cli.failures import FAILED, ErrorCode

INTRODUCTION: Final = """\
# Command line

This page is made from the parser (`python -m collector.cli.reference > docs/cli.md`), and a test keeps both in step.

A DURATION is `500ms`, `3s`, `5m`, `1h30m`, or plain seconds. `NO_COLOR` and a pipe turn colour off.

## Streams, exit codes, errors

Results are on stdout; progress, notes and errors are on stderr. `run`, `status`, `health` and `cancel` print the
platform's answer byte for byte, also when the request ended badly. Progress is shown to a terminal only, never in a
pipe or with `--json`.

Exit codes: 0 done · 1 bad news or failed · 2 usage · 3 could not reach it · 130 interrupted.

With `--json` every line on stderr is a JSON object: notes are `{"note": "…"}`, and an error is the last line,
`{"error": "…", "code": "…", "retryable": true|false}`. When a request ended badly and a Stallscope server
(`STALLSCOPE_URL`) has its verdict within 2 s, that line also has `verdict`; the exit code is the same without.

`retryable` says whether the same command may be given again, safely and with hope. Once a request is submitted,
running it again would be a second request, so whatever ends a `run` after that is not retryable (but for a request
that was cancelled because it waited too long in the queue); look again with the `stallscope status` command that the
error names.

| code | exit | retryable | what |
|---|---|---|---|
"""
CALLER: Final = """
## The caller's side

`run`, `status`, `health` and `cancel` speak to a Runpod-compatible invoke API: `RUNPOD_INVOKE_URL` (with `/v2`, default
`https://api.runpod.ai/v2`), with the key in `RUNPOD_API_KEY`. No Stallscope server is needed.

- A request is submitted by `/run`, never `/runsync`, so its id is known at once.
- `--wait` bounds everything together: submission, calls and pauses. One call gets 30 s, less where less is left, and
  1 s at least, so a wait is overrun by 1 s at most. It is not the request's own limit: that is the endpoint's
  `executionTimeout`.
- Between two looks are 1, 2, 4, 5, 5, … seconds, each up to 20 % more or less. After a network error, HTTP 429 or 5xx
  the platform is asked again in the same rhythm; the fifth in a row is told. Outside a wait a network error is told at
  once.
- A submission that may have arrived (no answer, a broken connection, HTTP 504) is not repeated: the error says that
  the request may be queued, without a known id.
- A request of `run` that is still queued `--queue-limit` after its submission is cancelled, and the error says whether
  that worked. `status` only looks.
- The input is sent as written; only blanks between tokens are dropped. Its largest size is 10 MiB, as sent.
- Ctrl-C leaves the request running. On a terminal you are asked whether to cancel it; Ctrl-C again leaves.
- Where `OTEL_EXPORTER_OTLP_ENDPOINT` is set, the spans `caller.request` and `caller.poll` are sent there, in at most
  2 s at the end.

In Python the same is `collector.caller`:

```python
from collector.caller import CallerError, Endpoint

with Endpoint("my-endpoint") as endpoint:
    with endpoint.submit({"prompt": "x"}, cancel_on_exit=True) as request:
        try:
            answer = request.wait(300)  # seconds, in total
        except CallerError as error:  # error.code, error.retryable, error.body, error.job_id
            ...
```

## Shell completion

```sh
eval "$(_STALLSCOPE_COMPLETE=bash_source stallscope)"        # in ~/.bashrc
eval "$(_STALLSCOPE_COMPLETE=zsh_source stallscope)"         # in ~/.zshrc
_STALLSCOPE_COMPLETE=fish_source stallscope | source         # in ~/.config/fish/config.fish
```
"""


def reference() -> str:
    """The whole page."""
    rows = [
        f"| `{code}` | {EXIT_CODES.get(code, FAILED)} | {_retryable(code)} | {_what(code)} |"
        for code in get_args(ErrorCode)
    ]
    commands = [_command(name, command) for name, command in sorted(_every(main))]
    return INTRODUCTION + "\n".join(rows) + "\n" + CALLER + "\n" + "\n".join(commands)


def _every(group: click.Group, above: str = "") -> list[tuple[str, click.Command]]:
    """Every command by its whole name; a group is shown as the commands in it."""
    found: list[tuple[str, click.Command]] = []
    for name, command in group.commands.items():
        found += _every(command, f"{above}{name} ") if isinstance(command, click.Group) else [(above + name, command)]
    return found


def _kind(code: str) -> type[errors.CallerError]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CallerError)]
    return next(kind for kind in reversed(kinds) if kind.code == code)


def _retryable(code: str) -> str:
    said = {"timeout": "no; yes once cancelled", "api_error": "for HTTP 429 and 5xx"}
    by_default = "yes; no where something may be queued" if _kind(code).by_default_retryable else "no"
    return said.get(code, by_default)


def _what(code: str) -> str:
    return (inspect.getdoc(_kind(code)) or "").split(". ")[0].rstrip(".")


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"stallscope {name}")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"## stallscope {name}", "", f"    {usage}", "", inspect.cleandoc(command.help or ""), ""]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    records = [record for option in options if (record := option.get_help_record(context))]
    if records:
        lines += [
            "| option | what |",
            "|---|---|",
            *(f"| `{option}` | {_cell(what)} |" for option, what in records),
            "",
        ]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    click.echo(reference(), nl=False)
