"""What users change between two plans, in place: each change is drawn, and made on both sides."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import nn
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    EmbeddingPerfEstimatorFactory,
    HardwarePerfConfig,
    PerfCoefficient,
    fwd_coefficient,
)
from torchrec.distributed.planner.estimator.types import (
    EstimatorPerfCoefficients,
    PerfCoefficientConfig,
)
from torchrec.distributed.planner.types import ParameterConstraints

from . import components as parts
from .draw import Draw
from .meddlers import Penaliser, Reverser


@dataclass
class Side:
    """One planner with all that it was given, to be changed as the other side's is."""

    planners: list[Any]  # the second shares parts with the first
    module: nn.Module
    sharders: list[Any]
    rebuild: Callable[[], nn.Module]  # an equal module
    constraints: dict[str, ParameterConstraints]  # where those on demand are made of

    @property
    def planner(self) -> Any:
        return self.planners[0]

    @property
    def config(self) -> Any:
        """The hardware configuration of the perf estimator; None for a custom one."""
        return config_of(self.planner)


def config_of(planner: Any) -> Any:
    perf = getattr(planner._enumerator, "_estimators", [None])[0]
    return getattr(getattr(perf, "_estimator", perf), "_config", None)


class OnDemand(Mapping):
    """Constraints that are made anew whenever somebody asks."""

    def __init__(self, source: dict[str, ParameterConstraints]) -> None:
        self._source = source

    def __getitem__(self, name: str) -> ParameterConstraints:
        return copy.deepcopy(self._source[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)


def coefficient(draw: Draw) -> PerfCoefficient:
    return PerfCoefficient(*(draw.magnitude(0.05, 20) for _ in range(3)), draw.pick([0.0, 1e-3]))


def coefficients(draw: Draw) -> EstimatorPerfCoefficients:
    backward = coefficient(draw) if draw.chance(0.4) else None
    return EstimatorPerfCoefficients(fwd=coefficient(draw), bwd=backward)


SHARDED_BY = ["table_wise", "row_wise", "table_row_wise", "data_parallel", "column_wise"]


def make_config(draw: Draw) -> HardwarePerfConfig:
    """A configuration of a class of its own, so that one side's changes stay there."""
    if draw.chance(0.3):

        class Annotated(HardwarePerfConfig):
            answers = coefficient(draw)
            kernel_device_bandwidths: ClassVar = {}

            @fwd_coefficient(sharding_type=draw.pick([None, ["table_wise", "row_wise"]]))
            def forward(self) -> PerfCoefficient:
                return self.answers

        return Annotated()

    class Configured(EmbeddingPerfEstimatorConfig):
        coefficients = PerfCoefficientConfig(
            **{name: coefficients(draw) for name in draw.subset(SHARDED_BY)}
        )
        kernel_device_bandwidths: ClassVar = {}

    return type("Derived", (Configured,), {})() if draw.chance(0.3) else Configured()


def estimator(config: Any, topology: Any, constraints: Any) -> Any:
    return EmbeddingPerfEstimatorFactory.create_with_config(
        config, topology=topology, constraints=constraints
    )


def change_capacity(side: Side, draw: Draw) -> None:
    scale = draw.pick([1e-3, 0.3, 0.7, 1.5, 4.0, 1e3])
    for device in side.planner._topology.devices:
        device.storage.hbm = min(int(device.storage.hbm * scale), 2**50)
        if draw.chance(0.5):
            device.storage.ddr = min(int(device.storage.ddr * scale), 2**50)


def replace_topology(side: Side, draw: Draw) -> None:
    side.planner._topology = copy.deepcopy(side.planner._topology)
    change_capacity(side, draw)


def change_bandwidths(side: Side, draw: Draw) -> None:
    topology = side.planner._topology
    for name in draw.subset(["_hbm_mem_bw", "_ddr_mem_bw", "_hbm_to_ddr_mem_bw", "_ssd_mem_bw"]):
        setattr(topology, name, draw.magnitude(1e5, 1e9))
    for name in draw.subset(["_intra_host_bw", "_inter_host_bw"]):
        if hasattr(topology.comms_bandwidths, name):
            setattr(topology.comms_bandwidths, name, draw.magnitude(1e5, 1e9))
    topology._bwd_compute_multiplier = draw.pick([2, 1.7, 2.5])


def some_rule(side: Side, draw: Draw) -> ParameterConstraints | None:
    names = sorted(side.constraints)
    return side.constraints[draw.pick(names)] if names else None


def factors(draw: Draw, count: int) -> list[Any]:
    kind = draw.pick([float, float, round, np.float64])
    return [kind(draw.magnitude(1, 90)) for _ in range(count)]


def replace_rule(side: Side, draw: Draw) -> None:
    if not side.constraints:
        return
    name = draw.pick(sorted(side.constraints))
    old = side.constraints[name]
    side.constraints[name] = ParameterConstraints(
        pooling_factors=factors(draw, len(old.pooling_factors)),
        sharding_types=draw.pick([None, old.sharding_types, ["table_wise"]]),
        compute_kernels=old.compute_kernels,
        cache_params=draw.pick([None, copy.deepcopy(old.cache_params)]),
        min_partition=draw.pick([None, 32]),
    )


def edit_rule(side: Side, draw: Draw) -> None:
    rule = some_rule(side, draw)
    if rule is None:
        return
    what = draw.pick(["factors", "one factor", "types", "kernels", "cache", "batch", "weights"])
    if what == "factors":
        rule.pooling_factors = factors(draw, len(rule.pooling_factors))
    elif what == "one factor":
        rule.pooling_factors[0] = factors(draw, 1)[0]
    elif what == "types":
        rule.sharding_types = draw.pick([None, ["row_wise"], ["table_wise", "column_wise"]])
    elif what == "kernels":
        rule.compute_kernels = draw.pick([None, ["fused"], ["fused", "fused_uvm_caching"]])
    elif what == "cache" and rule.cache_params is not None:
        rule.cache_params.load_factor = draw.pick([0.07, 0.3, 0.9])
    elif what == "batch":
        rule.batch_sizes = [draw.pick([8, 700]) for _ in rule.pooling_factors]
    else:
        rule.is_weighted = not rule.is_weighted


def drop_rule(side: Side, draw: Draw) -> None:
    if side.constraints:
        del side.constraints[draw.pick(sorted(side.constraints))]


def replace_coefficients(side: Side, draw: Draw) -> None:
    config = side.config
    if config is None:
        return
    if hasattr(type(config), "answers"):
        type(config).answers = coefficient(draw)
        return
    setattr(config.coefficients, draw.pick(SHARDED_BY), coefficients(draw))
    if draw.chance(0.3):
        pair = (draw.pick(SHARDED_BY), "fused")
        config.coefficients.by_kernel[pair] = coefficients(draw)


def edit_coefficients(side: Side, draw: Draw) -> None:
    """Frozen dataclasses, changed all the same."""
    config = side.config
    if config is None:
        return
    if hasattr(type(config), "answers"):
        found = type(config).answers
    else:
        held = getattr(config.coefficients, draw.pick(SHARDED_BY))
        found = held and held.fwd
    if found is not None:
        object.__setattr__(found, "lookup_size_multiplier", draw.magnitude(0.05, 50))


def change_config(side: Side, draw: Draw) -> None:
    config = side.config
    if config is None:
        return
    what = draw.pick(["kernel", "device", "backward", "transfer"])
    if what == "kernel":
        config.kernel_device_bandwidths["cuda", "fused"] = draw.magnitude(1e6, 1e9)
    elif what == "device":
        config.device_bw = draw.pick([None, draw.magnitude(1e6, 1e9)])
    elif what == "backward":
        type(config)._bwd_compute_multiplier = draw.pick([None, 1.25, 3.0])
    else:
        type(config).hbm_to_ddr_mem_bw = draw.magnitude(1e5, 1e8)


def change_batch_size(side: Side, draw: Draw) -> None:
    size = draw.pick([3, 64, 500, 4096])
    side.planner._batch_size = size
    if draw.chance(0.8):
        side.planner._enumerator._batch_size = size


def take_another_module(side: Side, draw: Draw) -> None:
    side.module = side.rebuild()


def take_other_sharders(side: Side, draw: Draw) -> None:
    side.sharders = list(side.sharders)
    if draw.chance(0.5):
        side.sharders = [copy.copy(sharder) for sharder in side.sharders]


def change_fused_params(side: Side, draw: Draw) -> None:
    for sharder in side.sharders:
        params = getattr(sharder, "_fused_params", None)
        if params is not None:
            params["cache_load_factor"] = draw.pick([0.02, 0.6])


def change_proposers(side: Side, draw: Draw) -> None:
    planner = side.planner
    what = draw.pick(["reverse", "static", "dynamic", "scaleup", "threshold", "custom"])
    if what == "reverse":
        planner._proposers.reverse()
    elif what == "custom":
        planner._proposers.append(draw.pick([Penaliser, Reverser])())
    elif what == "threshold":
        for proposer in planner._proposers:
            if hasattr(proposer, "_threshold"):
                proposer._threshold = draw.pick([None, 2, 5])
    else:
        made = parts.make_proposers(draw, what)
        planner._proposers = made if isinstance(made, list) else [made]


def share_parts(side: Side, draw: Draw) -> None:
    """The other planner plans next, with parts of the first one's."""
    one, other = side.planners
    for name in draw.subset(["_enumerator", "_proposers", "_storage_reservation", "_stats"]):
        setattr(other, name, getattr(one, name))
    if draw.chance(0.5):
        other._topology = one._topology
    side.planners.reverse()


def plan_with_the_other(side: Side, draw: Draw) -> None:
    side.planners.reverse()


def change_nothing(side: Side, draw: Draw) -> None:
    pass


CHANGES: list[Callable[[Side, Draw], None]] = [
    change_capacity,
    change_capacity,
    replace_topology,
    change_bandwidths,
    replace_rule,
    edit_rule,
    edit_rule,
    drop_rule,
    replace_coefficients,
    edit_coefficients,
    change_config,
    change_batch_size,
    take_another_module,
    take_another_module,
    take_other_sharders,
    change_fused_params,
    change_proposers,
    share_parts,
    plan_with_the_other,
    change_nothing,
]
