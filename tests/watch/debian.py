"""Programs of Debian's packages: the system's, or what `tests/fetch_parts.sh` unpacked."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parts import skip_or_fail

ALERTMANAGER = "prometheus-alertmanager"
TEMPLATE = Path("/usr/share/prometheus/alertmanager/default.tmpl")
"""Debian's Alertmanager does not start without it, wherever the program itself is."""
UNPACKED = Path(__file__).parents[2] / ".parts" / "usr" / "bin"


def program(name: str) -> str:
    """Its path; a variable of its name in capitals names another. Skips the test where there is none, but in CI."""
    named = os.environ.get(name.upper().replace("-", "_"))
    found = named or shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if not found:
        skip_or_fail(f"no {name}: `sh tests/fetch_parts.sh` fetches it where it may")
    if name == ALERTMANAGER and not TEMPLATE.is_file():
        skip_or_fail(f"no {TEMPLATE}: `sh tests/fetch_parts.sh` puts it there where it may")
    return str(found)


@contextmanager
def running(name: str, *arguments: str, log: Path) -> Iterator[str]:
    """The program on a free port of loopback, `{port}` in its arguments; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:  # neither program says which port it took
        port = free.getsockname()[1]
    command = [program(name), *(argument.format(port=port) for argument in arguments)]
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, stdin=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
