"""Words for values of the answer that a page shows: states, sides, retries. A state is never told by colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collector.diagnosis.answer import Confidence, Fault, Retry, Source, State
from dashboard.contexts import Tone

TONES: Final[Mapping[State, Tone]] = {
    "queued": "open",
    "claimed": "open",
    "running": "open",
    "completed": "good",
    "failed": "bad",
    "stopped": "neutral",
    "stalled": "bad",
    "lost": "bad",
    "unknown": "neutral",
}

# A shape per tone, so that the chips differ in print, to the colour-blind and in a terminal's browser.
MARKS: Final[Mapping[Tone, str]] = {"good": "✓", "bad": "✕", "open": "◐", "neutral": "■"}

SIDES: Final[Mapping[Fault, str]] = {
    "user_code": "your code",
    "model_config": "model or worker configuration",
    "capacity": "capacity",
    "platform": "the platform",
    "dependency": "a dependency",
    "upstream_service": "an upstream service",
    "caller_input": "the caller's input",
    "unknown": "not known whose",
}

RETRIES: Final[Mapping[Retry, str]] = {
    "yes": "can help",
    "no": "will fail the same way",
    "maybe": "may help",
}

CONFIDENCES: Final[Mapping[Confidence, str]] = {
    "certain": "certain",
    "likely": "likely",
    "possible": "possible, no more",
    "unknown": "cause unknown",
}

VANTAGES: Final[Mapping[Source, str]] = {
    "worker": "told by the worker",
    "caller": "told by the caller",
    "platform": "told by the platform",
    "collector": "noticed by Stallscope",
}
