"""A stored plan for TorchRec's own planner: it is returned instead of searched for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.types import Perf, PlanLoader, Shard, ShardingOption, Storage
from torchrec.distributed.types import ParameterSharding, ShardingPlan

from fastplan.torchrec.plan_files import read_plan_file
from fastplan.torchrec.plan_match import check_module
from fastplan.torchrec.plan_placement import table_shape

# A note of this name in a plan file is the planner's context, which must then be the same.
CONTEXT_NOTE = "planner_context_hash"

_META = torch.device("meta")


class StoredPlanLoader(PlanLoader):
    """Hands a planner a plan that was made before: `plan_loader=StoredPlanLoader("plan.json")`.

    `source` is a plan file, read each time the planner asks, or a plan. The planner enumerates its
    options as always, takes those of the plan and searches nothing: it returns the stored plan,
    with tables in the order of its options. It takes the plan's shards and ranks, and settings from
    its own constraints. An option that these do not allow, or with another cache load factor than
    theirs, is a PlannerError of TorchRec's; tables that the plan lacks it leaves out silently. So
    give the module, too: then its tables must be the plan's, or PlanMismatch says what differs.

    A file saved with `notes={"planner_context_hash": planner.hash_planner_context_inputs_str()}`
    is taken only by a planner with the same context. A plan has no costs and no storage, so
    statistics of a loaded plan show none.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | ShardingPlan,
        module: nn.Module | None = None,
        *,
        sharders: Iterable[Any] | None = None,
    ) -> None:
        self._source = source
        self._module = module
        self._sharders = None if sharders is None else list(sharders)

    def load(self) -> dict[int, ShardingOption]:
        """The plan's options by the hash that TorchRec finds them by."""
        source, plan = self.get_plan_id(), self._read()[0]
        holders: dict[Any, tuple[nn.Module, Any]] = {}
        if self._module is not None:
            holders = check_module(plan, self._module, self._sharders, source)
        options: dict[int, ShardingOption] = {}
        for path, module_plan in plan.plan.items():
            for name, sharding in module_plan.items():
                holder, tensor = holders.get((path, name), (None, None))
                option = _option(path, name, sharding, holder, tensor)
                options[option.storage_hash()] = option
        return options

    def plan_context_hash(self) -> str | None:
        """The context that the plan was made in, if its file has one."""
        return self._read()[1].get(CONTEXT_NOTE)

    def get_plan_id(self) -> str:
        """What messages call the plan: its file."""
        if isinstance(self._source, ShardingPlan):
            return "a stored plan"
        return os.fspath(self._source)

    def _read(self) -> tuple[ShardingPlan, dict[str, str]]:
        if isinstance(self._source, ShardingPlan):
            return self._source, {}
        found = read_plan_file(self._source)
        return found.plan, found.notes


def _option(
    path: str, name: str, sharding: ParameterSharding, holder: nn.Module | None, tensor: Any
) -> ShardingOption:
    """An option with the plan's shards. Without a module it has empty stand-ins for its own."""
    shape = table_shape(sharding.sharding_spec) or (0, 0)
    if tensor is None:
        tensor = torch.empty(shape, device=_META)
    return ShardingOption(
        name=name,
        tensor=tensor,
        module=(path, nn.Module() if holder is None else holder),
        input_lengths=[],
        batch_size=0,
        sharding_type=sharding.sharding_type,
        partition_by=get_partition_by_type(sharding.sharding_type),
        compute_kernel=sharding.compute_kernel,
        shards=_shards(path, name, sharding, list(tensor.shape)),
        cache_params=sharding.cache_params,
        enforce_hbm=sharding.enforce_hbm,
        stochastic_rounding=sharding.stochastic_rounding,
        bounds_check_mode=sharding.bounds_check_mode,
        is_pooled=None if holder is not None else True,
        output_dtype=sharding.output_dtype,
        key_value_params=sharding.key_value_params,
    )


def _shards(path: str, name: str, sharding: ParameterSharding, shape: list[int]) -> list[Shard]:
    spec, ranks = sharding.sharding_spec, sharding.ranks
    if ranks is None or (spec is not None and len(spec.shards) != len(ranks)):
        raise ValueError(
            f"table {path}.{name}: the stored plan must have a rank for each shard to be loaded "
            "into TorchRec's planner"
        )
    cuts = (
        [([0] * len(shape), shape)] * len(ranks)
        if spec is None
        else [(shard.shard_offsets, shard.shard_sizes) for shard in spec.shards]
    )
    return [
        Shard(
            size=list(size),
            offset=list(offset),
            storage=Storage(hbm=0, ddr=0),
            perf=Perf(fwd_compute=0.0, fwd_comms=0.0, bwd_compute=0.0, bwd_comms=0.0),
            rank=rank,
        )
        for (offset, size), rank in zip(cuts, ranks, strict=True)
    ]
