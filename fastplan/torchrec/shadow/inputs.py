"""The inputs of a plan, copied for a second planner before the first one changes them.

Planning leaves marks: proposers keep state, and enumerators keep their search space.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torchrec.distributed.planner import enumerators
from torchrec.distributed.planner.utils import sharder_name

try:
    # tensordict, which TorchRec requires, brings it. It also takes functions and classes of
    # `__main__`, which a second process must not run.
    from cloudpickle import CloudPickler as Pickler
except ImportError:
    from pickle import Pickler

# TorchRec up to 1.8 returns these as lists made of sets, whose order differs between processes.
_FILTERS = ("_filter_sharding_types", "_filter_compute_kernels")
# Not inputs: fastplan's own state, and results of an earlier plan.
_RESULTS = ("_fastplan", "last_run")
# Smaller tensors on the CPU are copied with their values, because parts may read them.
_SMALL = 4096

Orders = dict[tuple[Any, ...], list[str]]


class NotCopied(Exception):
    """An input can't be sent to another process; the message names it."""


class Inputs(NamedTuple):
    """The planner's class and parts, the module and the sharders."""

    kind: type
    parts: dict[str, Any]
    module: Any
    sharders: list[Any]
    orders: Orders

    def planner(self) -> Any:
        """Returns a planner with these parts."""
        planner: Any = object.__new__(self.kind)
        vars(planner).update(self.parts)
        return planner


def read_inputs(planner: Any, module: Any, sharders: list[Any], *, deterministic: bool) -> Inputs:
    """Returns the inputs. They still refer to the planner's own parts."""
    parts = {name: value for name, value in vars(planner).items() if name not in _RESULTS}
    parts["_enumerator"] = _without_search_space(parts["_enumerator"])
    parts["_stats"] = []
    if "_search_space" in parts:
        parts["_search_space"] = None
    orders = _read_orders(parts["_enumerator"], module, sharders, deterministic)
    return Inputs(type(planner), parts, module, sharders, orders)


def copied(inputs: Inputs) -> Inputs:
    """Returns a copy of the parts for this process; module and sharders are the same objects.

    Raises:
        NotCopied: a part can't be copied.
    """
    kept = [inputs.module, inputs.sharders, *inputs.sharders]
    try:
        return inputs._replace(parts=copy.deepcopy(inputs.parts, {id(item): item for item in kept}))
    except Exception as error:
        raise NotCopied(f"a part of the planner can't be copied: {_text(error)}") from error


def pack(inputs: Inputs) -> bytes:
    """Returns the inputs for another process. Large tensors lose their values.

    Raises:
        NotCopied: something can't be pickled.
    """
    try:
        return _dumps(inputs)
    except Exception as error:
        named = {"module": inputs.module, "sharders": inputs.sharders, **inputs.parts}
        for name, part in named.items():
            try:
                _dumps(part)
            except Exception as why:
                what = f"`{name.lstrip('_')}` ({type(part).__qualname__})"
                raise NotCopied(f"{what} can't be sent to another process: {_text(why)}") from error
        raise NotCopied(f"the inputs can't be sent to another process: {_text(error)}") from error


def impose_orders(enumerator: Any, orders: Orders) -> None:
    """Makes an enumerator list a table's options in the order of the process that read them."""
    for name in _FILTERS:
        if (method := getattr(enumerator, name, None)) is not None:
            setattr(enumerator, name, _Ordered(method, name, orders))


class _Ordered:
    """A filter whose result has the order of another process, if it is the same set."""

    def __init__(self, method: Callable[..., list[str]], name: str, orders: Orders) -> None:
        self._method = method
        self._name = name
        self._orders = orders

    def __call__(self, table: str, allowed: list[str], context: str = "") -> list[str]:
        found = self._method(table, allowed, context)
        order = self._orders.get((self._name, table, tuple(allowed), context))
        return list(order) if order is not None and sorted(order) == sorted(found) else found


def _read_orders(enumerator: Any, module: Any, sharders: list[Any], deterministic: bool) -> Orders:
    """Calls the enumerator's filters for every table, as TorchRec's enumerate() does."""
    types_filter, kernels_filter = (getattr(enumerator, name, None) for name in _FILTERS)
    device = getattr(enumerator, "_compute_device", None)
    if types_filter is None or kernels_filter is None or device is None:
        return {}
    orders: Orders = {}
    by_kind = {sharder_name(sharder.module_type): sharder for sharder in sharders}
    menus = {kind: _menu(sharder, device) for kind, sharder in by_kind.items()}

    def keep(method: Any, name: str, table: str, allowed: list[str], context: str) -> list[str]:
        found = list(method(table, allowed, context))
        if deterministic:
            found.sort(key=allowed.index)
        orders[name, table, tuple(allowed), context] = found
        return found

    with _quiet():
        for kind, table in _tables(module, by_kind):
            menu = menus[kind]
            for sharding_type in keep(types_filter, _FILTERS[0], table, list(menu), kind):
                kernels = menu[sharding_type]
                keep(kernels_filter, _FILTERS[1], table, kernels, sharding_type)
    return orders


def _menu(sharder: Any, device: str) -> dict[str, list[str]]:
    types = sharder.sharding_types(device)
    return {each: list(sharder.compute_kernels(each, device)) for each in types}


def _tables(module: Any, by_kind: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the kind of module and the name of each table."""
    waiting = [module]
    while waiting:
        child = waiting.pop()
        kind = sharder_name(type(child))
        if kind in by_kind:
            for name in by_kind[kind].shardable_parameters(child):
                yield kind, name
        else:
            waiting.extend(child.children())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps warnings about constraints from being logged twice."""
    log = enumerators.logger
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _without_search_space(enumerator: Any) -> Any:
    copied = copy.copy(enumerator)
    for name in list(getattr(copied, "__dict__", ())):
        if name.startswith("_last_stored_"):
            setattr(copied, name, None)
    return copied


def _dumps(value: Any) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return file.getvalue()


class _Pickler(Pickler):
    """Pickles large tensors and those of devices without their values."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and _loses_values(value):
            attributes = {name: item for name, item in vars(value).items() if _is_plain(item)}
            is_parameter = isinstance(value, torch.nn.Parameter)
            shape = tuple(value.shape)
            return _without_values, (
                (shape, value.dtype, value.requires_grad, is_parameter),
                attributes,
            )
        inherited = getattr(super(), "reducer_override", None)
        return NotImplemented if inherited is None else inherited(value)


def _loses_values(tensor: torch.Tensor) -> bool:
    return bool(tensor.device.type != "cpu" or tensor.numel() > _SMALL)


def _without_values(kind: tuple[Any, ...], attributes: dict[str, Any]) -> torch.Tensor:
    shape, dtype, requires_grad, is_parameter = kind
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    if is_parameter:
        tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
    vars(tensor).update(attributes)
    return tensor


def _is_plain(value: Any) -> bool:
    """Whether an attribute of a tensor tells something about it; hooks and optimizers don't."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool | int | float | str | type)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
