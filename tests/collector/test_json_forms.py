"""Answers as JSON: what JSON cannot carry is told as text, and nothing else changes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from collector.diagnosis.answer import AnswerSpan, EvidenceItem, Verdict
from collector.json_forms import json_bytes, object_json, time_text, verdict_json
from sdk_exporter.contract import LogScope


def test_times_are_utc_with_microseconds_whatever_their_zone_or_year() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    assert [
        time_text(datetime(2026, 1, 1, 5, 30, tzinfo=east)),
        time_text(datetime(1, 1, 1, 0, 0, 0, 7, tzinfo=timezone.utc)),
    ] == ["2026-01-01T00:00:00.000000Z", "0001-01-01T00:00:00.000007Z"]
    with pytest.raises(ValueError, match="zone"):
        time_text(datetime(2026, 1, 1))


def test_values_keep_their_types_and_what_json_lacks_is_text() -> None:
    attributes = {
        "exact": -(2**63),
        "large": 2**64 - 1,
        "half": 0.5,
        "none": None,
        "flag": True,
        "not a number": float("nan"),
        "without end": [float("inf"), float("-inf")],
        "half a character\udc80": {"deep": ("\ud83d",)},
        "word": LogScope.JOB,
    }
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    span = AnswerSpan("a", "b", None, "n", at, None, "ok", attributes)  # type: ignore[arg-type]
    assert json.loads(json_bytes(object_json(span))) == {
        "span_id": "a",
        "trace_id": "b",
        "parent_id": None,
        "name": "n",
        "start": "2026-01-01T00:00:00.000000Z",
        "end": None,
        "status": "ok",
        "attributes": {
            "exact": -(2**63),
            "large": 2**64 - 1,
            "half": 0.5,
            "none": None,
            "flag": True,
            "not a number": "NaN",
            "without end": ["Infinity", "-Infinity"],
            "half a character�": {"deep": ["�"]},
            "word": "job",
        },
        "events": [],
    }


def test_a_verdict_has_every_field_of_the_contract() -> None:
    verdict = Verdict(
        code="prestart_failed",
        cause="cuda_oom",
        title="t",
        sentence="é",
        fault="model_config",
        retry="no",
        confidence="certain",
        evidence=(EvidenceItem(source="worker", what="log_line", text="x", line=2**40),),
    )
    assert verdict_json(verdict) == {
        "code": "prestart_failed",
        "cause": "cuda_oom",
        "title": "t",
        "sentence": "é",
        "fault": "model_config",
        "retry": "no",
        "confidence": "certain",
        "queue_reason": None,
        "inferred": False,
        "evidence": [{"source": "worker", "what": "log_line", "text": "x", "at": None, "span_id": None, "line": 2**40}],
        "advice": [],
        "missing": [],
        "doc": "",
    }
