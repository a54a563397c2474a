"""Kinds of input for the benchmark of inputs: models, constraints, parts and previous plans."""

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.partitioners import (
    GreedyPerfPartitioner,
    MemoryBalancedPartitioner,
    SortBy,
)
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection

import fastplan
from bench.models import BYTES_PER_WEIGHT
from bench.replan_models import State, TableSize, add, both, case_of, random_state, remove
from bench.runs import GIB, Case, quiet
from fastplan import EmbeddingShardingPlanner as FastPlanner

RANKS_PER_HOST = 8
TABLES_PER_TOWER = 4
# Two options each: 8,192 proposals, and TorchRec's grid search runs up to 10,000.
GRID_TABLES = 13
META = torch.device("meta")


@dataclass(frozen=True, kw_only=True)
class Input:
    """What a row plans.

    Args:
        case: the model on its cluster.
        arguments: makes the planner's arguments. Called before each run, outside the timing.
        sharder: the class of the sharder.
        logs: log at level INFO, to a handler that discards everything.
        fails: the model does not fit, and the plan ends with PlannerError.
        cache: the expected status of the cache.
        note: a figure of this input for the table's reader.
    """

    case: Case
    arguments: Callable[[], dict[str, Any]] = dict
    sharder: type[Any] = EmbeddingBagCollectionSharder
    logs: bool = False
    fails: bool = False
    cache: str = "off"
    note: str = ""


class Setting:
    """A number of tables and ranks. All inputs of a size use the same table sizes."""

    def __init__(self, tables: int, ranks: int, folder: Path) -> None:
        self.folder = folder
        self.state: State = random_state(tables, ranks // RANKS_PER_HOST, RANKS_PER_HOST)

    @cached_property
    def loose(self) -> Case:
        return case_of(self.state)

    @cached_property
    def changed(self) -> Case:
        """The model with 1 % of its tables changed: half of them removed, the others new."""
        changes = max(1, len(self.state.tables) // 100)
        apply = both(remove(changes // 2), add(changes - changes // 2))
        return case_of(apply(self.state, random.Random(0)))

    @cached_property
    def hbm_only(self) -> Case:
        """Without UVM kernels, so that every table needs HBM."""
        return self.constrained(lambda i, table: {"compute_kernels": ["fused"]})

    def constrained(self, rules: Callable[[int, TableSize], dict[str, Any]]) -> Case:
        """The loose model with more constraints for each table."""
        constraints = {
            table.name: ParameterConstraints(pooling_factors=[table.pooling], **rules(i, table))
            for i, table in enumerate(self.state.tables)
        }
        return replace(self.loose, constraints=constraints)

    @cached_property
    def least_hbm(self) -> tuple[int, int]:
        """The least HBM for which a plan without UVM kernels was found, and the most without one.

        Found by bisection to 1 %. TorchRec's planner is not monotonous: there may be less HBM for
        which it finds a plan again.
        """
        most, least = 0, self.hbm_only.hbm_bytes
        while least - most > least / 100:
            middle = (most + least) // 2
            if _has_plan(replace(self.hbm_only, hbm_bytes=middle)):
                least = middle
            else:
                most = middle
        return least, most


def plan_case(case: Case, **arguments: Any) -> tuple[Any, Any]:
    """A planner that has planned, and its plan."""
    planner = case.planner(FastPlanner, cache=False, **arguments)
    with quiet():
        plan = planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    return planner, plan


def _has_plan(case: Case) -> bool:
    try:
        plan_case(case)
    except PlannerError:
        return False
    return True


def _loose(setting: Setting) -> Input:
    return Input(case=setting.loose)


def _fixed_hbm(gib: int, setting: Setting) -> Input:
    return Input(case=replace(setting.loose, hbm_bytes=gib * GIB))


def _least_hbm(setting: Setting) -> Input:
    hbm, _ = setting.least_hbm
    return Input(case=replace(setting.hbm_only, hbm_bytes=hbm), note=_gib(hbm))


def _just_too_little(setting: Setting) -> Input:
    _, hbm = setting.least_hbm
    return Input(case=replace(setting.hbm_only, hbm_bytes=hbm), fails=True, note=_gib(hbm))


def _half_of_the_weights(setting: Setting) -> Input:
    """Memory that is clearly too little: all ranks together hold half of the weights."""
    weights = sum(table.rows * table.dim * BYTES_PER_WEIGHT for table in setting.state.tables)
    hbm = weights // setting.state.ranks // 2
    return Input(case=replace(setting.hbm_only, hbm_bytes=hbm), fails=True, note=_gib(hbm))


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"


def _statistics(setting: Setting) -> Input:
    return Input(case=setting.loose, arguments=lambda: {"stats": None}, logs=True)


def _timeout(setting: Setting) -> Input:
    return Input(case=setting.loose, arguments=lambda: {"timeout_seconds": 60})


def _towers(setting: Setting) -> Input:
    configs = setting.loose.module.sparse.embedding_bag_configs()
    towers = [
        EmbeddingTower(
            EmbeddingBagCollection(tables=configs[i : i + TABLES_PER_TOWER], device=META),
            nn.Linear(4, 4, device=META),
        )
        for i in range(0, len(configs), TABLES_PER_TOWER)
    ]
    module = nn.ModuleDict({"towers": EmbeddingTowerCollection(towers)})
    return Input(
        case=replace(setting.loose, module=module), sharder=EmbeddingTowerCollectionSharder
    )


def _distinct(setting: Setting) -> Input:
    """No two tables have the same constraints."""
    tables = len(setting.state.tables)

    def rules(i: int, table: TableSize) -> dict[str, Any]:
        return {
            "num_poolings": [1.0 + i / tables],
            "min_partition": 8 * (1 + i % 8),
            "cache_params": CacheParams(load_factor=0.05 + 0.9 * i / tables),
        }

    return Input(case=setting.constrained(rules))


def _proposer(make: Callable[[], Any], setting: Setting) -> Input:
    return Input(case=setting.loose, arguments=lambda: {"proposer": make()})


def _grid(setting: Setting) -> Input:
    smallest = sorted(setting.state.tables, key=lambda table: table.rows * table.dim)
    chosen = {table.name for table in smallest[:GRID_TABLES]}

    def rules(i: int, table: TableSize) -> dict[str, Any]:
        types = ["row_wise", "table_wise"] if table.name in chosen else ["row_wise"]
        return {"sharding_types": types, "compute_kernels": ["fused"]}

    case = setting.constrained(rules)
    return Input(case=case, arguments=lambda: {"proposer": GridSearchProposer()})


def _scale_up(setting: Setting) -> Input:
    """All tables are cached, with the statistics that the proposer needs to scale caches."""

    def rules(i: int, table: TableSize) -> dict[str, Any]:
        statistics = EmbeddingOffloadStats(
            cacheability=0.1 + 0.8 * i / len(setting.state.tables),
            expected_lookups=max(1, table.rows // 100),
            mrc_hist_counts=torch.tensor([8.0, 5.0, 3.0, 2.0, 1.0]),
            height=table.rows,
        )
        return {
            "compute_kernels": ["fused_uvm_caching"],
            "cache_params": CacheParams(load_factor=0.1, stats=statistics),
        }

    case = setting.constrained(rules)
    return Input(case=case, arguments=lambda: {"proposer": EmbeddingOffloadScaleupProposer()})


def _partitioner(make: Callable[[], Any], setting: Setting) -> Input:
    return Input(case=setting.loose, arguments=lambda: {"partitioner": make()})


def _hit(setting: Setting) -> Input:
    folder = setting.folder / "cache"
    planner = setting.loose.planner(FastPlanner, cache=folder)
    with quiet():
        planner.plan(setting.loose.module, [EmbeddingBagCollectionSharder()])
    return Input(case=setting.loose, arguments=lambda: {"cache": folder}, cache="hit")


def _cold(setting: Setting) -> Input:
    return Input(case=setting.changed)


def _follow_planner(setting: Setting) -> Input:
    # A previous plan is made anew for each run: nothing that an earlier run has read is used again.
    return Input(case=setting.changed, arguments=lambda: {"previous": plan_case(setting.loose)[0]})


def _follow_file(setting: Setting) -> Input:
    numbers = count()

    def arguments() -> dict[str, Any]:
        path = setting.folder / f"previous-{next(numbers)}.json"
        planner, plan = plan_case(setting.loose)
        fastplan.save_plan(plan, path, planner=planner)
        return {"previous": path}

    return Input(case=setting.changed, arguments=arguments)


def _follow_plan(setting: Setting) -> Input:
    return Input(case=setting.changed, arguments=lambda: {"previous": plan_case(setting.loose)[1]})


def _follow_unpickled(setting: Setting) -> Input:
    """A plan that no planner of this process has made."""
    text = pickle.dumps(plan_case(setting.loose)[1])
    return Input(case=setting.changed, arguments=lambda: {"previous": pickle.loads(text)})


class Kind(NamedTuple):
    """A row of the table. `is_for_large` says whether the large size is measured as well."""

    name: str
    make: Callable[[Setting], Input]
    is_for_large: bool = True


LOOSE = "loose"
COLD = "1 % of tables changed: cold"
FOLLOWING = {
    "`previous=` a planner": "1 % of tables changed: previous planner",
    "`previous=` a plan file": "1 % of tables changed: previous plan file",
    "`previous=` a `ShardingPlan`": "1 % of tables changed: previous ShardingPlan",
    "`previous=` an unpickled `ShardingPlan`": "1 % of tables changed: unpickled ShardingPlan",
}
KINDS = (
    Kind(LOOSE, _loose),
    Kind("tight: 12 GiB of HBM", partial(_fixed_hbm, 12)),
    Kind("tight: least HBM without UVM", _least_hbm),
    Kind("infeasible: HBM just below that", _just_too_little),
    Kind("infeasible: HBM for half of the weights", _half_of_the_weights),
    Kind("statistics at INFO", _statistics),
    Kind("timeout_seconds=60", _timeout),
    Kind("towers of 4 tables", _towers),
    Kind("distinct constraints", _distinct),
    Kind("GreedyProposer", partial(_proposer, GreedyProposer)),
    Kind(
        "GreedyProposer(use_depth=False)",
        partial(_proposer, partial(GreedyProposer, use_depth=False)),
    ),
    Kind("UniformProposer", partial(_proposer, UniformProposer)),
    # Row-wise tables of the large size need too much memory for their input and output.
    Kind("GridSearchProposer, 2^13 proposals", _grid, is_for_large=False),
    # It needs gigabytes of memory for the large size.
    Kind(
        "DynamicProgrammingProposer",
        partial(_proposer, DynamicProgrammingProposer),
        is_for_large=False,
    ),
    # It finds no plan for the large size.
    Kind("EmbeddingOffloadScaleupProposer", _scale_up, is_for_large=False),
    Kind("GreedyPerfPartitioner by storage", partial(_partitioner, GreedyPerfPartitioner)),
    Kind(
        "GreedyPerfPartitioner by perf",
        partial(_partitioner, partial(GreedyPerfPartitioner, sort_by=SortBy.PERF)),
    ),
    Kind("MemoryBalancedPartitioner", partial(_partitioner, MemoryBalancedPartitioner)),
    Kind("cache hit from a directory", _hit),
    Kind(COLD, _cold),
    *(
        Kind(name, make)
        for name, make in zip(
            FOLLOWING.values(),
            (_follow_planner, _follow_file, _follow_plan, _follow_unpickled),
            strict=True,
        )
    ),
)
