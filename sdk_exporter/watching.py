"""Have the worker SDK watched, now or once it is imported."""

from __future__ import annotations

import sys

from sdk_exporter.importing import SDK_MODULE, when_imported
from sdk_exporter.settings import warn_once


def watch_sdk() -> None:
    """Install the hooks of the SDK, once it is there."""
    when_imported(SDK_MODULE, _install)


def _install() -> None:
    """A worker whose hooks cannot be installed runs unobserved; one whose prestart cannot be supervised must not run
    as if it were ready."""
    try:
        from sdk_exporter.hooks.runpod import install  # imports wrapt

        install()
    except Exception as error:
        warn_once(f"the worker SDK cannot be watched: {type(error).__name__}: {error}")
        supervisor = sys.modules.get("sdk_exporter.supervisor")
        if supervisor is not None and supervisor.has_hooks():
            raise
