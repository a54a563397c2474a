"""Builds the ShardingPlan from a solution."""

from __future__ import annotations

import copy
from typing import Any

from torchrec.distributed.types import (
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

from fastplan.bridge import collector
from fastplan.bridge.extract import Origin
from fastplan.bridge.specs import SpecBuilder
from fastplan.core.problem import SearchSpace
from fastplan.plans.shards import shard_offsets
from fastplan.spec.request import Table
from fastplan.spec.vocabulary import KERNELS, SHARDING_TYPES, UNIFORM_TYPES


class PlanBuilder:
    """Turns chosen options and ranks into ParameterShardings on one topology."""

    def __init__(
        self,
        space: SearchSpace,
        tables: tuple[Table, ...],
        origins: tuple[Origin, ...],
        topology: Any,
    ) -> None:
        self._run_rows = space.run_rows.tolist()
        self._run_cols = space.run_cols.tolist()
        self._run_count = space.run_count.tolist()
        self._option_run_begin = space.option_run_begin.tolist()
        self._space = space
        self._tables = tables
        self._origins = origins
        self._specs = SpecBuilder(topology.compute_device, topology.local_world_size)

    def build(self, table_of_option: Any, options: Any, ranks: Any) -> ShardingPlan:
        """The plan with its tables in the order of `options`."""
        plan: dict[str, EmbeddingModuleShardingPlan] = {}
        waiting = iter(ranks.tolist())
        with collector.paused():
            for number in options.tolist():
                table = int(table_of_option[number])
                sizes = self._sizes(number)
                sharding_type = SHARDING_TYPES[self._space.option_type[number]]
                own = (
                    list(range(len(sizes)))
                    if sharding_type in UNIFORM_TYPES
                    else [next(waiting) for _ in sizes]
                )
                origin = self._origins[table]
                module_plan = plan.setdefault(origin.path, EmbeddingModuleShardingPlan())
                module_plan[origin.name] = self._sharding(table, number, sharding_type, sizes, own)
        return ShardingPlan(plan)

    def _sizes(self, number: int) -> list[tuple[int, int]]:
        begin, end = self._option_run_begin[number], self._option_run_begin[number + 1]
        sizes: list[tuple[int, int]] = []
        for run in range(begin, end):
            sizes += [(self._run_rows[run], self._run_cols[run])] * self._run_count[run]
        return sizes

    def _sharding(
        self, table: int, number: int, kind: str, sizes: list[tuple[int, int]], ranks: list[int]
    ) -> ParameterSharding:
        rule = self._origins[table].constraint
        sharding = ParameterSharding(
            sharding_type=kind,
            compute_kernel=KERNELS[self._space.option_kernel[number]],
            ranks=ranks,
            sharding_spec=(
                None
                if kind == "data_parallel"
                else self._specs.spec(
                    shard_offsets(kind, sizes, self._tables[table].dim), sizes, ranks
                )
            ),
        )
        if rule:
            sharding.cache_params = copy.deepcopy(rule.cache_params)
            sharding.enforce_hbm = rule.enforce_hbm
            sharding.stochastic_rounding = rule.stochastic_rounding
            sharding.bounds_check_mode = rule.bounds_check_mode
            sharding.output_dtype = rule.output_dtype
            sharding.key_value_params = copy.deepcopy(rule.key_value_params)
        return sharding
