"""Act on a module now if it is there, else right after it is imported.

Own finder rather than wrapt's: wrapt costs a bare worker 70 ms, and is only needed once the SDK, which costs twenty
times that, is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sdk_exporter.settings import warn_once

if TYPE_CHECKING:
    # Not at run time: `importlib.abc` alone brings pathlib, tempfile and urllib.
    from importlib.machinery import ModuleSpec
    from types import ModuleType

SDK_MODULE: Final = "runpod.serverless"

_watching: list[_Finder] = []
_loaded: set[str] = set()
"""Modules whose code has run under our eyes: the import system still calls them unfinished then."""


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` when module `name` has been imported; at once if it has."""
    module = sys.modules.get(name)
    specification = getattr(module, "__spec__", None)
    if module is not None and (name in _loaded or not getattr(specification, "_initializing", False)):
        action()
        return
    if any(finder.name == name for finder in _watching):
        return
    finder = _Finder(name, action)
    _watching.append(finder)
    sys.meta_path.insert(0, finder)


class _Finder:
    """Finds nothing itself: lets the others find the module, and has the action follow its loading."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self._action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        self._leave()
        specification = _found_by_others(fullname, path, target)
        loader = specification.loader if specification is not None else None
        if loader is None or not hasattr(loader, "exec_module"):
            return specification
        load, action, name = loader.exec_module, self._action, self.name

        def exec_module(module: ModuleType) -> None:
            load(module)
            _loaded.add(name)
            action()

        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader, for this one module
        except (AttributeError, TypeError):
            warn_once(f"{self.name} cannot be watched: its loader allows no change")
        return specification

    def _leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self in _watching:
            _watching.remove(self)


def _found_by_others(name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        specification: ModuleSpec | None = find(name, path, target) if find is not None else None
        if specification is not None:
            return specification
    return None
