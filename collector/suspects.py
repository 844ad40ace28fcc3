"""Which spans need a closer look: they may hold a secret, or a value that the store's own decoder cannot keep.

Looking at every attribute of every span in Python costs twenty times what parsing does, and nearly all have nothing to
find. So one scan over the serialized spans, at a nanosecond a byte, says whether there may be something; only what it
stops at is taken apart (`decode`). It may stop for nothing, and must never pass over a text that `redact` would change:
the patterns here are those of `redaction` with their conditions left out, and a test holds both together.

Hyperscan has no wheel for every platform. Without it everything is suspect: slower, and the same rows.
"""

from __future__ import annotations

import re
import threading
from typing import Any, Final

from sdk_exporter.contract import Key
from sdk_exporter.token_rules import TOKEN_RULES

try:
    import hyperscan
except ImportError:  # a platform without wheels
    hyperscan = None  # type: ignore[assignment]

MOST_ENDS: Final = 2_000
"""Of one scan. A hostile body could have millions, each of which costs a call."""
_CONDITION: Final = re.compile(r"\(\?(?:<[=!]|[=!])(?:[^()\\]|\\.|\([^()]*\))*\)")
"""A look-around: Hyperscan has none, and without it a pattern finds more."""

_KEYWORD: Final = (
    "token|secret|passw|passphrase|pwd|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|auth[_-]?key|[_-]key"
    "|accesskey|subscription-key|key-data|credential|authorization|auth|cookie|sessionid|phpsessid|jwt|signature|sig"
    "|[?&](?:key|auth|code)|pat|key"
)
_TEXT: Final = (
    # A keyword, the rest of its name, and what can stand before its value: never the next field of protobuf.
    rf"(?i)(?:{_KEYWORD})[a-z0-9_-]{{0,48}}(?:[=:>,\t \"'`\\&%\]]|\xe2)",
    rf"(?i)(?:{_KEYWORD})[\w-]{{0,40}}[\"']?[ \t]*\r?\n[ \t]*value:",
    r"(?i)requirepass|pass=",
    r"://[^\s@\"'<>]{1,700}@",
    r"(?i)(?:bearer|basic)(?:[ +]|%20)",
    r"(?i)curl|docker login|sshpass|redis-cli|PRIVATE KEY",
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,256}[\x07\x1b])",  # colours inside a secret hide it
)
_IDS: Final = (Key.INVOCATION_ID, Key.FAAS_NAME, Key.SERVICE_INSTANCE_ID, Key.BOOT_ID)
_SHORT_LISTS: Final = "|".join(rf"\x{size:02x}[\x2a\x32\x3a]\x{size - 2:02x}" for size in range(2, 128))
_VALUES: Final = (
    # A value (field 2 of KeyValue) that is a list, a map or bytes: by its length, as long as that is short.
    rf"\x12(?:{_SHORT_LISTS})",
    r"\x12[\x80-\xff]{1,4}[\x01-\x7f][\x2a\x32\x3a](?:[\x7e\x7f]|[\x80-\xff]{1,4}[\x01-\x7f])",
    r"\x12\x09\x21[\x00-\xff]{6}[\xf0-\xff][\x7f\xff]",  # a double that is no number
    r"\x12[\x80-\xff][\x02-\x7f]\x0a[\x80-\xff]",  # a text of 256 bytes or more
    r"\x12[\x80-\xff]{2,4}[\x01-\x7f]\x0a[\x80-\xff]",
    r"\x4a[\x80-\xff]{1,3}[\x01-\x7f]\x0a[\x80-\xff]{1,3}[\x01-\x7f]",  # a key of 128 bytes or more
    # an id that is no text, or a long one
    rf"(?:{'|'.join(map(re.escape, _IDS))})\x12(?:[\x80-\xff]|[\x00-\x7f][^\x0a])",
)


def _patterns() -> list[bytes]:
    tokens = [
        re.escape(rule.marker) if rule.pattern.pattern.startswith("(?<=") else _CONDITION.sub("", rule.pattern.pattern)
        for rule in TOKEN_RULES
    ]
    return [pattern.encode("latin-1") for pattern in (*tokens, *_TEXT, *_VALUES)]


class Suspects:
    """The compiled patterns. Threads may share it: each has its own memory to scan with."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._database: Any = None
        if hyperscan is not None:
            patterns = _patterns()
            self._database = hyperscan.Database()
            self._database.compile(
                expressions=patterns,
                ids=list(range(len(patterns))),
                flags=[hyperscan.HS_FLAG_DOTALL] * len(patterns),
            )

    def ends(self, serialized: bytes) -> list[int] | None:
        """Offsets of the last bytes of what is suspect. None: anywhere, since there is too much of it to tell."""
        if self._database is None:
            return None
        own = self._own
        if not hasattr(own, "scratch"):
            own.scratch = hyperscan.Scratch(self._database)
        found: list[int] = []

        def seen(_pattern: int, _start: int, end: int, _flags: int, _context: object) -> bool:
            found.append(end - 1)
            return len(found) > MOST_ENDS

        try:
            self._database.scan(serialized, match_event_handler=seen, scratch=own.scratch)
        except hyperscan.ScanTerminated:
            return None
        return found

    def in_text(self, text: str) -> bool:
        """Whether a text may hold a secret."""
        return self.ends(text.encode("utf-8", "surrogatepass")) != []


suspects: Final = Suspects()
