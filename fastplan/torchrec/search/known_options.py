"""The options of a search space, and whether they still match its columns.

Proposers receive TorchRec's objects and may change them. Values computed from the columns are valid
only for unchanged options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchrec.distributed.planner.types import Shard, ShardingOption

from fastplan.engine.problem import SearchSpace
from fastplan.engine.watch import HASHED, ITEMS, OBJECT, OBJECTS, ObjectWatch
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.read.space import shard_row

_ROW = [
    "run_rows",
    "run_cols",
    "run_hbm",
    "run_ddr",
    "run_ssd",
    "run_fwd_compute",
    "run_fwd_comms",
    "run_bwd_compute",
    "run_bwd_comms",
    "run_input_dist_comms",
    "run_prefetch_compute",
]
# The mutable objects of an option that its hash and the columns depend on.
_SHARD = (
    ("size", ITEMS, ()),
    ("offset", ITEMS, ()),
    ("storage", OBJECT, ()),
    ("perf", OBJECT, ()),
)
_OPTION = (("cache_params", HASHED, ()), ("shards", OBJECTS, _SHARD))


class OptionIndex:
    """Options by identity, in the order of the columns that describe them."""

    def __init__(self, options: Sequence[ShardingOption], columns: SearchSpace) -> None:
        self._options = tuple(options)
        self._numbers = {id(option): i for i, option in enumerate(self._options)}
        self._heads = [_head(option) for option in self._options]
        self._run_begin = columns.option_run_begin.tolist()
        self._counts = columns.run_count.tolist()
        self._rows = list(zip(*(getattr(columns, n).tolist() for n in _ROW), strict=True))
        # Hashes of options that matched the columns when the hash was computed.
        self._hashes: dict[int, int] = {}
        self._watch = ObjectWatch(self._options, _OPTION)
        self._remembered: set[int] = set()
        self.generation = 0  # grows when an option that was known has changed

    def __getitem__(self, number: int) -> ShardingOption:
        return self._options[number]

    def hash(self, option: ShardingOption) -> int:
        """Returns the cached hash of an unchanged option."""
        known = self._hashes.get(id(option))
        if known is None:
            known = self._hashes[id(option)] = hash(option)
        return known

    def numbers(self, proposal: Sequence[ShardingOption]) -> list[int] | None:
        """Returns the numbers of a proposal's options; None if one is changed or custom."""
        numbers = [self._numbers.get(id(option), -1) for option in proposal]
        return None if -1 in numbers else numbers

    def checked(self, proposal: Sequence[ShardingOption]) -> tuple[list[int], list[int] | None]:
        """Returns hashes and numbers of options that Python may have changed.

        The numbers are None if an option is changed or custom.
        """
        numbers = self.numbers(proposal)
        if numbers is None:
            return list(map(hash, proposal)), None
        # Each is looked at, so that those that are known need no hash the next time.
        known = [self._is_known(numbers[i]) for i in self._watch.changed(numbers)]
        if all(known):
            return list(map(self.hash, proposal)), numbers
        return list(map(hash, proposal)), None

    def are_all_in(self, options: list[ShardingOption]) -> bool:
        """Whether a list still has all options, in order and unchanged."""
        if len(options) != len(self._options):
            return False
        if any(a is not b for a, b in zip(options, self._options, strict=True)):
            return False
        for number in self._watch.changed(list(range(len(options)))):
            if not self._is_unchanged(number):
                return False
            # Something that the columns don't have may be part of the hash.
            self._hashes.pop(id(options[number]), None)
            self._remember(number)
        return True

    def _is_known(self, number: int) -> bool:
        """Whether an option that was changed, or not seen before, has the content it had."""
        option = self._options[number]
        present = hash(option)
        known = self._hashes.get(id(option))
        if known is None and self._is_unchanged(number):
            known = self._hashes[id(option)] = present
        if known != present:
            return False
        self._remember(number)
        return True

    def _remember(self, number: int) -> None:
        option = self._options[number]
        if number in self._remembered:
            self.generation += 1
        self._remembered.add(number)
        # Other classes may compute attributes, which the watch would not see.
        if type(option) is ShardingOption and all(type(shard) is Shard for shard in option.shards):
            self._watch.remember(number)

    def _is_unchanged(self, number: int) -> bool:
        option = self._options[number]
        if _head(option) != self._heads[number]:
            return False
        shards, first = option.shards, 0
        for run in range(self._run_begin[number], self._run_begin[number + 1]):
            row, end = self._rows[run], first + self._counts[run]
            if end > len(shards) or any(_row(shard) != row for shard in shards[first:end]):
                return False
            first = end
        return first == len(shards)


def _head(option: ShardingOption) -> tuple[Any, ...]:
    return (
        option.fqn,
        option.sharding_type,
        option.compute_kernel,
        option.partition_by,
        option.dependency,
        hash(option.cache_params),
    )


def _row(shard: Any) -> tuple[Any, ...] | None:
    try:
        return shard_row(shard)
    except NotNative:
        return None
