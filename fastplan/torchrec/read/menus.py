"""The menus of a request: the options that TorchRec's enumerator and sharders allow each table."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from torchrec.distributed.planner.enumerators import EmbeddingEnumerator

from fastplan.model.request import MenuItem, Order, Table, digest_orders, unusual_order
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.read.costs import Estimators
from fastplan.torchrec.read.modules import Cache, TableModule

_LAST = sys.maxsize  # the place of what is not listed
_FILTERS = "_filter_sharding_types", "_filter_compute_kernels"


class _Allowed(NamedTuple):
    """What a table may have: sharding type, kernel and number of the coefficients."""

    options: tuple[tuple[str, str, int], ...]
    order: Order  # empty if it is the usual one


def overridden(enumerator: Any, *methods: str) -> str:
    """Returns the first of these methods that is not that of TorchRec's enumerator, or nothing."""
    own = vars(enumerator)
    for name in methods:
        stock = getattr(EmbeddingEnumerator, name, None)
        if name in own or getattr(type(enumerator), name, None) is not stock:
            return name
    return ""


class Menus:
    """The menus of the tables that were read so far."""

    def __init__(self, enumerator: Any, estimators: Estimators, *, deterministic: bool) -> None:
        self._enumerator = enumerator
        self._estimators = estimators
        self._deterministic = deterministic
        self._has_own_filters = bool(overridden(enumerator, *_FILTERS))
        self._numbers: dict[Any, int] = {}
        self._allowed: dict[Any, _Allowed] = {}
        self._orders: dict[int, Order] = {}  # by menu, those that are not the usual one
        self.items: list[tuple[MenuItem, ...]] = []

    def of_table(self, holder: TableModule, name: str, constraint: Any, cache: Cache) -> int:
        """Returns the number of a table's menu."""
        types = constraint.sharding_types if constraint else None
        kernels = constraint.compute_kernels if constraint else None
        if hasattr(types, "__next__") or hasattr(kernels, "__next__"):
            raise NotNative(f"the types or kernels of table {name} can be read only once")
        rule: tuple[Any, ...] = (
            holder.key,
            tuple(types) if types else None,
            tuple(kernels) if kernels else None,
        )
        if self._has_own_filters:
            # They may decide by name, and count their calls: TorchRec calls them for each table.
            rule = (holder.path, name)
        elif not holder.has_stock_sharder:
            # It may give another answer for each table.
            answer = self._allowed_by(holder, name)
            rule = (*rule, answer)
            self._allowed[rule] = answer
        key = (rule, cache.ratio, cache.prefetches)
        known = self._numbers.get(key)
        if known is None:
            # Cache sizes often differ by table, and lists of types and kernels seldom do.
            if rule not in self._allowed:
                self._allowed[rule] = self._allowed_by(holder, name)
            allowed, order = self._allowed[rule]
            if not allowed:
                raise NotNative(f"table {name} has no allowed sharding option")
            speed = {
                kernel: self._estimators.bandwidth(kernel, cache.ratio, cache.prefetches)
                for kernel in {kernel: None for _, kernel, _ in allowed}
            }
            items = (MenuItem(kind, kernel, speed[kernel], row) for kind, kernel, row in allowed)
            known = self._add(key, tuple(items))
            if order:
                self._orders[known] = order
        return known

    def of_option(self, sharding_type: str, kernel: str, cache: Cache) -> int:
        """Returns the number of a menu with one option."""
        key = (sharding_type, kernel, cache.ratio, cache.prefetches)
        known = self._numbers.get(key)
        if known is None:
            row = self._estimators.coefficients_of(sharding_type, kernel)
            bandwidth = self._estimators.bandwidth(*key[1:])
            known = self._add(key, (MenuItem(sharding_type, kernel, bandwidth, row),))
        return known

    def order_digest(self, tables: Iterable[Table]) -> str:
        """Returns the digest of the orders in which options are offered; empty if all are usual."""
        if not self._orders:
            return ""
        orders = self._orders
        return digest_orders(
            (table.path, table.name, orders[table.menu]) for table in tables if table.menu in orders
        )

    def _allowed_by(self, holder: TableModule, name: str) -> _Allowed:
        """Returns the allowed options in TorchRec's order, and the sharder's if it is unusual."""
        enumerator, device = self._enumerator, self._enumerator._compute_device
        found, places = [], {}
        allowed_types = holder.sharder.sharding_types(device)
        type_places = _places(allowed_types)
        types = enumerator._filter_sharding_types(name, allowed_types, holder.key)
        for sharding_type in self._ordered(types, type_places):
            allowed = holder.sharder.compute_kernels(sharding_type, device)
            kernel_places = _places(allowed)
            kernels = enumerator._filter_compute_kernels(name, allowed, sharding_type)
            for kernel in self._ordered(kernels, kernel_places):
                if sharding_type not in SHARDING_TYPE_INDEX or kernel not in KERNEL_INDEX:
                    raise NotNative(f"({sharding_type}, {kernel}) is unknown")
                row = self._estimators.coefficients_of(sharding_type, kernel)
                found.append((sharding_type, kernel, row))
                places[sharding_type, kernel] = (
                    type_places.get(sharding_type, _LAST),
                    kernel_places.get(kernel, _LAST),
                )
        return _Allowed(tuple(found), unusual_order(sorted(places, key=places.__getitem__)))

    def _ordered(self, names: list[str], places: dict[str, int]) -> list[str]:
        """Returns TorchRec's own order, or the sharder's if string hashes must not matter."""
        if not self._deterministic:
            return names
        return sorted(names, key=lambda name: places.get(name, _LAST))

    def _add(self, key: Any, items: tuple[MenuItem, ...]) -> int:
        number = self._numbers[key] = len(self.items)
        self.items.append(items)
        return number


def _places(names: Any) -> dict[str, int]:
    """Returns the first place of each name, of none if they can be read only once."""
    if hasattr(names, "__next__"):
        return {}
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    return places
