"""The options of a search space, and whether they still match its columns.

Proposers receive TorchRec's objects and may change them. Values computed from the columns are valid
only for unchanged options.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torchrec.distributed.planner.types import Shard, ShardingOption

from fastplan.engine.problem import SearchSpace
from fastplan.engine.watch import ASSIGNED, HASHED, ITEMS, OBJECT, OBJECTS, ObjectWatch
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.read.runs import RUN_COLUMNS, read_runs, row_or_none

# The mutable objects of an option that its hash and the columns depend on.
_SHARD = (
    ("size", ITEMS, ()),
    ("offset", ITEMS, ()),
    ("storage", OBJECT, ()),
    ("perf", OBJECT, ()),
    ("rank", ASSIGNED, ()),
)
_OPTION = (("cache_params", HASHED, ()), ("shards", OBJECTS, _SHARD))


class OptionIndex:
    """Options by identity, in the order of the columns that describe them."""

    def __init__(self, options: Sequence[ShardingOption], columns: SearchSpace) -> None:
        self._options = tuple(options)
        self._heads = [_head(option) for option in self._options]
        self._runs = {name: getattr(columns, name) for name in RUN_COLUMNS}
        self._is_uniform = [SHARDING_TYPES[kind] in UNIFORM_TYPES for kind in columns.option_type]
        self._storage = [
            np.add.reduceat(column * columns.run_count, columns.option_run_begin[:-1]).tolist()
            for column in (columns.run_hbm, columns.run_ddr, columns.run_ssd)
        ]
        # Hashes of options that matched the columns when the hash was computed.
        self._hashes = np.zeros(len(self._options), np.int64)
        self._has_hash = np.zeros(len(self._options), np.bool_)
        self._watch = ObjectWatch(self._options, _OPTION)
        self._remembered: set[int] = set()
        self.generation = 0  # grows when an option that was known has changed

    def __getitem__(self, number: int) -> ShardingOption:
        return self._options[number]

    def numbers(self, proposal: Iterable[ShardingOption]) -> list[int] | None:
        """Returns the numbers of a proposal's options; None if one is changed or custom."""
        return self._watch.numbers(proposal)

    def identify(
        self, proposal: Sequence[ShardingOption], *, checked: bool
    ) -> tuple[bytes, list[int] | None]:
        """Returns a key that proposals of the same hashes share, and the numbers of the options.

        The numbers are None if an option is changed or custom.

        Args:
            proposal: the options.
            checked: whether Python may have changed them.
        """
        numbers = self.numbers(proposal)
        if checked and numbers is not None:
            # Each is looked at, so that those that are known need no hash the next time.
            known = [self._is_known(numbers[i]) for i in self._watch.changed(numbers)]
            numbers = numbers if all(known) else None
        if numbers is None:
            return _key(np.fromiter(map(hash, proposal), np.int64)), None
        places = np.array(numbers)
        for number in places[~self._has_hash[places]].tolist():
            self._set_hash(number, hash(self._options[number]))
        return _key(self._hashes[places]), numbers

    def storage(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Returns the bytes of unchanged options on each tier of memory."""
        return tuple(sum(map(tier.__getitem__, numbers)) for tier in self._storage)

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
            self._has_hash[number] = False
            self._remember([number])
        return True

    def remember_all(self) -> None:
        """Makes all options known in one pass, if none was changed since the columns were read."""
        if self._are_as_read():
            self._remember(range(len(self._options)))

    def place(
        self,
        proposal: list[ShardingOption],
        numbers: list[int],
        ranks: Sequence[int | None],
    ) -> None:
        """Sets the ranks of options: `ranks` has those that are not uniform, in order."""
        self._watch.assign(proposal, ranks, [self._is_uniform[number] for number in numbers])

    def reset_ranks(self, proposal: list[ShardingOption]) -> None:
        """Does what TorchRec's `reset_shard_rank` does, also with options that are not known."""
        self._watch.assign(proposal, None, [])

    def _are_as_read(self) -> bool:
        """Whether all shards are still what the columns were read from."""
        try:
            now = read_runs(self._options)
        except NotNative:
            return False
        return all(np.array_equal(now[name], column) for name, column in self._runs.items())

    def _is_known(self, number: int) -> bool:
        """Whether an option that was changed, or not seen before, has the content it had."""
        present = hash(self._options[number])
        if not self._has_hash[number] and self._is_unchanged(number):
            self._set_hash(number, present)
        if not self._has_hash[number] or self._hashes[number] != present:
            return False
        self._remember([number])
        return True

    def _set_hash(self, number: int, value: int) -> None:
        self._hashes[number] = value
        self._has_hash[number] = True

    def _remember(self, numbers: Sequence[int]) -> None:
        if not self._remembered.isdisjoint(numbers):
            self.generation += 1
        self._remembered.update(numbers)
        self._watch.remember([number for number in numbers if _is_plain(self._options[number])])

    def _is_unchanged(self, number: int) -> bool:
        option = self._options[number]
        if _head(option) != self._heads[number]:
            return False
        shards, first = option.shards, 0
        begin, counts, *columns = self._runs.values()
        for run in range(begin[number], begin[number + 1]):
            row, end = tuple(column[run].item() for column in columns), first + int(counts[run])
            if end > len(shards) or any(row_or_none(shard) != row for shard in shards[first:end]):
                return False
            first = end
        return first == len(shards)


def _key(hashes: Any) -> bytes:
    hashes.sort()
    key: bytes = hashes.tobytes()
    return key


def _head(option: ShardingOption) -> tuple[Any, ...]:
    return (
        option.fqn,
        option.sharding_type,
        option.compute_kernel,
        option.partition_by,
        option.dependency,
        hash(option.cache_params),
    )


def _is_plain(option: ShardingOption) -> bool:
    """Whether the watch sees all: other classes may compute attributes."""
    return type(option) is ShardingOption and {*map(type, option.shards)} == {Shard}
