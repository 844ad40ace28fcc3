"""The same failure has the same fingerprint whatever its ids, paths and sizes; another cause never has."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    "addresses of IPv6": ("cannot reach [fe80::1:2ca6]:443", "cannot reach [2001:db8::9]:80"),
    "hosts of a cluster": ("cannot reach db-1.svc.internal:80", "cannot reach cache-77.worker.internal:9"),
    "dates of syslog": ("Jan  3 01:02:03 bad model", "Dec 24 23:59:59 bad model"),
    "mail": ("no quota for a.b@example.com", "no quota for someone+else@mail.example.org"),
    "shapes": (
        "mat1 and mat2 shapes do not fit (1x77 and 768x320)",
        "mat1 and mat2 shapes do not fit (16x9 and 5x3x8)",
    ),
    "lists": ("bad shape [1, 3, 224]", "bad shape [8]"),
    "numbers": ("loss is -3.5e-07", "loss is 12"),
    "commits": ("no revision 86f3ab8 here", "no revision 7316b827aa here"),
    "ranks": ("[rank0]: rank 3 of GPU 1 is gone", "[rank12]: rank 17 of GPU 7 is gone"),
    "requests of the platform": (
        "job 6f1c2a34-9f5e-4d2b-8a55-0c1de2f3a4b5-u1 is late",
        "job 0a0b0c0d-1111-2222-3333-444455556666-e2 is late",
    ),
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
        verdict("ValueError: mat1 and mat2 shapes cannot be multiplied", error="RuntimeError: mat1"),
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


APART = [
    "KeyError: 'prompt'",
    "KeyError: 'seed'",
    "ValueError: 'prompt'",
    "RuntimeError: CUDA error: device-side assert triggered",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "ModuleNotFoundError: No module named 'flash_attn'",
    "ModuleNotFoundError: No module named 'xformers'",
    "OSError: [Errno 28] No space left on device",
    "OSError: unable to open file model.safetensors",
    "OSError: unable to open file vae.safetensors",
    "ConnectionError: cannot resolve huggingface.co",
    "ConnectionError: cannot resolve s3.amazonaws.com",
    "sm_90 is not compatible with llama3 on cu121",
    "exited",
]


def test_different_failures_of_one_type_stay_apart() -> None:
    lines = {fingerprint(verdict(line, cause="unknown")) for line in APART}
    errors = {fingerprint(verdict(error=line, cause="unknown")) for line in APART}
    assert len(lines) == len(errors) == len(APART)
    assert lines == errors, "whether the output came or was withheld makes no difference"


def test_different_causes_under_one_type_stay_apart() -> None:
    causes = ("cuda_oom", "timeout", "unknown")
    assert len({fingerprint(verdict("RuntimeError: it failed", cause=cause)) for cause in causes}) == len(causes)


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str)


PARTS: dict[str, st.SearchStrategy[str]] = {
    "id": st.uuids().map(str) | st.uuids().map(lambda one: f"{one}-u1"),
    "address": st.integers(4096, 2**48).map(hex),
    "host": st.builds("10.{}.{}.7:{}".format, numbers(0, 255), numbers(0, 255), numbers(1, 65535)),
    "path": st.lists(st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True), min_size=1, max_size=5).map(
        lambda parts: "/" + "/".join(parts) + "/model.safetensors"
    ),
    "size": st.builds("{:.2f} {}".format, st.floats(0.01, 9999), st.sampled_from(["GiB", "MiB", "KiB"])),
    "bytes": st.builds("{} bytes".format, st.integers(1, 10**13)),
    "pid": st.builds("pid {}".format, st.integers(1, 4_194_304)),
    "time": st.datetimes(datetime(1970, 1, 1)).map(lambda at: at.isoformat(" ", "milliseconds")),
    "time of ISO 8601": st.datetimes(datetime(1970, 1, 1)).map(lambda at: at.isoformat(timespec="seconds") + "Z"),
    "line": st.builds("line {}".format, st.integers(1, 99_999)),
    "place": st.builds("engine.py:{}".format, st.integers(1, 9_999)),
    "number": st.integers(-(10**6), 10**13).map(str) | st.floats(-1e6, 1e6).map(str),
}


@pytest.mark.parametrize("part", PARTS)
@given(
    data=st.data(), place=st.sampled_from(["ValueError: bad thing {} in step", "step ({}) failed", "no thing at {}"])
)
@settings(max_examples=60, deadline=None)
def test_any_value_of_a_part_gives_the_same_fingerprint(part: str, place: str, data: st.DataObject) -> None:
    one, other = (place.format(data.draw(PARTS[part])) for _ in range(2))
    assert fingerprint(verdict(one)) == fingerprint(verdict(other)), (one, other)


def test_it_carries_its_version() -> None:
    assert fingerprint(verdict("x")).startswith(f"{VERSION}:")


def test_a_very_long_line_is_cheap() -> None:
    assert len(normal("a1/" * 100_000)) <= 300
    assert fingerprint(verdict("\ud800 broken")) == fingerprint(verdict("\ud800 broken"))
