"""Secrets go, diagnostics stay. Secrets are drawn at random from each rule's shape: none is written here."""

from __future__ import annotations

import base64
import os
import random
import re
import string
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk_exporter.contract import REDACTED
from sdk_exporter.redaction import KnownValues, mask_emails, redact, secret_values
from sdk_exporter.token_rules import TOKEN_RULES, TokenRule

_ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
    "d": string.digits,
}


def fill(shape: str, seed: int = 1) -> str:
    """A random secret of a rule's shape."""
    draw = random.Random(f"{shape}{seed}")  # noqa: S311 - repeatable, and guards nothing

    def group(match: re.Match[str]) -> str:
        alphabet = _ALPHABETS[match[1] or ""]
        return "".join(draw.choice(alphabet) for _ in range(int(match[2])))

    return re.sub(r"\{(?:([hud]):)?(\d+)\}", group, shape)


RULES = [pytest.param(rule, id=rule.kind) for rule in TOKEN_RULES if rule.example]

CONTEXTS = (
    "{}",
    "Got 401 for {}. Check the key",
    "WARN | token={} | retrying",
    '{{"api_key": "{}", "retries": 3}}',
    "headers={{'Authorization': 'Bearer {}'}}",
    "https://hub.example.com/model?token={}&revision=main",
    "export X_TOKEN='{}'",
    "Error:\\n{}\\nat line 3",
    "\x1b[31m{}\x1b[0m",
)


def leaked(secret: str, text: str) -> bool:
    """True where 8 characters in a row of the random part of the secret are left."""
    body = re.sub(r"^[A-Za-z]{2,12}[_-]", "", secret)
    return any(body[i : i + 8] in text for i in range(len(body) - 7))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_providers_token_goes_wherever_it_stands(rule: TokenRule, context: str) -> None:
    secret = fill(rule.example)
    out = redact(context.format(secret))
    assert not leaked(secret, out)
    assert REDACTED in out
    assert redact(out) == out


@pytest.mark.parametrize("rule", RULES)
def test_a_token_split_by_colour_codes_goes(rule: TokenRule) -> None:
    secret = fill(rule.example, seed=2)
    middle = len(secret) // 2
    out = redact(f"key \x1b[1m{secret[:middle]}\x1b[0m{secret[middle:]} end")
    assert not leaked(secret, out)
    assert out.startswith("key ")
    assert out.endswith(" end")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgres://app:{}@db.internal:5432/jobs refused", "postgres://app:"),
        ("Cookie: theme=dark; sessionid={}; lang=en", "theme=dark"),
        ("Authorization: Basic {}", "Authorization: Basic"),
        ("curl -u admin:{} https://x.example/", "https://x.example/"),
        ("docker login registry.example -u bot -p {}", "docker login registry.example"),
        ("CREATE USER app IDENTIFIED BY PASSWORD '{}'", "CREATE USER app"),
        ("- name: HF_TOKEN\n  value: {}\n- name: REGION\n  value: eu", "value: eu"),
        ("WANDB_API_KEY={} WANDB_MODE=online", "WANDB_MODE=online"),
        ("db_password: {}", "db_password"),
        ("requirepass {}", "requirepass"),
        ("smtp login ok user=bot pass={}", "user=bot"),
        ("Settings(s3_secret_key=SecretStr('{}'), region='eu')", "region='eu'"),
        ("Your API key: {}", "Your API key"),
        ("the api key {} is invalid", "is invalid"),
        ("ssh passphrase: {}", "ssh passphrase"),
        ("the user's password is {}", "password is"),
        ("https://bucket.example/x?X-Amz-Signature={}&X-Amz-Date=20260101", "X-Amz-Date=20260101"),
    ],
)
def test_a_secret_known_by_its_place_goes_and_its_surroundings_stay(text: str, kept: str) -> None:
    secret = fill("{h:40}")
    out = redact(text.format(secret))
    assert not leaked(secret, out)
    assert kept in out


def test_the_body_of_a_private_key_goes_and_its_markers_stay() -> None:
    body = "\n".join(fill("{64}", seed=i) for i in range(12))
    begin, end = "-----BEGIN RSA " + "PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----"
    out = redact(f"loading\n{begin}\n{body}\n{end}\ndone")
    assert not any(leaked(line, out) for line in body.splitlines())
    assert out.splitlines()[0] == "loading"
    assert out.splitlines()[-1] == "done"
    # the head cut off: what comes before END is the key all the same
    cut = redact(f"{body[100:]}\n{end}\ndone", truncated=True)
    assert not any(leaked(line, cut) for line in body.splitlines())
    assert cut.endswith("done")


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 23.65 GiB",
        "NVRM: Xid (PCI:0000:47:00): 79, pid=30096, name=python, GPU has fallen off the bus.",
        "revision=5f0b02c75b57c5855da9ae460ce51323ea669d8a",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "max_new_tokens=512, eos_token_id=128009, pad_token='<|eot|>'",
        "Token indices sequence length is longer than the specified maximum (5120 > 4096)",
        "HF_TOKEN=${HF_TOKEN}",
        "api_key=None",
        "password: ********",
        'File "/app/tokenizer_config.py", line 12, in load_tokenizer',
        "KeyError: 'public_key'",
        '"output_token": "NextToken",',
        'cookie = "cookie"',
        'ID_TOKEN_INVALID_REQUEST = "IdTokenInvalidRequest"',
        "APPLICATION_AT_JWT = 'application/at+jwt'",
        "token_type=bearer expires_in=3600",
        "attributes[MESSAGE_TEMPLATE_KEY] = template_of_the_message",
        "the api key is not set; password must have 8 characters",
        "job 0f8fad5b-d9cb-469f-a165-70867728950e-u1 finished",
        "NCCL WARN Call to connect returned Connection refused 10.0.3.17<43511>",
        "connecting to redis://cache.internal:6379/0",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg",
    ],
)
def test_a_harmless_line_comes_back_byte_for_byte(line: str) -> None:
    assert redact(line) == line


def test_a_text_that_begins_inside_a_stream_loses_its_first_line() -> None:
    assert redact("alf of a secret\nthe rest", truncated=True) == f"{REDACTED}\nthe rest"


@pytest.mark.parametrize("unit", ["sig=", "token=", "key=", "token:", "a_key=b"])
def test_of_many_keywords_in_one_word_the_rest_goes_unjudged(unit: str) -> None:
    """Judging each of them costs a second per 100 KiB, and a hostile worker can send as much as it likes."""
    out = redact(f"before {unit * 4096} after")
    assert out.startswith("before ")
    assert out.endswith(" after")
    assert len(out) < 16_384
    assert redact(out) == out
    ordinary = "https://x.example/a?" + "&".join(f"{unit}{n}" for n in range(40))
    assert redact(ordinary).count("&") == 39


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("sent to some.one@mail.example.org, 2 files", "sent to [REDACTED], 2 files"),
        ('{"email": "a+b@corp.example.co.uk"}', '{"email": "[REDACTED]"}'),
        ("a@b.com,c@d.net", "[REDACTED],[REDACTED]"),
        ("<x.y@example.com>.", "<[REDACTED]>."),
        *(
            (kept, kept)
            for kept in (
                "deprecated har-validator@5.1.5: no longer supported",
                "git@github.com:org/repo.git",
                "ssh root@node1.example.com",
                "https://user:[REDACTED]@db.example.com/x",
                "https://user@db.example.com/x",
                "y = x @ self.weight; z = a@model.py",
                "getty@tty1.service",
                "@app.route('/x')",
                "10.0.3.17@5000",
            )
        ),
    ],
)
def test_an_e_mail_address_goes_and_what_only_looks_like_one_stays(text: str, out: str) -> None:
    assert mask_emails(text) == out
    assert mask_emails(out) == out


@given(st.integers(0, 60), st.integers(1, 10_000))
def test_no_cut_of_the_tail_shows_a_token(kept: int, seed: int) -> None:
    # redact first, cut afterwards: whatever the cut, the secret is gone before it
    secret = fill("hf_{34}", seed)
    out = redact(f"before {secret} after")
    assert not leaked(secret, out[len(out) - kept :])


def test_a_token_being_written_goes_by_its_prefix_alone() -> None:
    assert redact("loading with hf_" + "Ab1", open_end=True) == f"loading with {REDACTED}"


@given(st.text(max_size=400))
def test_redaction_is_idempotent_and_never_raises(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


def test_a_known_value_goes_in_every_encoding_and_in_part() -> None:
    value = fill("{30}")
    known = KnownValues([value])
    for form in (
        value,
        value[5:20],
        value.encode().hex(),
        urllib.parse.quote(value, safe=""),
        base64.b64encode(f"user:{value}".encode()).decode(),
        base64.b64encode(f"x{value}".encode()).decode(),
    ):
        out = known.redact(f"head {form} tail")
        assert form not in out
        assert out.startswith("head ")
        assert out.endswith(" tail")
    assert known.redact("nothing of it here") == "nothing of it here"


def test_of_giant_values_the_head_is_known_and_short_ones_come_first() -> None:
    short, giants = fill("{40}"), [fill("{100000}", seed=seed) for seed in range(20)]
    known = KnownValues([*giants, short])
    assert known.redact(f"a {short} b") == "a [REDACTED] b"
    assert known.redact(f"a {giants[0][100:200]} b") == "a [REDACTED] b"
    assert len(known._pieces) < 16 * KnownValues.ALL_CHARACTERS  # memory, not a detail of the result


def test_secret_values_are_those_of_secret_names_only() -> None:
    secret = fill("{24}")
    environ = {
        "HF_TOKEN": secret,
        "DB_PASSWORD": "pass" + "word",
        "TOKENIZERS_PARALLELISM": "false-and-long",
        "MODEL_PATH": "/models/llama-3-8b",
        "SECRET_KEY_FILE": "/run/secrets/key-file",
        "API_KEY": "12345678",
    }
    assert secret_values(environ) == [secret]


def test_a_secret_of_bytes_that_are_no_utf_8_is_known_too() -> None:
    secret = os.fsdecode(b"\xff\xfe" + fill("{20}").encode())
    known = KnownValues(secret_values({"MY_API_KEY": secret}))
    assert known.redact(f"key {secret[2:]} end") == "key [REDACTED] end"


def test_what_the_platforms_addresses_carry_is_known() -> None:
    signature, escaped = fill("{20}"), fill("{9}") + "/" + fill("{9}")
    address = "https://api.example/v2/e/job-done/$RUNPOD_POD_ID/$ID?gpu=NVIDIA+RTX+A5000&n=12345678&k="
    environ = {
        "RUNPOD_WEBHOOK_POST_OUTPUT": f"{address}{signature}",
        "RUNPOD_WEBHOOK_GET_JOB": f"{address}{urllib.parse.quote(escaped, safe='')}",
        "RUNPOD_WEBHOOK_PING": "https://api.example/v2/e/ping/$RUNPOD_POD_ID",
        "OTHER_URL": f"{address}{signature}",
    }
    assert secret_values(environ) == [signature, escaped]
    assert secret_values({"RUNPOD_WEBHOOK_PING": "http://[half an address?k=" + "v" * 9}) == ["v" * 9]
