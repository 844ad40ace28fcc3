"""Durations, bytes, ages and hostile text, put into words. Pure: `now` is an argument."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from markupsafe import Markup, escape

from collector.errors import BadInput

NOT_KNOWN: Final = "not known"

# Invisible characters that reorder what stands beside them: a log line must not rewrite the page's own words.
BIDI_CONTROLS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _unsafe_characters() -> dict[int, str]:
    """What `visible` puts in place of each character that a browser or a terminal would act on."""
    pictures = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
    c1 = {code: f"⟨U+{code:04X}⟩" for code in range(0x80, 0xA0)}
    bidi = {ord(character): f"⟨U+{ord(character):04X}⟩" for character in BIDI_CONTROLS}
    return {**pictures, 0x7F: "␡", **c1, **bidi}


_UNSAFE: Final = _unsafe_characters()
MOST_WRITTEN_BYTES: Final = 12  # of one character: U+202E is written as its number in brackets
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with control and reordering characters made visible (NUL as ␀). Newlines and tabs stay."""
    return _SURROGATES.sub("\ufffd", text).translate(_UNSAFE)


def utc(at: datetime) -> datetime:
    """`at` in UTC. A time without a zone is taken as UTC, as the store's are."""
    return at.astimezone(timezone.utc) if at.tzinfo else at.replace(tzinfo=timezone.utc)


def duration(seconds: float | None) -> str:
    """Seconds in words that keep two or three figures: `120 ms`, `3.1 s`, `4 min 05 s`, `1 h 05 min`, `2 d 3 h`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_KNOWN
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 0.0005:
        return "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400:,} d {whole % 86400 // 3600} h"


def size(count: int | None) -> str:
    """Bytes in binary units: `512 B`, `16 KiB`, `1.5 MiB`."""
    if count is None:
        return NOT_KNOWN
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def number(count: int) -> str:
    """A count with thousands separated."""
    return f"{count:,}"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 line`, `2 lines`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def age(at: datetime | None, now: datetime) -> str:
    """How long ago, in one unit: `just now`, `40 s ago`, `3 min ago`. A time ahead of our clock says so."""
    if at is None:
        return "time not known"
    seconds = (utc(now) - utc(at)).total_seconds()
    if seconds < -1:
        return f"{_one_unit(-seconds)} ahead of this server's clock"
    return "just now" if seconds < 1 else f"{_one_unit(seconds)} ago"


def _one_unit(seconds: float) -> str:
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:,.0f} d"


def stamp(at: datetime | None) -> str:
    """Date and time in UTC to the second: `2026-05-04 12:04:05 UTC`."""
    return NOT_KNOWN if at is None else f"{utc(at):%Y-%m-%d %H:%M:%S} UTC"


def clock(at: datetime | None) -> str:
    """Time of day in UTC to the millisecond: `12:04:05.123`."""
    return NOT_KNOWN if at is None else utc(at).strftime("%H:%M:%S.%f")[:-3]


def rfc3339(at: datetime) -> str:
    """RFC 3339 in UTC, microseconds only where there are any: the form of the API."""
    return utc(at).isoformat().replace("+00:00", "Z")


def words(code: str) -> str:
    """A code as words: `prestart_failed` → `prestart failed`."""
    return code.replace("_", " ")


def short(text: str, most: int = 1500) -> str:
    """`text` cut, saying so, where it would take more than `most` bytes of a page: `<` is written as `&lt;`."""
    if len(text) * MOST_WRITTEN_BYTES <= most:
        return text
    room = most
    for place, character in enumerate(text):
        room -= written_bytes(character)
        if room < 0:
            return f"{text[:place]}… (cut here; {len(text):,} characters)"
    return text


def written_bytes(text: str) -> int:
    """How many bytes a text takes in a page, where it is escaped and its control characters are made visible."""
    return len(escape(visible(text)).encode())


def compact(value: Any) -> str:
    """A span attribute on one line, arrays and objects in JSON's look, for the raw records."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(compact(item) for item in value) + "]"
    return str(value)


def ticks(text: str) -> Markup:
    """`text` escaped, with what stands between a pair of backticks set as code."""
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # an odd backtick belongs to the text
        parts[-2:] = [f"{parts[-2]}`{parts[-1]}"]
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


_SPAN_OF_TIME: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def moment(text: str, now: datetime, name: str) -> datetime | None:
    """A time as a person writes it into a filter: `2h` or `1d12h` ago, or RFC 3339. None for an empty text.

    Raises BadInput naming the filter.
    """
    written = text.strip()
    if not written:
        return None
    ago = _SPAN_OF_TIME.fullmatch(written.lower())
    try:
        if ago and written:
            days, hours, minutes, seconds = (int(part or 0) for part in ago.groups())
            return now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return utc(datetime.fromisoformat(written.replace("Z", "+00:00").replace("z", "+00:00")))
    except (ValueError, OverflowError):
        raise BadInput(f"{name}: write an age such as 2h or 1d12h, or a time such as 2026-05-04T03:00:00Z") from None
