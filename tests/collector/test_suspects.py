"""No text that redaction would change goes by unseen, and ordinary telemetry does."""

from __future__ import annotations

import random
import re
import string
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_bytes import span

from collector.suspects import suspects
from sdk_exporter.redaction import redact
from sdk_exporter.token_rules import TOKEN_RULES, TokenRule

ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "d": string.digits,
}
TEXTS = [*Path(__file__).parent.parent.joinpath("diagnosis", "variants").glob("*.txt")]
FORMS = (
    "{}",
    "x={}",
    "Got 401 for {}. Check the key",
    "token={}",
    "HF_TOKEN={}",
    '{{"api_key": "{}"}}',
    "{{'password': '{}'}}",
    "X-Api-Key: {}",
    "postgres://app:{}@db.internal:5432/jobs",
    "https://{}@host/",
    "Cookie: theme=dark; sessionid={}",
    "Authorization: Basic {}",
    "bearer {}",
    "curl -u admin:{} https://x.example/",
    "docker login registry.example -u bot -p {}",
    "IDENTIFIED BY PASSWORD '{}'",
    "- name: HF_TOKEN\n  value: {}\n",
    "db_password: {}",
    "https://bucket.example/x?X-Amz-Signature={}&X-Amz-Date=20260101",
    "--auth-token {}",
    "client_secret%3D{}",
    "PASSWORD │ {}",
    "the key is {}",
    "password -> {}",
    "GET /?key={}",
    "machine x login y password {}",
    "requirepass {}",
    "smtp user=bot pass={}",
    "Settings(s3_secret_key=SecretStr('{}'))",
    "Your API key: {}",
    "-----BEGIN PRIVATE" + " KEY-----\n{}\n-----END PRIVATE" + " KEY-----",
    "\x1b[31mtoken\x1b[0m={}",
    "https://hooks.slack.com/services/{}",
    "https://discord.com/api/webhooks/123456789012345678/{}",
)


def fill(shape: str, draw: random.Random) -> str:
    """A random secret of a rule's shape."""
    return re.sub(
        r"\{(?:([hud]):)?(\d+)\}",
        lambda match: "".join(draw.choice(ALPHABETS[match[1] or ""]) for _ in range(int(match[2]))),
        shape,
    )


def seen(text: str) -> bool:
    """Whether a span with this text among its attributes is looked at."""
    return bool(suspects.ends(span(attributes={"before": "x", "text": text, "after": "y"}).SerializeToString()))


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.kind) for rule in TOKEN_RULES if rule.example])
def test_every_providers_token_is_seen(rule: TokenRule) -> None:
    draw = random.Random(rule.kind)  # noqa: S311 - repeatable, and guards nothing
    for _ in range(5):
        assert seen(fill(rule.example, draw))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["{h:40}", "{32}", "{12}", "Tr0ub4dor&3xyz", "{d:9}abc{d:3}"])
def test_what_redaction_changes_is_seen(form: str, shape: str) -> None:
    text = form.format(fill(shape, random.Random(form)))  # noqa: S311
    assert seen(text) or redact(text) == text
    assert seen(text.upper()) or redact(text.upper()) == text.upper()


WORDS = (
    "token",
    "secret",
    "password",
    "api_key",
    "apikey",
    "auth",
    "cookie",
    "sig",
    "pat",
    "key",
    "pwd",
    "jwt",
    "cred",
)


@given(
    st.lists(
        st.sampled_from(
            [*WORDS, "=", ": ", " ", '"', "'", "\n", "://", "@", "?", "&", "hunter2A9xyz", "4f" * 12, "-", "_"]
        )
        | st.text(max_size=4),
        max_size=14,
    )
)
def test_any_mixture_that_redaction_changes_is_seen(words: list[str]) -> None:
    text = "".join(words).encode("utf-8", "replace").decode()
    assert seen(text) or redact(text) == text


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: file.stem)
def test_lines_of_real_logs_that_redaction_changes_are_seen(file: Path) -> None:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        assert suspects.in_text(line) or redact(line) == line


def test_ordinary_spans_go_by() -> None:
    ordinary = {
        "gen_ai.usage.input_tokens": 17,
        "model": "meta-llama/Llama-3-8B-Instruct",
        "http.request.method": "POST",
        "url.full": "https://api.example.com/v1/chat?stream=true",
        "cache_key": 5,
        "secret": True,
        "words": "engine.py:95 step 4 of 400, 1,552.3 tokens/s",
    }
    spans = [span(attributes=ordinary).SerializeToString() for _ in range(2_000)]
    assert sum(bool(suspects.ends(one)) for one in spans) < 40, "random ids look like something once in a while"


def test_a_body_of_nothing_but_suspicion_is_bounded() -> None:
    began = time.process_time()
    assert suspects.ends(b"token=" * 5_000_000) is None
    assert time.process_time() - began < 5, "2,000 are enough to say: everywhere"
