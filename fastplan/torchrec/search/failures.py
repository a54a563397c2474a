"""Proposals that could not be placed, and TorchRec's error for the last one.

TorchRec makes the error before proposers hear of the failure. A custom proposer may then change the
options, so the values that the core placed are restored in copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchrec.distributed.planner.constants import MAX_SIZE
from torchrec.distributed.planner.types import Perf, PlannerError, ShardingOption

from fastplan.engine.problem import SearchSpace
from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.torchrec.differences import storage_tiers
from fastplan.torchrec.read.runs import PERF_PARTS, RUN_COLUMNS, row_or_none
from fastplan.torchrec.write.options import copy_options


@dataclass(frozen=True, slots=True)
class FailedProposal:
    """A proposal, with what the core read of it."""

    options: list[ShardingOption]
    columns: SearchSpace
    numbers: Sequence[int]  # of the options, in the columns
    # Ranks and offsets before the placement, which the columns lack; without uniform options.
    before: Sequence[tuple[int | None, list[int]]] = ()

    def error(self, partitioner: Any, reserved: Any) -> PlannerError | None:
        """Returns the error of TorchRec's partitioner; None if it can place the proposal."""
        copies = copy_options(self.options)
        before = iter(self.before)
        for option, number in zip(copies, self.numbers, strict=True):
            for shard, row in zip(option.shards, self._rows(number), strict=False):
                if row_or_none(shard) != row:
                    _restore(shard, row)
                if option.sharding_type not in UNIFORM_TYPES:
                    shard.rank, shard.offset = next(before, (None, shard.offset))
        try:
            partitioner.partition(proposal=copies, storage_constraint=reserved)
        except PlannerError as error:
            return error
        return None

    def _rows(self, number: int) -> Iterator[tuple[Any, ...]]:
        begin, counts, *columns = (getattr(self.columns, name) for name in RUN_COLUMNS)
        for run in range(begin[number], begin[number + 1]):
            row = tuple(column[run].item() for column in columns)
            for _ in range(counts[run]):
                yield row


class PlacementFailed(PlannerError):
    """The core could not place a proposal; TorchRec's partitioner has the better error message.

    Args:
        heard: the proposal as it was, if a custom proposer hears of the failure.
    """

    def __init__(self, heard: FailedProposal | None = None) -> None:
        super().__init__("a shard does not fit on any rank")
        self.heard = heard


class Failures:
    """What TorchRec's error needs of the proposals that could not be placed.

    Attributes:
        last: the last one; empty if there is none.
        lowest: the least storage of all.
    """

    def __init__(self) -> None:
        self.last: list[ShardingOption] = []
        self.lowest = storage_tiers.storage(MAX_SIZE, MAX_SIZE, MAX_SIZE)
        self._error: PlannerError | None = None

    def note(self, proposal: list[ShardingOption], error: PlannerError, storage: Any) -> None:
        """Adds a proposal; `storage` is None if it has to be added up."""
        self.last = list(proposal)
        self._error = error
        if storage is None:
            storage = storage_tiers.storage(0, 0)
            for option in proposal:
                storage += option.total_storage
        if storage < self.lowest:
            self.lowest = storage

    def error(self, planner: Any, reserved: Any) -> PlannerError | None:
        """Returns the error of the last proposal; None if a replay of it raises the same."""
        if not isinstance(self._error, PlacementFailed):
            return self._error
        heard = self._error.heard
        return None if heard is None else heard.error(planner._partitioner, reserved)


def ranks_and_offsets(options: Sequence[ShardingOption]) -> list[tuple[int | None, list[int]]]:
    """Returns rank and offset of all shards in order, except those of uniform options."""
    return [
        (shard.rank, [*shard.offset])
        for option in options
        if option.sharding_type not in UNIFORM_TYPES
        for shard in option.shards
    ]


def _restore(shard: Any, row: tuple[Any, ...]) -> None:
    rows, cols, hbm, ddr, ssd, *costs = row
    shard.size = [rows, cols][: len(shard.size)]
    shard.storage = storage_tiers.storage(hbm, ddr, ssd)
    shard.perf = Perf(**dict(zip(PERF_PARTS, costs, strict=True)))
