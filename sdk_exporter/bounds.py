"""Byte bounds of text: the one place where a string is cut. A character is never split.

A length is always of encoded bytes, never of characters: 16,384 characters can be 64 KiB of UTF-8, and 96 KiB as JSON.
Lone surrogates (which UTF-8 cannot carry) become U+FFFD before anything is counted.
"""

from __future__ import annotations

import re
from typing import Final

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
CUT_MARK: Final = "…[cut]"


def valid(text: str) -> str:
    """`text` without lone surrogates, so that it can be encoded as UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("�", text)


def json_bytes(text: str) -> int:
    """Bytes of `text` inside a JSON string with non-ASCII left unescaped, the quotes not counted."""
    size = len(text.encode("utf-8", "replace"))
    for character in text:
        if character in '"\\\n\r\t\b\f':
            size += 1
        elif character < " ":
            size += 5
    return size


def clip(text: str, limit_bytes: int) -> str:
    """The head of `text` in at most `limit_bytes` of UTF-8; a cut is marked within the limit."""
    text = valid(text)
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    mark = CUT_MARK if limit_bytes >= 4 * len(CUT_MARK.encode()) else ""
    return encoded[: limit_bytes - len(mark.encode())].decode("utf-8", "ignore") + mark


def tail(text: str, limit_bytes: int) -> str:
    """The end of `text` in at most `limit_bytes`, both as UTF-8 and as the inside of a JSON string."""
    text = valid(text)
    cut = text.encode()[-limit_bytes:] if limit_bytes > 0 else b""
    kept = cut.decode("utf-8", "ignore")
    over = json_bytes(kept) - limit_bytes
    if over <= 0:
        return kept
    for position, character in enumerate(kept):
        over -= json_bytes(character)
        if over <= 0:
            return kept[position + 1 :]
    return ""
