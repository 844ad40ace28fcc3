"""A platform for each test, and an environment that names it and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from invoke_side import Heard, InvokeSide, JumpingTime, invoke_side

from collector.caller import Endpoint


@pytest.fixture(scope="session")
def one_side() -> Iterator[InvokeSide]:
    with invoke_side() as side:
        yield side


@pytest.fixture
def side(one_side: InvokeSide, monkeypatch: pytest.MonkeyPatch) -> InvokeSide:
    """A platform that remembers nothing; the environment points at it, and at no Stallscope server."""
    one_side.do(lambda platform: platform.reset())
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "STALLSCOPE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNPOD_INVOKE_URL", one_side.url)
    monkeypatch.setenv("RUNPOD_API_KEY", "a-key")
    monkeypatch.setenv("STALLSCOPE_URL", "http://127.0.0.1:9")
    return one_side


@pytest.fixture
def clock() -> JumpingTime:
    return JumpingTime(steady=True)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def endpoint(side: InvokeSide, clock: JumpingTime, heard: Heard) -> Iterator[Endpoint]:
    with Endpoint("endpoint-1", timing=clock.timing, watcher=heard) as endpoint:
        yield endpoint
