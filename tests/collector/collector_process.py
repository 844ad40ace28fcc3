"""A collector in a process of its own, to be killed: `collector_process.py PORT`, settings from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import uvicorn

from collector import ingest
from collector.app import create_app
from collector.settings import Settings


def started(port: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A new process; it answers some moments later."""
    return subprocess.Popen([sys.executable, str(Path(__file__)), str(port)], env={**os.environ, **environment})


if __name__ == "__main__":
    settings = Settings.from_env(os.environ)
    uvicorn.run(create_app(settings, [ingest.router]), port=int(sys.argv[1]), log_level="critical", access_log=False)
