"""Extensions registered with `numba.extending`: overloads, intrinsics, methods, attributes.

Their functions run while numba compiles and may read anything, so their inputs can't be tracked.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

_KNOWN = frozenset({"numba", "numpy", "llvmlite", "fastplan"}) | sys.stdlib_module_names


class Extensions:
    """Extensions that are not part of numba, as of the last `refresh`."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self.names: dict[str, str] = {}  # extended name -> extending module
        self.operators: str | None = None  # a module that extended an operator
        self._targets: list[tuple[Any, str]] = []
        self._templates: list[Any] = []

    def of_value(self, value: Any) -> str | None:
        """Returns the module that extended the function, if any."""
        return next((module for target, module in self._targets if target is value), None)

    def forget_compiled(self) -> None:
        """Clears numba's cached results of the extensions, so that it calls them again."""
        for template in self._templates:
            for kept in ("_impl_cache", "_inline_overloads"):
                vars(template).get(kept, {}).clear()

    def refresh(self) -> None:
        """Reads new extensions. Numba's registries only grow, so only new entries are read."""
        if "numba" not in sys.modules:
            return
        from numba.core.imputils import builtin_registry as lowering
        from numba.core.typing.templates import builtin_registry as typing

        for template in self._new("functions", typing.functions):
            self._add(template, template.key, _author(template))
        for template in self._new("attributes", typing.attributes):
            self._add(template, vars(template).get("_attr", ""), _author(template))
        for implementation, target, _ in self._new("lowered", lowering.functions):
            self._add(None, target, _module_of(implementation))
        for implementation, attribute, _ in self._new("getattrs", lowering.getattrs):
            self._add(None, attribute or "", _module_of(implementation))

    def _new(self, registry: str, entries: list[Any]) -> list[Any]:
        begin = self._read.get(registry, 0)
        self._read[registry] = len(entries)
        return entries[begin:]

    def _add(self, template: Any, target: Any, module: str) -> None:
        if module.partition(".")[0] in _KNOWN:
            return
        if template is not None:
            self._templates.append(template)
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        if callable(target):
            self._targets.append((target, module))
        if not name or getattr(target, "__module__", "") == "_operator":
            self.operators = module
        else:
            self.names[name] = module


def _author(template: Any) -> str:
    """Returns the module of the function that creates the implementations of a template."""
    for name in ("_overload_func", "_definition_func", "generic"):
        made = vars(template).get(name)
        made = getattr(made, "__func__", made)
        if isinstance(made, FunctionType):
            return _module_of(made)
    return str(template.__module__)


def _module_of(function: Any) -> str:
    """Returns the module of a function, or of the function that numba wrapped."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inner = cell.cell_contents
        except ValueError:
            continue
        module = inner.__globals__.get("__name__") if isinstance(inner, FunctionType) else None
        if module is not None and module.partition(".")[0] not in _KNOWN:
            return str(module)
    names = getattr(function, "__globals__", {"__name__": function.__module__})
    return str(names.get("__name__", "?"))


EXTENSIONS = Extensions()
