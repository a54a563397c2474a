"""Checks whether a hardware configuration of TorchRec's perf estimator is only numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import is_
from typing import Any

from fastplan.torchrec.compat import NotNative, describe
from fastplan.torchrec.differences.estimates import HardwarePerfConfig

_Marks = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class _ConfigCheck:
    """The cached check of a configuration's class; the check takes longer than planning.

    It is valid while the class has the same attributes with the same marks: decorators may change
    both in place. The attributes are kept alive, so that no other object can get their ids.
    """

    names: list[str]
    attributes: list[Any]
    marks: _Marks  # names of the marks of decorators on each attribute
    own_method: str | None
    is_annotated: bool  # whether a method gives coefficients

    def is_of(self, names: list[str], attributes: list[Any], marks: _Marks) -> bool:
        return (
            self.names == names
            and self.marks == marks
            and all(map(is_, self.attributes, attributes))
        )


_scans: dict[type, _ConfigCheck] = {}


def check_config(config: Any) -> _ConfigCheck:
    """Raises NotNative if the configuration replaces methods of the formulas."""
    if not isinstance(config, HardwarePerfConfig):
        raise NotNative(f"{describe(config)} is not a HardwarePerfConfig")
    kind = type(config)
    names: list[str] = []
    attributes: list[Any] = []
    for base in kind.__mro__[:-1]:
        names += vars(base)
        attributes += vars(base).values()
    marks = tuple(tuple(getattr(value, "__dict__", ())) for value in attributes if callable(value))
    scan = _scans.get(kind)
    if scan is None or not scan.is_of(names, attributes, marks):
        scan = _scans[kind] = _ConfigCheck(
            names, attributes, marks, _own_method(config), _is_annotated(config)
        )
    instance = next((name for name, value in vars(config).items() if callable(value)), None)
    if own := scan.own_method or instance:
        raise NotNative(f"{describe(config)} has its own `{own}`")
    return scan


def _own_method(config: Any) -> str | None:
    if type(config).post_process_perfs is not HardwarePerfConfig.post_process_perfs:
        return "post_process_perfs"
    return next(
        (name for name, mark in _annotated_methods(config) if mark.startswith("_is_custom_")), None
    )


def _is_annotated(config: Any) -> bool:
    return any(mark.endswith("_coefficient") for _, mark in _annotated_methods(config))


def _annotated_methods(config: Any) -> Iterator[tuple[str, str]]:
    """Returns the methods of a configuration with the marks of TorchRec's decorators."""
    for name in dir(config):
        if name.startswith("_") or name == "coefficients":
            continue
        method = getattr(config, name, None)
        if callable(method):
            yield from ((name, mark) for mark in getattr(method, "__dict__", ()))
