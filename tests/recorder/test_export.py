"""Requests that are joined as bytes, read back by OpenTelemetry's own messages."""

from __future__ import annotations

from typing import Any

import pytest
from otlp_sink import SeenSpan, spans_of

from sdk_exporter.contract import ATTRIBUTE_BYTES, ATTRIBUTES_PER_SPAN, Loss
from sdk_exporter.recorder.delivery import Outcome
from sdk_exporter.recorder.export import Encoder
from sdk_exporter.recorder.tail import Cleaner

TRACE = "ab" * 16


def record(number: int, attributes: dict[str, Any]) -> dict[str, Any]:
    return {"k": "point", "n": "work", "id": f"{number:016x}", "tr": TRACE, "t": 10**18, "a": attributes}


def sent(*records: dict[str, Any], encoder: Encoder | None = None) -> list[SeenSpan]:
    encoder = encoder or Encoder(Cleaner({}), {"service.name": "worker"})
    spans = [span for one in records for span in encoder.spans(one, {})]
    return [span for body in encoder.bodies(spans, Outcome()) for span in spans_of(body.data)]


def test_equal_values_of_other_types_stay_what_they_are() -> None:
    """They are one key of a dict, and what has been made once is used again."""
    values = [1, True, 1.0, "1", 0, False, 0.0, -(2**63)]
    encoder = Encoder(Cleaner({}), {})
    for _ in range(2):
        spans = sent(*(record(n + 1, {"value": value}) for n, value in enumerate(values)), encoder=encoder)
        told = [span.attributes["value"] for span in spans]
        assert [(type(value), value) for value in told] == [(type(value), value) for value in values]


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 129, 16_300, ATTRIBUTE_BYTES])
def test_lengths_of_one_two_and_three_bytes_are_read_back(size: int) -> None:
    (span,) = sent(record(1, {"text": "- " * (size // 2) + "-" * (size % 2)}))
    assert len(span.attributes["text"]) == size
    assert span.resource == {"service.name": "worker"}


def test_what_otlp_cannot_carry_is_left_out_and_the_rest_bounded() -> None:
    odd = {"none": None, "nan": float("nan"), "large": 2**63, "list": [1, "a"], "dict": {"a": 1}, "k" * 999: 1}
    (span,) = sent(record(1, odd))
    assert {key[:5] for key in span.attributes} == {"large", "list", "dict", "kkkkk"}
    assert span.attributes["large"] == str(2**63)
    assert span.attributes["list"] == ["1", "a"]
    assert all(len(key) <= 256 for key in span.attributes)
    (span,) = sent(record(1, {f"key{n}": n for n in range(500)}))
    assert len(span.attributes) == ATTRIBUTES_PER_SPAN


def test_a_body_over_the_bound_is_split_and_every_span_arrives_once() -> None:
    large = {f"text{n}": f"{n} word " * 1800 for n in range(100)}
    encoder, outcome = Encoder(Cleaner({}), {}), Outcome()
    spans = [span for number in range(1, 8) for span in encoder.spans(record(number, large), {})]
    bodies = encoder.bodies(spans, outcome)
    assert len(bodies) > 1
    assert sum(body.spans for body in bodies) == 7
    ids = [span.span_id for body in bodies for span in spans_of(body.data)]
    assert ids == [f"{number:016x}" for number in range(1, 8)]
    assert outcome.losses == {}


def test_a_span_that_alone_is_over_the_bound_is_counted() -> None:
    outcome = Outcome()
    assert Encoder(Cleaner({}), {}).bodies([b"x" * (5 << 20)], outcome) == []
    assert outcome.losses == {str(Loss.TOO_LARGE): 1}
