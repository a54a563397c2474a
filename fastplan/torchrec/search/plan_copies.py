"""Copies of the best plan so far, of which only the last one is shown to anybody.

TorchRec copies the whole plan whenever one is better. Most options of a better plan were in the one
before, too, and did not change: their copies are used again.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import starmap
from typing import Any

from torchrec.distributed.planner.types import Shard, ShardingOption

from fastplan.torchrec import compat
from fastplan.torchrec.search.known_options import OptionIndex
from fastplan.torchrec.support.watch import is_stock
from fastplan.torchrec.write.options import copy_option, copy_options

_SHARED_WITH_COPIES = ("_tensor", "_module")
_SHARD_FIELDS = {field.name for field in fields(Shard)}


class PlanCopies:
    """Copies of the options of a search, up to their ranks."""

    def __init__(self, known: OptionIndex) -> None:
        self._known = known
        self._clear()

    def copy(self, plan: list[ShardingOption], numbers: list[int] | None) -> list[ShardingOption]:
        """Returns what copy.deepcopy() returns for a plan; ranks may be those of another one.

        Args:
            plan: the options.
            numbers: their numbers; None if one of them is changed or custom.
        """
        are_current = self._generation == self._known.generation
        if not are_current or not all(starmap(_is_same, self._lists.values())):
            self._clear()
        copies = is_stock(ShardingOption.__deepcopy__)
        if numbers is None or not copies or not all(map(self._is_usable, plan, numbers)):
            self._clear()
            return copy_options(plan)
        memo = {address: twin for address, (_, twin) in self._lists.items()}
        with compat.paused():
            return [
                self._copies.get(number) or self._copied(option, number, memo)
                for option, number in zip(plan, numbers, strict=True)
            ]

    def _clear(self) -> None:
        self._generation = self._known.generation
        self._copies: dict[int, ShardingOption] = {}
        self._lists: dict[int, tuple[list[Any], list[Any]]] = {}
        self._owners: dict[int, int] = {}

    def _is_usable(self, option: ShardingOption, number: int) -> bool:
        """Whether all parts of an option belong to that option only."""
        if number in self._copies:
            return True
        owners = self._owners
        for shard in option.shards:
            parts = (shard, shard.size, shard.offset, shard.storage, shard.perf)
            if any(owners.setdefault(id(part), number) != number for part in parts):
                return False
        return owners.setdefault(id(option.shards), number) == number

    def _copied(self, option: ShardingOption, number: int, memo: dict[int, Any]) -> ShardingOption:
        copied: ShardingOption = copy_option(option, memo)
        is_plain = type(option) is ShardingOption
        for name, value in vars(option).items():
            if type(value) in compat.IMMUTABLE or name in (*_SHARED_WITH_COPIES, "shards"):
                continue
            if type(value) is list and compat.IMMUTABLE.issuperset(map(type, value)):
                self._lists[id(value)] = value, vars(copied)[name]
            else:
                is_plain = False  # it may change where nobody looks
        if is_plain and all(vars(shard).keys() == _SHARD_FIELDS for shard in option.shards):
            self._copies[number] = copied
        return copied


def _is_same(held: list[Any], twin: list[Any]) -> bool:
    return held == twin and [*map(type, held)] == [*map(type, twin)]
