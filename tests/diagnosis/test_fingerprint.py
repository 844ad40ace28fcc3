"""The same failure has the same fingerprint whatever its ids, paths and sizes; another cause never has."""

from __future__ import annotations

import pytest

from collector.diagnosis.answer import EvidenceItem, Verdict
from collector.diagnosis.fingerprint import VERSION, fingerprint, normal


def verdict(line: str = "", *, code: str = "handler_failed", cause: str = "cuda_oom", error: str = "") -> Verdict:
    items = [EvidenceItem("worker", "log_line", line)] if line else []
    items += [EvidenceItem("worker", "exception", error)] if error else []
    return Verdict(code, cause, "", "", "unknown", "maybe", "certain", evidence=tuple(items))


SAME = {
    "sizes and devices": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 23.65 GiB",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512 MiB. GPU 3 has 79.1 GiB",
    ),
    "addresses": ("object at 0x7f3a99aa1b20 is gone", "object at 0x55d0c0ffee is gone"),
    "times and pids": (
        "(EngineCore pid=142) ERROR 03-01 12:00:01.123 [core.py:500] no memory for blocks",
        "(EngineCore pid=9) ERROR 12-24 01:02:03.456 [core.py:611] no memory for blocks",
    ),
    "dates": ("2026-03-01T12:00:00.123Z bad model", "2025-01-31 01:59:59,999 bad model"),
    "paths": ("cannot open /models/a1/weights.bin", "cannot open /runpod-volume/hub/x/weights.bin"),
    "line numbers": ("failed at handler.py:12, line 12", "failed at handler.py:340, line 340"),
    "ids": (
        "job 6f1c2a34-9f5e-4d2b-8a55-0c1de2f3a4b5 failed in worker x8f3k2l9q0z1m4",
        "job 0a0b0c0d-1111-2222-3333-444455556666 failed in worker p1o2i3u4y5t6r7",
    ),
    "ports and hosts": ("cannot connect to 10.0.0.1:8000", "cannot connect to 172.16.31.254:9000"),
    "addresses of services": ("GET https://a.example/x?id=1 said no", "GET https://a.example/y?id=2 said no"),
    "colours": ("\x1b[31mbad model\x1b[0m", "bad model"),
}


@pytest.mark.parametrize("name", SAME)
def test_what_differs_between_requests_does_not_count(name: str) -> None:
    one, other = SAME[name]
    assert normal(one) == normal(other)
    assert fingerprint(verdict(one)) == fingerprint(verdict(other))


def test_what_tells_failures_apart_counts() -> None:
    base = verdict("RuntimeError: mat1 and mat2 shapes cannot be multiplied", error="RuntimeError: mat1")
    others = [
        verdict("RuntimeError: CUDA error: device-side assert triggered", error="RuntimeError: mat1"),
        verdict("RuntimeError: mat1 and mat2 shapes cannot be multiplied", error="ValueError: mat1"),
        verdict("RuntimeError: mat1 and mat2 shapes cannot be multiplied", error="RuntimeError: mat1", cause="timeout"),
        verdict(
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied", error="RuntimeError: mat1", code="init_failed"
        ),
    ]
    assert len({fingerprint(v) for v in (base, *others)}) == 5


def test_without_a_line_the_exceptions_message_counts() -> None:
    assert fingerprint(verdict(error="KeyError: 'a'")) != fingerprint(verdict(error="KeyError: 'b'"))
    assert fingerprint(verdict(error="ValueError: job 17 is bad")) == fingerprint(
        verdict(error="ValueError: job 4711 is bad")
    )


def test_it_carries_its_version() -> None:
    assert fingerprint(verdict("x")).startswith(f"{VERSION}:")


def test_a_very_long_line_is_cheap() -> None:
    assert len(normal("a1/" * 100_000)) <= 300
    assert fingerprint(verdict("\ud800 broken")) == fingerprint(verdict("\ud800 broken"))
