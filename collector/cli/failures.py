"""How a command ends badly: an exit code and one coded line on stderr.

Exit codes: 0 done · 1 bad news or failed · 2 usage · 3 could not reach it · 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import click

ErrorCode = Literal[
    "usage_error", "timeout", "call_timeout", "job_failed", "api_error", "not_found", "network_error", "auth_error"
]
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERRUPTED: Final = 130
_NO_ARGUMENTS: Final[tuple[type[click.UsageError], ...]] = (
    (click.exceptions.NoArgsIsHelpError,) if hasattr(click.exceptions, "NoArgsIsHelpError") else ()
)
"""click before 8.2 prints the help itself and raises nothing."""


class CommandFailed(Exception):
    """A command cannot do what was asked. `str()` is the sentence for people."""

    def __init__(self, message: str, code: ErrorCode, *, retryable: bool = False, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.retryable = retryable
        self.exit_code = exit_code
        self.more: dict[str, Any] = {}
        """Further keys of the line for machines."""
        self.below = ""
        """Further text for people, under the error."""


def unreachable(message: str) -> CommandFailed:
    """The other side did not answer."""
    return CommandFailed(message, "network_error", retryable=True, exit_code=UNREACHABLE)


@contextmanager
def failures_of_the_store() -> Iterator[None]:
    """What a command meets that works on the store itself."""
    # Loaded here: help should not wait for pydantic.
    from collector.errors import StallscopeError, StoreUnavailable
    from collector.settings import SettingsError

    try:
        yield
    except SettingsError as error:
        raise CommandFailed(str(error), "usage_error", exit_code=USAGE) from None
    except StoreUnavailable as error:
        raise unreachable(f"the store does not answer: {error}") from None
    except StallscopeError as error:
        raise CommandFailed(str(error), "api_error", retryable=error.retryable) from None


def say_failure(
    message: str,
    code: ErrorCode,
    *,
    retryable: bool,
    as_json: bool,
    more: Mapping[str, Any] | None = None,
    below: str = "",
) -> None:
    """Tell stderr: one line of JSON for machines, a sentence and its code for people."""
    if as_json:
        line = json.dumps({"error": message, "code": code, "retryable": retryable, **(more or {})}, ensure_ascii=False)
        click.echo(line, err=True)
        return
    click.echo(f"Error: {message} [{code}{', retryable' if retryable else ''}]", err=True)
    if below:
        click.echo(below, err=True)


class Commands(click.Group):
    """The group of all commands; the one place where failures become exit codes."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in given
        try:
            code = super().main(given, *rest, **{**extra, "standalone_mode": False})
        except CommandFailed as failure:
            say_failure(
                str(failure),
                failure.code,
                retryable=failure.retryable,
                as_json=as_json,
                more=failure.more,
                below=failure.below,
            )
            sys.exit(failure.exit_code)
        except _NO_ARGUMENTS as error:
            # Its message is the whole help, which needs no "Error:" and no second usage line.
            if as_json:
                say_failure("no command is given", "usage_error", retryable=False, as_json=True)
            else:
                error.show()
            sys.exit(USAGE)
        except click.UsageError as error:
            if not as_json and error.ctx is not None:
                click.echo(error.ctx.get_usage(), err=True)
            say_failure(error.format_message(), "usage_error", retryable=False, as_json=as_json)
            sys.exit(USAGE)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)
