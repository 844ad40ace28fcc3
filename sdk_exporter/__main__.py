"""`python -m sdk_exporter [options] -- python handler.py`: a worker under the recorder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sdk_exporter.recorder import keeper

FLUSH_SECONDS = 2.0
FLUSH_KEY = "STALLSCOPE_FLUSH_SECONDS"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the worker; 2 for a usage error, 126 and 127 as a shell for what cannot be run."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    flush_seconds, end_orphans, instrument = _flush_seconds(), True, True
    if len(given) > 1 and given[0] == "--":
        command = given[1:]
    else:
        command, flush_seconds, end_orphans, instrument = _parse(given)
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        keeper.run_unobserved(command, None)
    return keeper.run(command, flush_seconds=flush_seconds, end_orphans=end_orphans, instrument=instrument)


def _parse(given: list[str]) -> tuple[list[str], float, bool, bool]:
    import argparse  # deliberate: the usual call has no options and should not pay for it

    parser = argparse.ArgumentParser(
        prog="python -m sdk_exporter",
        usage="python -m sdk_exporter [options] -- COMMAND [ARGUMENT ...]",
        description="Runs a worker under the recorder: its output goes through unchanged, its exit code is kept, and "
        "what happened is sent to OTEL_EXPORTER_OTLP_ENDPOINT, its death included.",
        epilog="Settings come from the environment: OTEL_EXPORTER_OTLP_*, OTEL_SERVICE_NAME, STALLSCOPE_LOG_CAPTURE, "
        "STALLSCOPE_HANDLER_LOGS and others. STALLSCOPE_DEBUG=1 tells on stderr what went wrong on our side.",
    )
    parser.add_argument(
        "--flush",
        type=_seconds,
        default=_flush_seconds(),
        metavar="SECONDS",
        help=f"how long the exit may wait for the collector when the worker has ended (default: {FLUSH_KEY}, or "
        f"{FLUSH_SECONDS:.0f})",
    )
    parser.add_argument(
        "--keep-children",
        action="store_true",
        help="leave processes alone that outlive the worker (default: they are ended, like a container's)",
    )
    parser.add_argument(
        "--no-instrument",
        action="store_true",
        help="look at the worker from outside only (default: a Python that imports the worker SDK is watched inside, "
        "as by instrument())",
    )
    at = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:at])
    command = given[at + 1 :]
    if not command:
        parser.error("no command: put it behind `--`")
    return command, options.flush, not options.keep_children, not options.no_instrument


def _flush_seconds() -> float:
    """For those who cannot change the start command."""
    try:
        return _seconds(os.environ.get(FLUSH_KEY) or str(FLUSH_SECONDS))
    except ValueError:
        return FLUSH_SECONDS


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 3600:
        raise ValueError(text)
    return seconds


if __name__ == "__main__":
    code = main()
    if sys.stdout is not None:  # started with >&-
        sys.stdout.flush()
    os._exit(code)  # nothing of ours is left to do, and the worker's exit should not wait for an interpreter's
