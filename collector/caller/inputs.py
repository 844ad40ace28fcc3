"""The input of a request: checked here, sent as it was written.

Nothing is decoded and encoded again: numbers of any size, the order of keys and keys named twice reach the handler
as written. Only blanks between tokens are dropped, so that a file written for people is not too large for that.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from collector.caller.errors import WrongInput, excerpt

BODY_BYTES: Final = 10 << 20
"""Most bytes of the body of `/run`, as sent."""
WRITTEN_BYTES: Final = 64 << 20
"""Most bytes read of an input, blanks included."""
EMPTY_STAND_IN: Final = '{"__empty":true}'
"""What to send where a handler needs nothing: the platform drops an empty input on its way to the worker."""
ENVELOPE_KEYS: Final = ("policy", "webhook", "s3Config")

# A string, closed or not (so that wrong input costs one pass too), or blanks.
_STRING_OR_BLANKS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[ \t\r\n]+', re.DOTALL)


def input_bytes(written: bytes, *, what: str = "the input") -> bytes:
    """A JSON object as it is to be sent. Raises WrongInput, naming the line where `written` is not JSON."""
    if len(written) > WRITTEN_BYTES:
        raise WrongInput(f"{what} is larger than {WRITTEN_BYTES >> 20} MiB")
    written = written.removeprefix(b"\xef\xbb\xbf")
    compact = _STRING_OR_BLANKS.sub(lambda found: found[0] if found[0][:1] == b'"' else b"", written)
    run_body(compact, what=what)
    value = _parse(written, what)
    if not isinstance(value, dict):
        kind = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
        raise WrongInput(f"{what} must be a JSON object, and is {kind}")
    return compact


def run_body(compact: bytes, policy: bytes | None = None, *, what: str = "the input") -> bytes:
    """The body of `/run`. Raises WrongInput where it is too large to be taken."""
    body = b'{"input":' + compact + (b',"policy":' + policy if policy is not None else b"") + b"}"
    if len(body) > BODY_BYTES:
        raise WrongInput(f"{what} is too large: {len(body):,} bytes would be sent, and {BODY_BYTES:,} are the most")
    return body


def encode_input(value: Any) -> bytes:
    """A Python dict as input bytes. Raises WrongInput."""
    try:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongInput(f"the input cannot be written as JSON: {error}") from None
    return input_bytes(text.encode("ascii"))


def with_member(compact: bytes, key: str, value: str) -> bytes:
    """The object with one more member, in front. Raises WrongInput where it has that key."""
    if key in top_keys(compact):
        raise WrongInput(f"the input has a key {key!r} already")
    member = f"{json.dumps(key)}:{json.dumps(value)}".encode()
    return b"{" + member + (b"}" if compact == b"{}" else b"," + compact[1:])


def top_keys(compact: bytes) -> frozenset[str]:
    value = json.loads(compact, parse_int=float)
    return frozenset(value)


def input_notes(compact: bytes) -> list[str]:
    """What is allowed, and probably not meant."""
    keys = top_keys(compact)
    if not keys:
        return [
            "the input is empty: the platform drops it on the way, and the request then times out after about 40 s"
            f" without reaching the handler. Send {EMPTY_STAND_IN} instead."
        ]
    if "input" not in keys:
        return []
    inside = [key for key in ENVELOPE_KEYS if key in keys]
    ignored = f" {', '.join(inside)} beside it will be ignored by the platform." if inside else ""
    return [
        "the input has a key `input` of its own, as the body of a curl command has. It is sent as given, so the handler"
        f" will find it in job['input']['input'].{ignored} Give only what the handler is to get."
    ]


def _parse(written: bytes, what: str) -> Any:
    try:
        text = written.decode("utf-8")
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        raise WrongInput(f"{what} is not UTF-8, line {line} (byte {error.start})") from None
    try:
        return json.loads(text, parse_int=float, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        shown = excerpt(text.split("\n")[error.lineno - 1], 60)
        near = f": {shown}" if shown else ""
        raise WrongInput(f"{what} is not JSON: {error.msg}, line {error.lineno} column {error.colno}{near}") from None
    except RecursionError:
        raise WrongInput(f"{what} is nested too deeply") from None
    except _NotJson as error:
        raise WrongInput(f"{what} is not JSON: {error}, line {_line_of(text, str(error))}") from None


class _NotJson(Exception):
    """A word that Python's reader takes and JSON does not know."""


def _no_constant(word: str) -> NoReturn:
    raise _NotJson(word)


def _line_of(text: str, word: str) -> int:
    """The line of the first such word outside strings."""
    outside = re.sub(r'"[^"\\]*(?:\\.[^"\\]*)*"', lambda found: "." * len(found[0]), text)
    return outside.count("\n", 0, max(outside.find(word), 0)) + 1
