"""Replaces functions of other packages once these are imported, and puts them back."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

Hook = Callable[[Any], None]  # takes the module, or stand-ins for it in tests

logger = logging.getLogger(__name__)

# Loaders that are made anew for every module, so that one can be told what to do for one module.
_OWN_LOADERS = (SourceFileLoader, SourcelessFileLoader, ExtensionFileLoader)


class Patches:
    """Attributes that were replaced, and what was there before."""

    def __init__(self) -> None:
        self.on = True
        self._changes: list[tuple[Any, str, Any, Any, bool]] = []
        self._undo: list[Callable[[], None]] = []

    def attribute(self, owner: Any, name: str, replace: Callable[[Any], Any]) -> None:
        """Replaces a class' own method, or whatever its users look up where it is."""
        if name in vars(owner):
            self._change(owner, name, replace(vars(owner)[name]), everywhere=False)

    def function(self, module: Any, name: str, replace: Callable[[Any], Any]) -> None:
        """Replaces a function in its module and wherever it was imported by its own name."""
        if hasattr(module, name):
            self._change(module, name, replace(getattr(module, name)), everywhere=True)

    def later(self, undo: Callable[[], None]) -> None:
        """Something else to do when everything is put back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Puts everything back, the last first, but for what somebody else has replaced since."""
        self.on = False
        for undo in reversed(self._undo):
            undo()
        for owner, name, before, after, everywhere in reversed(self._changes):
            if vars(owner).get(name) is after:
                setattr(owner, name, before)
            if everywhere:
                _rebind(name, after, before)
        self._changes.clear()
        self._undo.clear()

    def _change(self, owner: Any, name: str, after: Any, *, everywhere: bool) -> None:
        before = vars(owner)[name]
        setattr(owner, name, after)
        if everywhere:
            _rebind(name, before, after)
        self._changes.append((owner, name, before, after, everywhere))


def _rebind(name: str, before: Any, after: Any) -> None:
    for module in list(sys.modules.values()):
        # Some modules make their attributes up, or forbid to look.
        names = getattr(module, "__dict__", None) if isinstance(module, ModuleType) else None
        if names is not None and names.get(name) is before:
            setattr(module, name, after)


class ImportWatch(MetaPathFinder):
    """Runs a hook after a module has been imported, and times imports that no other import made.

    Modules that come from elsewhere than files are left alone: install hooks after importing them.
    """

    def __init__(self, hooks: dict[str, Hook], tell: Callable[[int, int], None]) -> None:
        self._hooks = dict(hooks)
        self._tell = tell
        self._local = threading.local()

    def start(self) -> None:
        """Hooks what is there already, and waits for the rest."""
        sys.meta_path.insert(0, self)
        for name in list(self._hooks):
            if name in sys.modules:
                self._run(name, sys.modules[name])

    def stop(self) -> None:
        """Hooks nothing more, not even a module that is being imported right now."""
        self._hooks.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, its loader told to call back once."""
        local = self._local
        inner = getattr(local, "depth", 0)
        if getattr(local, "busy", False) or (inner and fullname not in self._hooks):
            return None
        local.busy = True
        try:
            found = (finder.find_spec(fullname, path, target) for finder in _others(self))
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            local.busy = False
        if spec is not None and isinstance(spec.loader, _OWN_LOADERS):
            self._follow(fullname, spec.loader)
        return spec

    def _follow(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            depth = getattr(self._local, "depth", 0)
            self._local.depth = depth + 1
            begin = time.monotonic_ns()
            try:
                execute(module)
            finally:
                self._local.depth = depth
                if depth == 0:
                    self._tell(begin, time.monotonic_ns())
            self._run(name, module)

        loader.exec_module = exec_module

    def _run(self, name: str, module: ModuleType) -> None:
        hook = self._hooks.pop(name, None)
        if hook is not None:
            try:
                hook(module)
            except Exception as error:  # a release that has moved things must still be importable
                logger.warning("fastplan.ett: %s is not recorded: %r", name, error)


def _others(watch: ImportWatch) -> list[Any]:
    return [finder for finder in sys.meta_path if finder is not watch]
