"""Notices modules that are imported while a patch is active."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from types import ModuleType
from typing import Any

# Each has a loader of its own, which may be changed for one module.
_FILE_LOADERS = (SourceFileLoader, SourcelessFileLoader)


class LateImports(MetaPathFinder):
    """Calls a function with each module of a package right after the module's code has run.

    The specs and loaders stay those of the other finders, so that other import hooks and
    `importlib.resources` see nothing unusual.

    Args:
        package: the top-level package.
        imported: receives the module. Code that imports the module sees it only afterwards.
    """

    def __init__(self, package: str, imported: Callable[[ModuleType], None]) -> None:
        self._prefix = f"{package}."
        self._imported = imported
        self._local = threading.local()

    def start(self) -> None:
        """Notices modules from now on."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Notices no more modules, except for those whose code runs right now."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of the other finders, with a loader that reports the module."""
        # Another hook may ask all finders too, and so this one again.
        if not fullname.startswith(self._prefix) or getattr(self._local, "busy", False):
            return None
        self._local.busy = True
        try:
            others = [finder for finder in sys.meta_path if finder is not self]
            found = (finder.find_spec(fullname, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._local.busy = False
        if spec is not None and isinstance(spec.loader, _FILE_LOADERS):
            self._report_module_of(spec.loader)
        return spec

    def _report_module_of(self, loader: Any) -> None:
        other = vars(loader).get("exec_module")  # of another hook

        def exec_module(module: ModuleType) -> None:
            if other is None:
                vars(loader).pop("exec_module", None)
            else:
                loader.exec_module = other
            loader.exec_module(module)
            self._imported(module)

        loader.exec_module = exec_module
