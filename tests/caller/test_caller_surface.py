"""What scripts rely on, in one file: codes, keys, exit codes, streams, help texts.

After a meant change: `python tests/caller/test_caller_surface.py`, and put the line that tells users of it into
CHANGELOG.md and at the head of `surface.txt`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest
from invoke_side import ENDPOINT, InvokeSide, JumpingTime, invoke_side, stallscope

from collector.caller import errors
from collector.caller.replies import TERMINAL, JobStatus
from collector.cli import main
from collector.cli.failures import ErrorCode
from collector.cli.reference import reference
from collector.demo.platform import Fault

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SNAPSHOT = HERE / "surface.txt"
COMMANDS = ("run", "status", "health", "cancel", "example")
HEAD = "told to users in CHANGELOG.md as: "

RUN = ("run", ENDPOINT, "--input", '{"a":1}')


def help_of(name: str) -> list[str]:
    command = main.commands[name]
    context = click.Context(command, info_name=f"stallscope {name}")
    options = []
    for option in (one for one in command.params if isinstance(one, click.Option)):
        default = f" [{option.default}]" if isinstance(option.default, str) else ""
        options.append(f"  {' '.join(option.opts)} {option.metavar or ''}{default}: {option.help}")
    return [
        f"[help {name}] {' '.join(command.collect_usage_pieces(context))}",
        *options,
        *(command.help or "").split("\n"),
    ]


def endings(side: InvokeSide) -> list[str]:
    """Every kind of end: exit code, code, retryable, keys of the error, and what is on stdout."""
    over = {status: {"id": "j", "status": status} for status in ("COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT")}
    cases: dict[str, tuple[tuple[str, ...], list[tuple[str, Fault]]]] = {
        "no wait": ((*RUN, "--no-wait"), []),
        "still queued": ((*RUN, "--wait", "5s"), []),
        "queued too long": ((*RUN, "--wait", "1h"), []),
        "no input": (("run", ENDPOINT), []),
        "bad input": (("run", ENDPOINT, "--input", "[]"), []),
        "refused": (RUN, [("run", Fault(status=400))]),
        "busy": (RUN, [("run", Fault(status=503, times=9))]),
        "no key": (RUN, [("run", Fault(status=401))]),
        "no endpoint": (RUN, [("run", Fault(status=404))]),
        "broken while submitting": (RUN, [("run", Fault(hangup=True))]),
        "busy while waiting": (RUN, [("status", Fault(status=503, times=9))]),
        "broken while waiting": (RUN, [("status", Fault(hangup=True, times=9))]),
        "broken status": (("status", ENDPOINT, "j"), [("status", Fault(hangup=True))]),
        "unknown request": (("status", ENDPOINT, "nobody"), []),
        "health": (("health", ENDPOINT), []),
        "cancel of nobody": (("cancel", ENDPOINT, "nobody"), []),
    }
    told = []
    for status, body in over.items():
        text = str(body).replace("'", '"')
        cases[f"run ends {status}"] = (RUN, [("status", Fault(status=200, body=text, content_type="application/json"))])
    for name, (command, faults) in cases.items():
        side.do(lambda platform: platform.reset())
        for route, fault in faults:
            side.arm(route, fault)
        done = stallscope(*command, "--json", clock=JumpingTime())
        error = done.error if done.code else {}
        keys = ",".join(error)
        told.append(
            f"[end {name}] exit={done.code} code={error.get('code')} retryable={error.get('retryable')} keys={keys}"
            f" stdout={'payload' if done.out else 'empty'} stderr={'error' if done.code else 'empty'}"
        )
    return told


def surface(side: InvokeSide) -> str:
    lines = [f"codes: {' '.join(get_args(ErrorCode))}"]
    lines += [f"statuses: {' '.join(status.value + ('*' if status in TERMINAL else '') for status in JobStatus)}"]
    lines += endings(side)
    for name in COMMANDS:
        lines += help_of(name)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def test_codes_keys_exit_codes_streams_and_help_change_only_with_a_line_for_users(side: InvokeSide) -> None:  # A88
    head, _, kept = SNAPSHOT.read_text(encoding="utf-8").partition("\n")
    assert surface(side) == kept, (
        "after a meant change: python tests/caller/test_caller_surface.py, and see its docstring"
    )
    line = head.removeprefix(HEAD)
    changes = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    assert line in changes, "the change is not told to users: CHANGELOG.md"


def test_the_command_line_and_the_library_have_the_same_codes() -> None:  # A78, A88
    assert set(get_args(ErrorCode)) == set(get_args(errors.Code))


def test_the_page_is_what_the_parser_makes() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), "run: python -m collector.cli.reference > docs/cli.md"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    environment = {**os.environ, "_STALLSCOPE_COMPLETE": f"{shell}_source"}
    program = "from collector.cli import main; main(prog_name='stallscope')"
    script = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "_STALLSCOPE_COMPLETE" in script.stdout
    assert f"_STALLSCOPE_COMPLETE={shell}_source stallscope" in reference()
    asked = {
        **environment,
        "_STALLSCOPE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "stallscope he",
        "COMP_CWORD": "he" if shell == "fish" else "1",  # fish hands over the word itself
    }
    found = subprocess.run([sys.executable, "-c", program], env=asked, capture_output=True, text=True, timeout=60)
    assert "health" in found.stdout


if __name__ == "__main__":
    os.environ["STALLSCOPE_URL"] = "http://127.0.0.1:9"
    with invoke_side() as running:
        os.environ["RUNPOD_INVOKE_URL"] = running.url
        head = SNAPSHOT.read_text(encoding="utf-8").split("\n")[0] if SNAPSHOT.exists() else HEAD
        SNAPSHOT.write_text(head + "\n" + surface(running), encoding="utf-8")
