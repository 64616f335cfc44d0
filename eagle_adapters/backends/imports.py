"""Do something to a module right after it is imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Action = Callable[[ModuleType], None]

_actions: dict[str, list[Action]] = {}


def after_import(name: str, action: Action) -> None:
    """Call `action(module)` once the module `name` is imported; at once when it is already.

    An error of the action propagates to whoever imports the module.
    """
    module = sys.modules.get(name)
    if module is not None and name not in _actions and not _being_imported(module):
        action(module)
        return
    _actions.setdefault(name, []).append(action)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Finder(MetaPathFinder):
    """Finds the waited-for modules the way everybody else does, and puts the actions behind their execution."""

    def __init__(self) -> None:
        self._busy: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _actions or fullname in self._busy:
            return None
        self._busy.add(fullname)
        try:
            spec = find_spec(fullname)
        finally:
            self._busy.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """The module's own loader, and the actions after it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Put the real loader back first: resource readers and `inspect` look for it.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for action in _actions.pop(module.__name__, ()):
            action(module)
