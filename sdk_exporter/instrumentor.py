"""The entry point for `opentelemetry-instrument python handler.py`. Loaded by that tool only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from sdk_exporter import attach


class StallscopeInstrumentor(BaseInstrumentor):  # type: ignore[misc,unused-ignore]  # untyped where not installed
    """Watches the worker as `sdk_exporter.instrument()` does, with the recorder's own exporter: no tracer provider of
    the application is used or changed.

    The tool instruments every Python process, so nothing starts here before the worker SDK is imported.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(self, **_kwargs: Any) -> None:
        attach.instrument_with_sdk()

    def _uninstrument(self, **_kwargs: Any) -> None:
        attach.stop()
