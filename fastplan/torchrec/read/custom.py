"""Custom costs and objectives as TorchRec estimators and perf models.

One definition then works in both planners. TorchRec's planner calls it for every option; fastplan's
planner passes the function to the core.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from torchrec.distributed.planner import shard_estimators
from torchrec.distributed.planner.constants import UVM_CACHING_RATIO
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    PerfModel,
    ShardEstimator,
    ShardingOption,
    Topology,
)

from fastplan.costs.errors import CostError
from fastplan.costs.functions import PlanObjective, ShardCost
from fastplan.engine import _native
from fastplan.model.request import Pricing
from fastplan.model.vocabulary import KERNEL_INDEX, SHARDING_TYPE_INDEX
from fastplan.torchrec.compat import NotNative
from fastplan.torchrec.differences.estimates import SHARDER_ARGUMENT, ShardPerfContext
from fastplan.torchrec.differences.group_size import group_size
from fastplan.torchrec.read.costs import Estimators, is_stock_perf_estimator, stock_estimator

_NAN = float("nan")


def cost_estimators(
    cost: ShardCost,
    topology: Topology,
    constraints: dict[str, ParameterConstraints] | None = None,
) -> list[ShardEstimator]:
    """Returns the estimators for an enumerator: TorchRec's two, followed by the cost.

    Args:
        cost: a function with @fastplan.shard_cost.
        topology: the planner's, as for TorchRec's own estimators.
        constraints: the planner's.

    Raises:
        TypeError: `cost` is not such a function.
    """
    perf = shard_estimators.EmbeddingPerfEstimator(topology, constraints)
    storage = shard_estimators.EmbeddingStorageEstimator(topology, constraints)
    return [perf, storage, CostEstimator(cost, topology, constraints, perf=perf)]


class CostEstimator(ShardEstimator):
    """A cost as a TorchRec estimator. It must come last, because it reads the other estimates.

    Args:
        cost: a function with @fastplan.shard_cost.
        topology: the planner's.
        constraints: the planner's.
        perf: TorchRec's perf estimator among the others; by default one of this topology and these
            constraints. If it is not of TorchRec's own class, `estimate` raises CostError.

    Raises:
        TypeError: `cost` is not such a function.
    """

    def __init__(
        self,
        cost: ShardCost,
        topology: Topology,
        constraints: dict[str, ParameterConstraints] | None = None,
        *,
        perf: Any = None,
    ) -> None:
        if not isinstance(cost, ShardCost):
            raise TypeError(f"`cost` must be a function with @fastplan.shard_cost, not {cost!r}")
        self.cost = cost
        self.perf = perf or shard_estimators.EmbeddingPerfEstimator(topology, constraints)

    def estimate(self, sharding_options: list[ShardingOption], sharder_data_map: Any) -> None:
        """Replaces the perf of the shards with the cost. Raises CostError."""
        reader = _OptionReader(self.perf)
        for option in sharding_options:
            records = reader.records(option, sharder_data_map[option.module_type_key])
            prices = records["stock"].copy()
            priced = self.cost.price(records, prices)
            for number, cost in enumerate(prices):
                parts = {name: float(cost[name]) for name in cost.dtype.names}
                raised = number >= priced
                if raised or not all(0 <= part < np.inf for part in parts.values()):
                    facts = {
                        "raised": raised,
                        "shard": number,
                        "record": records[number : number + 1],
                        "cost": prices[number : number + 1],
                    }
                    raise self.cost.failure(facts, option.name)
                option.shards[number].perf = Perf(**parts)

    def fingerprint(self) -> str:
        """Returns a hash of the cost's code and of its inputs. Raises NoFingerprint."""
        return self.cost.fingerprint()


class _OptionReader:
    """Converts options to the core's records, with the numbers of an estimator."""

    def __init__(self, perf: Any) -> None:
        enumerator = SimpleNamespace(
            _estimators=[perf], _world_size=1, _local_world_size=1, _device_memory_sizes=None
        )
        try:
            self._estimators = Estimators(enumerator)
        except NotNative as why:
            raise CostError(f"a shard_cost needs TorchRec's own perf estimator: {why}") from why
        self._perf = self._estimators.perf
        self._scalars = self._estimators.scalars()

    def records(self, option: ShardingOption, sharder_data: Any) -> Any:
        perf = self._perf
        contexts = ShardPerfContext.build_shard_perf_contexts(
            config=perf._config,
            shard_sizes=[shard.size for shard in option.shards],
            sharding_option=option,
            topology=perf._topology,
            constraints=perf._constraints,
            is_inference=perf._is_inference,
            **{SHARDER_ARGUMENT: sharder_data},
        )
        records = np.zeros(len(contexts), _native.SHARD_DTYPE)
        for record, context, shard in zip(records, contexts, option.shards, strict=True):
            if shard.perf is None or shard.storage is None:
                raise CostError(
                    f"table {option.name} has no perf and storage estimate yet: "
                    "a CostEstimator comes last"
                )
            self._fill(record, option, context)
            record["rows"], record["dim"] = shard.size
            for tier in ("hbm", "ddr", "ssd"):
                record[tier] = getattr(shard.storage, tier)
            for part in _native.COST_DTYPE.names or ():
                record["stock"][part] = getattr(shard.perf, part)
                record["hardware"][part] = math.nan  # costs in Python start from TorchRec's
        return records

    def _fill(self, record: Any, option: ShardingOption, context: Any) -> None:
        """Sets the fields that all shards of an option share."""
        lookups, miss_rate = context.cache_stats_expected_lookups, context.expected_miss_rate
        known = lookups is not None and miss_rate is not None
        inputs = float(context.batch_inputs)
        values = {
            "table_rows": option.tensor.shape[0],
            "table_dim": option.tensor.shape[1],
            "shards": len(option.shards),
            "element_size": context.table_data_type_size,
            "batch": option.batch_size,
            "pooling": inputs / option.batch_size,
            "inputs": inputs,
            "outputs": float(context.batch_outputs),
            "world_size": context.world_size,
            "local_world_size": context.local_world_size,
            "group_size": group_size(self._perf._topology),
            "cache_ratio": context.caching_ratio or UVM_CACHING_RATIO,
            "expected_lookups": lookups if known else _NAN,
            "miss_rate": miss_rate if known else _NAN,
            "fwd_a2a": context.fwd_a2a_comm_data_type_size,
            "bwd_a2a": context.bwd_a2a_comm_data_type_size,
            "fwd_sr": context.fwd_sr_comm_data_type_size,
            "bwd_sr": context.bwd_sr_comm_data_type_size,
            "sharding_type": SHARDING_TYPE_INDEX[option.sharding_type],
            "kernel": KERNEL_INDEX[option.compute_kernel],
            "pooled": context.is_pooled,
            "weighted": context.is_weighted,
        }
        for name, value in values.items():
            record[name] = value
        for name, value in self._scalars["bandwidths"].items():
            record["bandwidths"][name] = value
        record["bandwidths"]["memory"] = context.device_bw
        model = record["model"]
        for name, value in self._scalars["model"].items():
            model[name] = value
        estimators = self._estimators
        number = estimators.coefficients_of(option.sharding_type, option.compute_kernel)
        weights = estimators.coefficients[number]
        model["fwd"], model["has_bwd"] = weights.fwd, weights.bwd is not None
        if weights.bwd is not None:
            model["bwd"] = weights.bwd


class ObjectiveModel(PerfModel):
    """An objective as a TorchRec perf model.

    Args:
        objective: a function with @fastplan.plan_objective.
        topology: the planner's, for ranks and hosts.

    Raises:
        TypeError: `objective` is not such a function.
    """

    def __init__(self, objective: PlanObjective, topology: Topology) -> None:
        if not isinstance(objective, PlanObjective):
            raise TypeError(
                f"`objective` must be a function with @fastplan.plan_objective, not {objective!r}"
            )
        self.objective = objective
        self._topology = topology

    def rate(self, plan: list[ShardingOption]) -> float:
        """Returns the plan's rating. Raises CostError."""
        ranks = np.zeros(self._topology.world_size, _native.RANK_DTYPE)
        ranks["host"] = np.arange(len(ranks)) // self._topology.local_world_size
        for option in plan:
            for shard in option.shards:
                rank: Any = ranks[shard.rank]
                for part in _native.COST_DTYPE.names or ():
                    rank[part] += getattr(shard.perf, part)
                rank["total"] += shard.perf.total
                for tier in ("hbm", "ddr", "ssd"):
                    rank[tier] += getattr(shard.storage, tier)
        return self.objective.rate(ranks)

    def fingerprint(self) -> str:
        """Returns a hash of the objective's code and of its inputs. Raises NoFingerprint."""
        return self.objective.fingerprint()


def use_native_cost(estimators: Estimators, enumerator: Any) -> None:
    """Uses the core for the cost, if the cost comes right after TorchRec's own estimators."""
    if not (estimators.has_perf and estimators.has_storage and len(estimators.custom) == 1):
        return
    [last] = estimators.custom
    if type(last) is not CostEstimator or "estimate" in vars(last):
        return
    if stock_estimator(last.perf) is estimators.perf:
        estimators.custom = []
        batch_size = int(enumerator._batch_size)
        estimators.pricing = Pricing(function=last.cost, batch_size=batch_size)


def install(planner: Any, cost: ShardCost | None, objective: PlanObjective | None) -> None:
    """Attaches custom functions to a planner."""
    if cost is not None:
        if not isinstance(cost, ShardCost):
            raise TypeError(
                f"`shard_cost` must be a function with @fastplan.shard_cost, not {cost!r}"
            )
        add_cost(planner._enumerator, cost, planner._topology)
    if objective is not None:
        planner._perf_model = ObjectiveModel(objective, planner._topology)


def add_cost(enumerator: Any, cost: ShardCost, topology: Topology) -> None:
    """Appends the cost to an enumerator's estimators. Raises TypeError and ValueError."""
    estimators = getattr(enumerator, "_estimators", None)
    if not isinstance(estimators, list):
        raise TypeError(
            "`shard_cost` needs an enumerator with estimators, as TorchRec's EmbeddingEnumerator; "
            f"pass the cost to {type(enumerator).__name__} as a fastplan.CostEstimator"
        )
    known = [part for part in estimators if isinstance(part, CostEstimator)]
    if known and known[-1] is estimators[-1] and known[-1].cost is cost:
        return
    if known:
        raise ValueError(f"the enumerator already has a cost, {known[-1].cost.name}")
    perf = next((p for p in estimators if is_stock_perf_estimator(p)), None)
    constraints = getattr(enumerator, "_constraints", None)
    made = CostEstimator(cost, topology, constraints, perf=perf)
    enumerator._estimators = [*estimators, made]
