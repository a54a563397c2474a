"""The options of a search space, and whether they still match its columns.

Proposers receive TorchRec's objects and may change them. Values computed from the columns are valid
only for unchanged options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchrec.distributed.planner.types import ShardingOption

from fastplan.engine.problem import SearchSpace
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

    def checked_numbers(
        self, proposal: Sequence[ShardingOption], hashes: Sequence[int]
    ) -> list[int] | None:
        """Like numbers(), for options that Python may have changed, with their current hashes."""
        numbers = self.numbers(proposal)
        if numbers is None:
            return None
        for number, option, present in zip(numbers, proposal, hashes, strict=True):
            known = self._hashes.get(id(option))
            if known is None and self._is_unchanged(number):
                known = self._hashes[id(option)] = present
            if known != present:
                return None
        return numbers

    def are_all_in(self, options: list[ShardingOption]) -> bool:
        """Whether a list still has all options, in order and unchanged."""
        if len(options) != len(self._options):
            return False
        if any(a is not b for a, b in zip(options, self._options, strict=True)):
            return False
        self._hashes.clear()
        return all(map(self._is_unchanged, range(len(options))))

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
