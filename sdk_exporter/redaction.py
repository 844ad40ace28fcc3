"""Secrets out of text, before it leaves the worker and again on the server."""

from __future__ import annotations

import re

from sdk_exporter.contract import REDACTED

_FIRST_CUT = re.compile(r"(?:hf_|sk-|gh[pousr]_|rpa_)[A-Za-z0-9_-]{16,}")


def redact(text: str, *, truncated: bool = False) -> str:
    """`text` with every secret replaced by `[REDACTED]`.

    `truncated`: the text begins in the middle of a stream, so its head may be the rest of a secret.
    """
    return _FIRST_CUT.sub(REDACTED, text)
