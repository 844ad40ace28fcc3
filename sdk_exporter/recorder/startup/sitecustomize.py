"""What the launcher puts first on the worker's path: the SDK is watched once it is imported, and nothing else changes.

Python's `site` imports this before the worker's first line. It leaves path and environment as they would have been, so
that the worker and its children never see it, and hands over to the user's own `sitecustomize` where there is one. A
Python that never imports the SDK pays a few milliseconds; one that finds no `sdk_exporter` pays nothing.
"""

import os
import sys


def _step_aside() -> None:
    here = os.path.dirname(__file__)  # as the launcher wrote it
    sys.path[:] = [entry for entry in sys.path if entry != here]
    kept = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != here]
    if any(kept):
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)


def _watch() -> None:
    try:
        from sdk_exporter.importing import SDK_MODULE, when_imported

        def instrument() -> None:
            from sdk_exporter import attach

            attach.instrument()

        when_imported(SDK_MODULE, instrument)
    except Exception:  # noqa: BLE001, S110 - whatever is wrong with us, the worker starts
        pass


def _hand_over() -> None:
    """The user's own module of this name: what it raises is told by `site`, as without us."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")  # now the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


_step_aside()
_watch()
_hand_over()
