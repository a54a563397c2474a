"""Lets TorchRec itself say why there is no plan.

Its message counts all proposals and quotes the storage of the smallest and the error of the last:
when its own planner is shown just those two, it says the same, in its version's own words.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn

from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import ShardingOption


class _Two:
    """Proposes what it is given, then sets the counts to those of the whole search."""

    def __init__(
        self, planner: Any, proposals: list[list[ShardingOption]], counts: tuple[int, int]
    ) -> None:
        self._planner = planner
        self._waiting = list(proposals)
        self._counts = counts

    def load(self, search_space: Any, enumerator: Any = None) -> None:
        pass

    def propose(self) -> list[ShardingOption] | None:
        if self._waiting:
            return self._waiting[0]
        self._planner._num_proposals, self._planner._num_plans = self._counts
        return None

    def feedback(self, *args: Any, **kwargs: Any) -> None:
        self._waiting.pop(0)


def raise_no_plan(
    planner: Any,
    module: Any,
    sharders: Any,
    proposals: list[list[ShardingOption]],
    some_option: list[ShardingOption],
    count: int,
) -> NoReturn:
    """Raises the PlannerError that TorchRec raises when none of its proposals can be placed.

    There may be no proposal at all; `some_option` then shows TorchRec that there are tables.
    """
    double = object.__new__(type(planner))
    double.__dict__.update(planner.__dict__)
    double._fastplan = copy.copy(planner._fastplan)
    double._enumerator = copy.copy(planner._enumerator)
    options = [option for proposal in proposals for option in proposal] or some_option
    double._enumerator.enumerate = lambda module, sharders: options
    double._proposers = [_Two(double, proposals, (count, planner._num_plans))]
    double.plan_loader = None
    double._timeout_seconds = None
    EmbeddingShardingPlanner.plan(double, module, sharders)
    raise AssertionError("a proposal that could not be placed was placed by TorchRec")
