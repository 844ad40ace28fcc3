"""Secrets out of text, before it leaves the worker and again on the server.

Three layers, each gated by a plain substring test so that ordinary text costs little: provider tokens by their public
prefix (`token_rules`), structures that carry a secret in a known place (URL user info, Authorization, cookies, PEM,
curl), and key=value pairs judged by the key's name and the value's looks. Every pattern is bounded and anchored on a
literal, so time is linear in the text. Standard library only: this runs in other people's images.

`collector/suspects.py` finds with looser patterns what is worth a look here: a shape that is new here is added there.

The rule that keeps a cut secret from leaking: redact first, cut afterwards (`bounds.py`).
`redact(redact(x)) == redact(x)`.
"""

from __future__ import annotations

import bisect
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Final

from sdk_exporter.contract import REDACTED
from sdk_exporter.token_rules import OPEN_TOKEN, TOKEN_RULES, WORD_BEFORE

Span = tuple[int, int]

_JUDGED_CHARACTERS: Final = 160
"""A value is judged by its head: entropy of an unbounded value would make the whole quadratic."""

_OPEN_URL_PASSWORD: Final = re.compile(r"://[^\s:/@]{0,128}:([^\s@]{1,512})\Z")
_OPEN_REGION_CHARACTERS: Final = 5_000

_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\))")
_LOWER_WORD: Final = re.compile(r"[a-z_0-9.-]+\Z")


# ------------------------------------------------------------------------------------------------ looks of a value


def _entropy(text: str) -> float:
    size = len(text)
    return -sum((share := text.count(c) / size) * math.log2(share) for c in set(text)) if size else 0.0


_WORDS: Final = re.compile(r"[a-z]+(?:[_./-][a-z0-9]+)+\Z|[A-Z]+(?:_[A-Z0-9]+)+\Z")


def _looks_random(value: str) -> bool:
    """Looks like key material: long enough, mixed, and neither words nor an identifier."""
    if len(value) < 12:
        return False
    value = value[:_JUDGED_CHARACTERS]
    if "(" in value:
        return False
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    if digits >= 3 and letters >= 3 and _entropy(value) > 2.6:
        return not _WORDS.match(value)
    return (
        letters >= 20
        and _entropy(value) > 3.8
        and any(c.isupper() for c in value[1:])
        and any(c.islower() for c in value)
        and "_" not in value
        and "." not in value
    )


def _is_mixed(value: str) -> bool:
    """A capital, a small letter and a digit: no word of a sentence."""
    return bool(re.search("[A-Z]", value) and re.search("[a-z]", value) and re.search("[0-9]", value))


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*(?:[\[(].*)?\Z")
_CALL_OR_NAME: Final = re.compile(r"[a-z_]+(?:[.(\[].*)?\Z")

_PLACEHOLDER: Final = re.compile(
    r"(?i)(?:none|null|nil|true|false|undefined|unset|empty|missing|required|optional|str|string|int|bytes|env|not|is|a"
    r"|an|the|was|has|must|default|bearer|basic|disabled|enabled|self|\d{1,5}|\*+.*|x{3,}|\.{2,}.*|<.*|\[.*|\(.*|\{.*"
    r"|\$.*|%\(.*|your[_-].*|-+)\Z"
)
"""Values that stand for a secret but are none."""


# ------------------------------------------------------------------------------------------------- key=value pairs

_KEYWORD: Final = re.compile(
    r"(?=[tspackdjr_?&-])(?:token|secret|passw|passphrase|\bpass=|requirepass|pwd|api[_ -]?key|apikey|access[_-]?key"
    r"|private[_-]?key"
    r"|account[_-]?key|auth[_-]?key|[_-]key(?![a-z])|accesskey|subscription-key|key-data|credential|authorization"
    r"|auth\b|cookie|sessionid|phpsessid|jwt|signature|\bsig=|[?&](?:key|auth|code)=|\bpat\b|\bkey=)"
)
_NAME_BEFORE: Final = re.compile(r"[A-Za-z0-9_.-]{0,64}")
_NAME_AFTER: Final = re.compile(r"[A-Za-z0-9_-]{0,48}")
_SEPARATOR: Final = re.compile(
    # closing quote of the key (plain, escaped, HTML), the separator, the opening quote of the value
    r"(?P<after>(?:\\{0,7}[\"'`”]|&quot;|&#39;)?)\]?[ \t]{0,32}"
    r"(?:(?P<sign>=>|:=|[:=]|%3[Dd]|%3[Aa]|>|,(?=\s?\\{0,3}[\"'])|\t|│|,(?=[^\s,]{6,256}$)|[ \t](?=[^\s=:]{6,}))"
    r"[ \t]{0,32})(?P<quote>(?:b?\\{0,7}[\"'`“]|&quot;|&#39;)?)",
    re.M,
)
_WRAPPER: Final = re.compile(r"(?:SecretStr|SecretBytes|Secret|str|bytes)\((?P<quote>b?[\"'])")
"""What a value may be wrapped in where an object is printed."""
_BARE_VALUE: Final = re.compile(r"[^\s\"'`,;|&<>\\\]})\x00│“”]{1,4096}")
_SCHEME: Final = re.compile(r"(?i)(?:bearer|basic|token|apikey|api-token|api-key|negotiate|digest)(?:[ +]|%20)+")
_DIGEST_PART: Final = re.compile(r'(?:response|nonce|cnonce)="([^"\n]{6,})"')
_COOKIE_PART: Final = re.compile(r"[^=;\s]{1,80}=([^;\s'\"]{12,})")

_HARMLESS_NAME: Final = re.compile(
    r"(?i)tokeniz|token(?:s|_?ids?|_type.*|_count|_usage|_budget|_indices|_source|_url|_uri|_endpoint|_limit|_healing"
    r"|_cache|_error.*|s_.*|_class|_len.*)\Z"
    r"|(?:bos|eos|pad|unk|mask|cls|sep|bot|eot|special|next|stop|image|img|start|end|page|max|num|total|cached|prompt"
    r"|completion|seen|new|added|unknown|invalid|unexpected|expected)_?token|next_page_token"
    r"|(?:public|cache|partition|primary|foreign|sort|idempotency|compile|row|shard|registry|prefix_cache|parent|host"
    r"|lora|config)[_-]?key|key_?(?:error|name|path|file|frame|point|type|len|size|space|word|value|board|role|id|s)\Z"
    r"|secret_?(?:name|id|ref|version|arn)|auth_?(?:type|required|mode|method|or|ority|ored)(?![a-z])"
    r"|password_?(?:field|reset|file|hint|policy)|\bcookie-cutter|x-amz-id|session_(?:start|id)"
    r"|signature_?(?:def|method|version|algo)|_required\Z|_mode\Z|_type\Z|_source\Z|_enabled\Z|_at\Z|_file\Z|_path\Z"
    r"|_dir\Z|_url\Z|_count\Z|_log\Z|expires|SharedAccessKeyName|SignedHeaders|X-Amz-Date"
)
"""Names that hold a keyword and no secret: a 40-hex value is a commit after `revision=`."""
_STRONG_NAME: Final = re.compile(
    r"(?i)passw|passphrase|requirepass|\Apass\Z|pwd|secret|api[_ -]?key|apikey|access[_-]?key|private[_-]?key"
    r"|account[_-]?key|auth[_-]?key|accesskey|subscription-key|key-data|[a-z0-9_-]token\Z|^token\Z|_key\Z|jwt|authorization|cred|\A_auth\Z|cookie"
    r"|sessionid|phpsessid|signature\Z|\bsig\Z|^pat\Z"
)


@functools.lru_cache(1024)
def _is_harmless(name: str) -> bool:
    """Remembered: a program has few names, and these two patterns are most of what a pair costs."""
    return _HARMLESS_NAME.search(name) is not None


@functools.lru_cache(1024)
def _is_strong(name: str) -> bool:
    return _STRONG_NAME.search(name) is not None


_NAMED_SECRET: Final = re.compile(r"(?i)passw|passphrase|pwd|secret")
_LETTERS: Final = re.compile(r"[A-Za-z]+\Z")
_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _lower(text: str) -> str:
    """`text` in lower case with the same offsets (some characters grow when lowered)."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


class _Pairs:
    """One walk over the text's key=value pairs. Holds the end of the unquoted value scanned last: one scan then serves
    every keyword inside it, which keeps `sig=sig=sig=` linear."""

    MOST_NESTED: Final = 16
    """Keywords inside one unquoted value that are judged one by one. Nobody writes so many: the rest goes unjudged."""

    def __init__(self, text: str) -> None:
        self.text, self.lowered = text, _lower(text)
        self._bare_start = self._bare_end = -1
        self._nested = 0

    def spans(self) -> Iterator[Span]:
        position = 0
        while match := _KEYWORD.search(self.lowered, position):
            position = match.end()
            found, position = self._pair(match, position)
            yield from found

    def _pair(self, keyword: re.Match[str], position: int) -> tuple[list[Span], int]:
        """Secrets of the pair whose key holds `keyword`, and where to go on."""
        text = self.text
        if self._bare_start <= keyword.start() < self._bare_end:
            self._nested += 1
            if self._nested > self.MOST_NESTED:
                return [(keyword.start(), self._bare_end)], self._bare_end
        before = _NAME_BEFORE.match(text[max(0, keyword.start() - 64) : keyword.start()][::-1])
        lead = before.group()[::-1] if before else ""
        name_end = keyword.end()
        if keyword.group().endswith("="):
            name_end -= 1
        elif after := _NAME_AFTER.match(text, name_end):
            name_end = after.end()
        name = (lead + text[keyword.start() : name_end]).strip("?&=.-: ")
        separator = _SEPARATOR.match(text, name_end)
        if not separator:
            return [], position
        if _is_harmless(name):
            return [], max(position, name_end)
        start, sign, quote = separator.end(), separator["sign"], separator["quote"]
        if not quote and (wrapper := _WRAPPER.match(text, start)):
            start, quote = wrapper.end(), wrapper["quote"]
        end = self._quoted_end(start, quote) if quote else self._bare(start)
        scheme = _SCHEME.match(text, start, min(len(text), start + 40))
        if scheme and ("auth" in name.lower() or sign in ("=", ":", ",")):
            start = scheme.end()
            if "igest" in scheme.group():
                end = self._line_end(start)
                return [_shifted(m.span(1), start) for m in _DIGEST_PART.finditer(text[start:end])], end
            end = self._bare(start)
        if "cookie" in name.lower() and sign in (":", "=") and not quote and not text.startswith(("{", "["), start):
            end = self._line_end(start)
            return [_shifted(m.span(1), start) for m in _COOKIE_PART.finditer(text[start:end])], end
        if not quote:
            end = start + len(text[start:end].rstrip(".:"))
        spaced = " " in separator.group()
        if start < end and _is_secret(name, text[start:end], lead=lead, sign=sign, quoted=bool(quote), spaced=spaced):
            return [(start, end)], end
        return [], position

    def _quoted_end(self, start: int, quote: str) -> int:
        entity = quote.startswith("&")
        close = quote if entity else {"“": "”"}.get(quote[-1:], quote[-1:])
        if not entity and quote.strip("b").startswith("\\"):
            close = quote.strip("b")
        end = self.text.find(close, start, start + 8192)
        newline = self.text.find("\n", start, start + 8192)
        if end < 0 or (0 <= newline < end and "PRIVATE" not in self.text[start : start + 60]):
            return self._bare(start)
        return end

    def _bare(self, start: int) -> int:
        if not self._bare_start <= start < self._bare_end:
            match = _BARE_VALUE.match(self.text, start)
            self._nested = 0
            self._bare_start, self._bare_end = start, (match.end() if match else start)
        return self._bare_end

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return end if end >= 0 else len(self.text)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _shifted(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by


def _is_secret(name: str, value: str, *, lead: str, sign: str, quoted: bool, spaced: bool) -> bool:
    """Whether the value under this key is a secret: by the key's name, the kind of separator and the value's looks."""
    if not value or _PLACEHOLDER.match(value[:256]) or value.startswith("-----BEGIN"):
        return False
    value = value[:256]
    low = name.lower()
    if _letters(low) == _letters(value.lower()):
        return False  # `cookie = "cookie"`, `SD_JWT_MISSING = "SdJwtMissing"`: a name of itself
    strong = _is_strong(name)
    tight = not (sign.strip() == "" or sign in (",", ">", "│"))
    password = "passw" in low or "passphrase" in low or low in ("pass", "requirepass")
    if _looks_random(value):
        return strong or tight
    if not strong or len(value) < 6:
        return False
    has_digit = any(c.isdigit() for c in value)
    identifier = bool(_IDENTIFIER.match(value))
    if quoted and tight:
        if not _NAMED_SECRET.search(name) and _LETTERS.match(value):
            return False  # `"output_token": "NextToken"`: a word under a key that is no password
        plain = low != "token" and not (identifier and ("_" in value or "." in value)) and " " not in value.strip()
        return plain or (password and "***" not in value and has_digit)
    if tight:
        named_for_it = name.isupper() or password or "pwd" in low or "secret" in low
        call = identifier and ("(" in value or "[" in value)
        path_or_code = call or _CALL_OR_NAME.match(value) or value.startswith(("/", "os.", "self."))
        if named_for_it and not path_or_code:
            return True
        if name.isupper() and sign == "=" and not spaced and len(value) >= 8 and not value.startswith(("/", "<", "[")):
            return True
        return password and sign == "=" and has_digit and not call
    if sign == ">":
        return password and has_digit
    return len(value) >= 8 and (password or "--" in lead) and has_digit


# ------------------------------------------------------------------------------------------------------ structures

_URL_USER: Final = re.compile(r"://([^\s:/@\"'\[<]{0,128}):([^\s@\"'<>]{1,512})@(?=[\w\[.-])")
_URL_BARE: Final = re.compile(r"://([^\s:/@\"'<]{20,400})@(?=[\w.-])")
_MASKED: Final = re.compile(r"[*x]+\Z|\$|<|\[REDACTED")
_BEARER: Final = re.compile(r"(?i)\b(?:bearer|basic)(?:[ +]|%20)+(?![a-z_]{2,30}=[^=\s])([A-Za-z0-9._~+/=%-]{12,4096})")

_SHELL_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("curl", re.compile(r"(?:-u|--user)[ =]?[\"']?([^\s:\"'$<]{0,80}):([^\s\"']{4,256})")),
    ("curl", re.compile(r"curl[^\n]{0,200}? -b ['\"]?([^'\"\n]{8,})")),
    (
        " -",
        re.compile(r"(?:docker login[^\n]{0,120}? -p |sshpass -p ?|redis-cli[^\n]{0,120}? -a )[\"']?([^\s\"']{4,256})"),
    ),
    (
        "value:",  # Kubernetes: `- name: X_TOKEN` and `value: …` on the next line
        re.compile(
            r"(?i)name:[ \t]*[\"']?[\w-]{0,64}(?:token|secret|passw|key|credential|jwt)[\w-]{0,40}[\"']?[ \t]*\r?\n"
            r"[ \t]*value:[ \t]*[\"']?([^\s\"']{6,4096})"
        ),
    ),
    ("password '", re.compile(r"(?i)(?:with|identified by) password '([^'\n]{4,200})'")),
)
"""(what the lower-cased text must hold, pattern whose last group is the secret)."""
_STANDS_FOR_IT: Final = re.compile(r"[$<{*]|\[REDACTED")
_PROSE: Final = re.compile(r"(?i)(?:password|token|key|secret)(?: is|:)(?: |: )\s?([^\s,;]{10,512})")


def _structure_spans(text: str, lowered: str) -> Iterator[Span]:
    if "://" in text:
        yield from (m.span(2) for m in _URL_USER.finditer(text) if not _MASKED.match(m[2]))
        yield from (m.span(1) for m in _URL_BARE.finditer(text) if _looks_random(m[1]))
    if "bearer" in lowered or "basic" in lowered:
        yield from (m.span(1) for m in _BEARER.finditer(text) if _looks_random(m[1]))
    for needed, pattern in _SHELL_RULES:
        if needed in lowered:
            for match in pattern.finditer(text):
                last = match.lastindex or 0
                if not _STANDS_FOR_IT.match(match[last]):
                    yield match.span(last)
    if " is " in lowered or " is: " in lowered:
        yield from (m.span(1) for m in _PROSE.finditer(text) if _looks_random(m[1]) or _is_mixed(m[1]))


_PEM_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PEM_LINE: Final = re.compile(r"(?:\\+n|\r?\n)[ \t]{0,40}[A-Za-z0-9+/=]{0,80}(?=\\|\r?\n|\Z)")
_PEM_HEADLESS: Final = re.compile(r"(?:[A-Za-z0-9+/=]{0,76}(?:\\n|\r?\n)){1,200}")
_PEM_CHARACTERS: Final = 16_384


def _pem_spans(text: str, *, truncated: bool) -> Iterator[Span]:
    """Bodies of private keys; the markers stay, so that a reader sees what was there."""
    position = 0
    if truncated:
        end = _PEM_END.search(text)
        if end and not _PEM_BEGIN.search(text, 0, end.start()):
            yield 0, end.start()
            position = end.end()
        elif (head := _PEM_HEADLESS.match(text)) and head.end() > 60:
            yield 0, head.end()
    next_end: re.Match[str] | None = None
    ended = False  # no END marker is left: searching again for every BEGIN would be quadratic
    while begin := _PEM_BEGIN.search(text, position):
        if not ended and (next_end is None or next_end.start() < begin.end()):
            next_end = _PEM_END.search(text, begin.end())
            ended = next_end is None
        another = text.find("-----BEGIN", begin.end(), begin.end() + _PEM_CHARACTERS)
        if (
            next_end
            and not ended
            and next_end.start() - begin.end() <= _PEM_CHARACTERS
            and not begin.end() <= another < next_end.start()
        ):
            yield begin.end(), next_end.start()
            position = next_end.end()
            continue
        finish = begin.end()
        while (line := _PEM_LINE.match(text, finish)) and line.end() > finish:
            finish = line.end()
        yield begin.end(), finish
        position = max(finish, begin.end())


# ----------------------------------------------------------------------------------------------------------- whole


def _token_spans(text: str) -> Iterator[Span]:
    for rule in TOKEN_RULES:
        if rule.marker not in text:
            continue
        for match in rule.pattern.finditer(text):
            if (
                rule.whole_word
                and match.start()
                and not WORD_BEFORE.search(text, max(0, match.start() - 3), match.start())
            ):
                continue
            head = match.group()[:_JUDGED_CHARACTERS]
            words = _LOWER_WORD.match(head) and not (any(c.isdigit() for c in head) and _entropy(head) > 3.0)
            if not words:
                yield match.span()


def _open_end_spans(text: str) -> Iterator[Span]:
    """The last token of a text that does not end in a newline may be half a secret."""
    if match := OPEN_TOKEN.search(text, max(0, len(text) - _OPEN_REGION_CHARACTERS)):
        yield match.span()
    match = _OPEN_URL_PASSWORD.search(text, max(0, len(text) - 700))
    if match and not re.match(r"\d{1,5}(?:/|\Z)", match[1]) and not _MASKED.match(match[1]):
        yield match.span(1)


def _head_span(text: str) -> Span:
    """The first line of a text that begins in the middle of a stream: it may begin inside a secret."""
    newline = text.find("\n", 0, 8192)
    if newline >= 0:
        return 0, newline
    word = re.match(r"\S{0,8192}", text)
    return 0, word.end() if word else 0


def _spans(text: str, *, truncated: bool, open_end: bool) -> list[Span]:
    found: list[Span] = []
    if truncated or "PRIVATE KEY" in text:
        found += _pem_spans(text, truncated=truncated)
    found += _token_spans(text)
    pairs = _Pairs(text)
    found += _structure_spans(text, pairs.lowered)
    found += pairs.spans()
    if open_end:
        found += _open_end_spans(text)
    if truncated:
        found.append(_head_span(text))
    return [span for span in found if span[0] < span[1]]


def _without_ansi(text: str) -> tuple[str, Callable[[int], int]]:
    """`text` without escape sequences, and the map from its offsets to those of `text`."""
    parts: list[str] = []
    plain_starts: list[int] = []
    offsets: list[int] = []
    position = size = 0
    for match in _ANSI.finditer(text):
        if match.start() > position:
            parts.append(text[position : match.start()])
            plain_starts.append(size)
            offsets.append(position)
            size += match.start() - position
        position = match.end()
    parts.append(text[position:])
    plain_starts.append(size)
    offsets.append(position)

    def original(index: int) -> int:
        place = bisect.bisect_right(plain_starts, index) - 1
        return offsets[place] + index - plain_starts[place]

    return "".join(parts), original


def redact(text: str, *, truncated: bool = False, open_end: bool = False) -> str:
    """`text` with every secret replaced by `[REDACTED]`.

    `truncated`: the text begins in the middle of a stream, so its head may be the rest of a secret and goes up to the
    first newline. `open_end`: the text was taken while its last line was being written. ANSI colours inside a secret do
    not hide it; the rest of the text keeps its bytes.
    """
    if "\x1b" in text:
        plain, original = _without_ansi(text)
        spans = [
            (original(start), original(end - 1) + 1)
            for start, end in _spans(plain, truncated=truncated, open_end=open_end)
        ]
    else:
        spans = _spans(text, truncated=truncated, open_end=open_end)
    if not spans:
        return text
    spans.sort()
    out: list[str] = []
    position = 0
    for start, end in spans:
        if end <= position:
            continue
        if start >= position:
            out += [text[position:start], REDACTED]
        position = end
    out.append(text[position:])
    return "".join(out)


_EMAIL_HOST: Final = re.compile(
    # The last part decides: `har-validator@5.1.5`, `a @ self.weight` and `getty@tty1.service` are no addresses.
    r"@((?:[A-Za-z0-9-]{1,63}\.){1,8}(?:(?!py|js|ts|so|sh)[a-z]{2}|com|org|net|edu|gov|mil|int|info|biz|name|app|dev|cloud"
    r"|tech|online|site|xyz|email|club|store|studio|agency|company|health|systems|example|test))(?![\w-]|\.\w|:[\w~/])",
    re.IGNORECASE,
)
_EMAIL_USER: Final = re.compile(r"[A-Za-z0-9._%+-]{1,64}")
_MACHINE_USERS: Final = frozenset({"git", "root", "ubuntu", "ec2-user", "admin", "postgres", "hg", "svn"})
"""Accounts on a host, which a reader needs to see: `git@github.com`, `root@node1.example.com`."""


def mask_emails(text: str) -> str:
    """`text` with every e-mail address replaced by `[REDACTED]`. User info of a URL and addresses of machine accounts
    stay. In text that is redacted already: a password is gone by then."""
    out: list[str] = []
    position = 0
    for host in _EMAIL_HOST.finditer(text) if "@" in text else ():
        before = text[max(position, host.start() - 64) : host.start()]
        user = _EMAIL_USER.match(before[::-1])
        if user is None or user.group()[::-1].lower() in _MACHINE_USERS:
            continue
        start = host.start() - user.end()
        if text[max(0, start - 3) : start].endswith(("//", ":")) and "://" in text[max(0, start - 130) : start]:
            continue
        out += [text[position:start], REDACTED]
        position = host.end()
    return "".join(out) + text[position:]


def count(text: str) -> int:
    """How many redactions `text` shows."""
    return text.count(REDACTED)


# ------------------------------------------------------------------------------------------- values that we know


class KnownValues:
    """Second layer: values that the worker itself knows as secrets (its environment, mounted secret files).

    Masks every run of text that shares 8 consecutive characters with a known value or an encoding of it (URL-quoted
    once or twice, hex, base64 at three alignments in both alphabets): a cut, wrapped or partly printed secret goes
    too. One look-up per character. The pieces stay in this process: never shipped, nor their hashes or lengths.
    """

    PIECE: Final = 8
    MOST_CHARACTERS: Final = 4_096
    """Of one value; the longest that services give out is a private key of 3.3 KB."""
    ALL_CHARACTERS: Final = 24_576
    """Of all, shortest first: each costs ten pieces of 130 bytes, and a value of 120 KB cost seconds."""

    def __init__(self, values: list[str]) -> None:
        # Loaded only where the layer is used: the worker's own process does not.
        import base64
        from urllib.parse import quote

        self._pieces: set[str] = set()
        room = self.ALL_CHARACTERS
        for value in sorted(values, key=len):
            value = value[: min(self.MOST_CHARACTERS, room)]
            if len(value) < self.PIECE:
                continue
            room -= len(value)
            data = value.encode("utf-8", "surrogateescape")  # as the environment held it, UTF-8 or not
            quoted = quote(data, safe="")
            forms = {value, quoted, quote(quoted, safe=""), data.hex()}
            for shift, skipped in ((0, 0), (1, 2), (2, 3)):
                encoded = base64.b64encode(b"\0" * shift + data).decode().rstrip("=")
                inner = encoded[skipped : len(encoded) - 1]
                forms |= {inner, inner.replace("+", "-").replace("/", "_")}
            for form in forms:
                self._pieces |= {form[i : i + self.PIECE] for i in range(len(form) - self.PIECE + 1)}

    def redact(self, text: str) -> str:
        """`text` with every run that shares a piece with a known value replaced."""
        pieces, out = self._pieces, list[str]()
        if not pieces:
            return text
        position = index = 0
        last = len(text) - self.PIECE + 1
        while index < last:
            if text[index : index + self.PIECE] not in pieces:
                index += 1
                continue
            start = index
            while index < last and text[index : index + self.PIECE] in pieces:
                index += 1
            out += [text[position:start], REDACTED]
            position = index = index + self.PIECE - 1
        return "".join(out) + text[position:]


_COMMON_VALUES: Final = frozenset({"password", "changeme", "disabled", "enabled", "required", "optional", "localhost"})
_HEX_NUMBER: Final = re.compile(r"[-+]?[0-9.,:]+\Z")
_ADDRESS_NAME: Final = "RUNPOD_WEBHOOK_"
_HARMLESS_PARAMETERS: Final = frozenset({"gpu"})


def secret_values(environ: dict[str, str]) -> list[str]:
    """Values of environment variables whose names look secret: 8 characters or more, and no path, plain URL, number,
    boolean or common word. Of the platform's own addresses, which the worker SDK logs, what their queries carry."""
    values = []
    for name, value in environ.items():
        if name.startswith(_ADDRESS_NAME):
            values += [carried for carried in _query_values(value) if carried not in values]
            continue
        if len(value) < KnownValues.PIECE or not (_STRONG_NAME.search(name) or "TOKEN" in name.upper()):
            continue
        if _HARMLESS_NAME.search(name) or value.lower() in _COMMON_VALUES or _HEX_NUMBER.match(value):
            continue
        if value.startswith(("/", "./", "~")) or ("://" in value and "@" not in value) or _PLACEHOLDER.match(value):
            continue
        values.append(value)
    return values


def _query_values(address: str) -> list[str]:
    """Not by `urlsplit`, which raises at half an address."""
    from urllib.parse import parse_qsl

    return [
        value
        for key, value in parse_qsl(address.partition("?")[2], errors="surrogateescape")
        if key.lower() not in _HARMLESS_PARAMETERS
        and len(value) >= KnownValues.PIECE
        and not (_HEX_NUMBER.match(value) or _PLACEHOLDER.match(value))
    ]
