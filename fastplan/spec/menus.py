"""The allowed (sharding type, kernel) pairs of a table, by the filters of TorchRec's enumerator."""

from __future__ import annotations

from fastplan.spec import stock
from fastplan.spec.model import ModuleSpec, TableSpec


class MenuRules:
    """The rules for one TorchRec version, device and cluster.

    TorchRec 1.8 lists the remaining pairs in the order of a set, which depends on string hashes.
    Unless `deterministic`, this class builds the same set, so it has the same order.
    """

    def __init__(self, version: str, device: str, *, has_ssd: bool, deterministic: bool) -> None:
        self._device = device
        self._has_ssd = has_ssd
        self._hashed = not version.startswith("1.9")
        self._deterministic = deterministic
        self._free_kernels = [
            kernel for kernel in stock.kernels_of(version) if kernel not in stock.GUARDED_KERNELS
        ]

    def pairs(self, module: ModuleSpec, table: TableSpec) -> list[tuple[str, str]]:
        """Returns the allowed pairs in TorchRec's order."""
        found = []
        for sharding_type in self._types(module, table):
            offered = self._offered_kernels(module, sharding_type)
            found += [
                (sharding_type, kernel) for kernel in self._kernels(offered, table.compute_kernels)
            ]
        return found

    def _types(self, module: ModuleSpec, table: TableSpec) -> list[str]:
        kind = stock.KINDS[module.kind]
        offered = list(
            kind.types[self._device] if module.sharding_types is None else module.sharding_types
        )
        if table.sharding_types:
            return self._both(list(table.sharding_types), offered)
        left_out = {"grid_shard"} | (stock.GUARDED_TYPES_OF_PROCESSED if kind.processed else set())
        return [name for name in offered if name not in left_out]

    def _offered_kernels(self, module: ModuleSpec, sharding_type: str) -> list[str]:
        if module.compute_kernels is not None:
            return list(module.compute_kernels.get(sharding_type, ()))
        return list(stock.KINDS[module.kind].kernels_of(sharding_type, self._device))

    def _kernels(self, offered: list[str], wanted: tuple[str, ...] | None) -> list[str]:
        left = self._both(list(wanted) if wanted else self._free_kernels, offered)
        if not self._has_ssd and "key_value" in left:
            left.remove("key_value")
        if "dense" in left and "fused" in left:
            left.remove("dense")
        return left

    def _both(self, wanted: list[str], offered: list[str]) -> list[str]:
        if self._hashed and not self._deterministic:
            return list(set(wanted) & set(offered))
        return [name for name in offered if name in set(wanted)]
