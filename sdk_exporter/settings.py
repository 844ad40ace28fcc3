"""The worker side's settings, read once from the environment. A bad value warns once and never stops a worker."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Final

from sdk_exporter.contract import HEARTBEAT_SECONDS, LOG_TAIL_BYTES

# As in spool.DEFAULT_CAP_BYTES; repeated because reading settings must not load mmap and zlib.
SPOOL_BYTES: Final = 64 << 20
LOG_CAPTURES: Final = ("auto", "all", "off")

_warned: set[str] = set()


class ExporterSettings:
    """What an operator can set. Not a dataclass: that module alone would cost the worker 8 ms at start."""

    __slots__ = (
        "disabled",
        "handler_logs",
        "heartbeat_seconds",
        "log_capture",
        "log_tail_bytes",
        "spool_bytes",
        "spool_dir",
    )

    def __init__(
        self,
        *,
        disabled: bool = False,
        log_capture: str = "auto",
        log_tail_bytes: int = LOG_TAIL_BYTES,
        handler_logs: bool = False,
        spool_dir: str | None = None,
        spool_bytes: int = SPOOL_BYTES,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.disabled = disabled
        """Nothing is recorded at all (`OTEL_SDK_DISABLED`); prestart hooks still run, they are the worker's own."""
        self.log_capture = log_capture
        """`auto`: tails leave with a failure, a stall or a death; `all`; `off`."""
        self.log_tail_bytes = log_tail_bytes
        """Most bytes of a tail; 0: none."""
        self.handler_logs = handler_logs
        """Whether output written after a `job.run` began may leave the worker."""
        self.spool_dir = spool_dir
        """Where records wait; None: in memory."""
        self.spool_bytes = spool_bytes
        """Unacknowledged bytes after which records are dropped and counted."""
        self.heartbeat_seconds = heartbeat_seconds
        """Between two `worker.heartbeat`; 0: none."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ExporterSettings:
        """Read `environ`. What cannot be used is named on stderr once, and the default stands."""
        return cls(
            disabled=environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true",
            log_capture=_word(environ, "STALLSCOPE_LOG_CAPTURE", LOG_CAPTURES, "auto"),
            log_tail_bytes=int(_number(environ, "STALLSCOPE_LOG_TAIL_BYTES", LOG_TAIL_BYTES, whole=True)),
            handler_logs=_switch(environ, "STALLSCOPE_HANDLER_LOGS"),
            spool_dir=environ.get("STALLSCOPE_SPOOL_DIR") or None,
            spool_bytes=int(_number(environ, "STALLSCOPE_SPOOL_BYTES", SPOOL_BYTES, whole=True)),
            heartbeat_seconds=_number(environ, "STALLSCOPE_HEARTBEAT_SECONDS", HEARTBEAT_SECONDS, whole=False),
        )


def warn_once(text: str) -> None:
    """One line on stderr, the same one never twice. Not `logging`: its root is the user's to set up."""
    if text in _warned:
        return
    _warned.add(text)
    try:
        sys.stderr.write(f"stallscope: {text}\n")
    except (OSError, ValueError, AttributeError):
        pass


def _word(environ: Mapping[str, str], name: str, words: tuple[str, ...], default: str) -> str:
    given = environ.get(name)
    if given is None or given == "":
        return default
    word = given.strip().lower()
    if word in words:
        return word
    warn_once(f"{name}={given[:40]!r} is not one of {', '.join(words)}; using {default}")
    return default


def _switch(environ: Mapping[str, str], name: str) -> bool:
    words = ("on", "off", "true", "false", "1", "0", "yes", "no")
    return _word(environ, name, words, "off") in ("on", "true", "1", "yes")


def _number(environ: Mapping[str, str], name: str, default: float, *, whole: bool) -> float:
    given = environ.get(name)
    if given is None or given == "":
        return default
    try:
        value: float = int(given) if whole else float(given)
    except ValueError:
        value = -1
    if value >= 0 and math.isfinite(value):
        return value
    warn_once(f"{name}={given[:40]!r} is not a {'whole ' if whole else ''}number of at least 0; using {default}")
    return default
