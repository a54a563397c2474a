"""Builds the ShardingPlan from a solution."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

from fastplan.engine.layout import shard_offsets
from fastplan.engine.problem import SearchSpace
from fastplan.model.request import Table
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES
from fastplan.torchrec import collector
from fastplan.torchrec.read.extract import Origin
from fastplan.torchrec.write.specs import SpecBuilder


def chosen_runs(space: SearchSpace, options: Any) -> tuple[Any, Any]:
    """The runs of some options, one option after the other, and how many each of them has."""
    end = space.option_run_begin[options + 1]
    number = end - space.option_run_begin[options]
    last = np.cumsum(number)
    return np.arange(last[-1]) + np.repeat(end - last, number), number


class PlanBuilder:
    """Turns chosen options and ranks into ParameterShardings on one topology."""

    def __init__(
        self,
        space: SearchSpace,
        tables: tuple[Table, ...],
        origins: tuple[Origin, ...],
        topology: Any,
    ) -> None:
        self._space = space
        self._tables = tables
        self._origins = origins
        self._specs = SpecBuilder(topology.compute_device, topology.local_world_size)

    def build(self, table_of_option: Any, options: Any, ranks: Any) -> ShardingPlan:
        """The plan with its tables in the order of `options`."""
        plan: dict[str, EmbeddingModuleShardingPlan] = {}
        chosen = zip(
            table_of_option[options].tolist(),
            self._space.option_type[options].tolist(),
            self._space.option_kernel[options].tolist(),
            self._sizes(options),
            strict=True,
        )
        waiting = ranks.tolist()
        placed = 0
        with collector.paused():
            for table, kind, kernel, sizes in chosen:
                sharding_type = SHARDING_TYPES[kind]
                if sharding_type in UNIFORM_TYPES:
                    own = list(range(len(sizes)))
                else:
                    own = waiting[placed : placed + len(sizes)]
                    placed += len(sizes)
                origin = self._origins[table]
                module_plan = plan.get(origin.path)
                if module_plan is None:
                    module_plan = plan[origin.path] = EmbeddingModuleShardingPlan()
                module_plan[origin.name] = self._sharding(
                    table, sharding_type, KERNELS[kernel], sizes, own
                )
        return ShardingPlan(plan)

    def _sizes(self, options: Any) -> Iterator[list[tuple[int, int]]]:
        """The shards of each option, rows and columns."""
        space = self._space
        runs, number = chosen_runs(space, options)
        count = space.run_count[runs]
        rows, cols = (
            np.repeat(sizes[runs], count).tolist() for sizes in (space.run_rows, space.run_cols)
        )
        shards = [*zip(rows, cols, strict=True)]
        last = np.cumsum(number) - 1
        return (shards[a:b] for a, b in pairwise([0, *np.cumsum(count)[last].tolist()]))

    def _sharding(
        self, table: int, kind: str, kernel: str, sizes: list[tuple[int, int]], ranks: list[int]
    ) -> ParameterSharding:
        rule = self._origins[table].constraint
        spec = None
        if kind != "data_parallel":
            offsets = shard_offsets(kind, sizes, self._tables[table].dim)
            spec = self._specs.spec(offsets, sizes, ranks)
        sharding = ParameterSharding(
            sharding_type=kind, compute_kernel=kernel, ranks=ranks, sharding_spec=spec
        )
        if rule:
            # Most tables have neither, and a deep copy of nothing takes longer than to ask.
            if rule.cache_params is not None:
                sharding.cache_params = copy.deepcopy(rule.cache_params)
            if rule.key_value_params is not None:
                sharding.key_value_params = copy.deepcopy(rule.key_value_params)
            sharding.enforce_hbm = rule.enforce_hbm
            sharding.stochastic_rounding = rule.stochastic_rounding
            sharding.bounds_check_mode = rule.bounds_check_mode
            sharding.output_dtype = rule.output_dtype
        return sharding
