"""What a planner was given changes between two plans: the second plan goes by what is there now."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import (
    EmbeddingPerfEstimatorConfig,
    EmbeddingPerfEstimatorFactory,
    HardwarePerfConfig,
    PerfCoefficient,
    forward_compute,
    fwd_coefficient,
)
from torchrec.distributed.planner.estimator.types import (
    EstimatorPerfCoefficients,
    PerfCoefficientConfig,
)
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
)
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingOffloadStats,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheParams

from fastplan.engine.solve import OutOfRange
from fastplan.torchrec.search import scaleup

from .compare import assert_same, run
from .reuse import left_behind
from .small import MIB, assert_engine, small, small_constraints, small_model, small_topology
from .subject import ESTIMATES_NATIVELY, SELF_CHECK, FastPlanner, TorchRecPlanner

CHEAP, EXPENSIVE = PerfCoefficient(0.1, 0.1, 0.1, 0.0), PerfCoefficient(40.0, 40.0, 40.0, 0.001)


def make_config_class() -> type:
    """A class of its own for each planner: tests change it."""

    class Config(EmbeddingPerfEstimatorConfig):
        coefficients = PerfCoefficientConfig(
            table_wise=EstimatorPerfCoefficients(fwd=CHEAP),
            row_wise=EstimatorPerfCoefficients(fwd=PerfCoefficient()),
        )

    return Config


def planner_with(planner_class: type, config: Any) -> Any:
    topology, constraints = small_topology(), small_constraints()
    perf = EmbeddingPerfEstimatorFactory.create_with_config(
        config, topology=topology, constraints=constraints
    )
    storage = EmbeddingStorageEstimator(topology, constraints)
    enumerator = EmbeddingEnumerator(topology, 512, constraints, [perf, storage])
    built = small(topology=topology, constraints=constraints, enumerator=enumerator)
    return planner_class(**built.planner_kwargs)


def assert_noticed(make: Callable[[], type], change: Callable[[type], None]) -> None:
    """Both planners plan, everything changes, and both plan again, with another result."""
    sharders = small().sharders
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        config_class = make()
        planner = planner_with(planner_class, config_class())
        first = run(planner, small_model(), sharders)
        change(config_class)
        records.append((first, run(planner, small_model(), sharders)))
        later = planner_with(planner_class, config_class())
        records[-1] += (run(later, small_model(), sharders),)
    for expected, actual in zip(*records, strict=True):
        assert_same(expected, actual)
    assert records[0][0]["search_space"] != records[0][1]["search_space"]
    assert_engine(planner, "native")


def made_at(addresses: set[int], make: Callable[[], Any]) -> Any:
    """Makes objects until one lies where another was; the last one if none does."""
    others = []
    for _ in range(500):
        made = make()
        if id(made) in addresses:
            break
        others.append(made)
    return made


def replace_with_a_reused_id(config_class: type) -> None:
    """Frees coefficients and makes others that lie where those were."""
    coefficients = config_class.coefficients
    before = id(coefficients.table_wise)
    coefficients.table_wise = None
    coefficients.table_wise = made_at({before}, lambda: EstimatorPerfCoefficients(fwd=EXPENSIVE))


def test_coefficients_replaced_by_others_at_the_same_address() -> None:
    assert_noticed(make_config_class, replace_with_a_reused_id)


def make_config_class_with_own_coefficients() -> type:
    config_class = make_config_class()
    own = PerfCoefficient(0.1, 0.1, 0.1, 0.0)
    config_class.coefficients.table_wise = EstimatorPerfCoefficients(fwd=own)
    return config_class


def test_a_coefficient_changed_inside() -> None:
    def change(config_class: type) -> None:
        fwd = config_class.coefficients.table_wise.fwd
        object.__setattr__(fwd, "lookup_size_multiplier", 50.0)

    assert_noticed(make_config_class_with_own_coefficients, change)


def test_coefficients_by_kernel_that_are_added() -> None:
    def change(config_class: type) -> None:
        pair = ("table_wise", "fused")
        config_class.coefficients.by_kernel[pair] = EstimatorPerfCoefficients(fwd=EXPENSIVE)

    assert_noticed(make_config_class, change)


def test_coefficients_of_a_base_class() -> None:
    def make() -> type:
        return type("Derived", (make_config_class(),), {})

    assert_noticed(make, lambda config_class: replace_with_a_reused_id(config_class.__mro__[1]))


def test_an_annotated_method_that_answers_otherwise() -> None:
    def make() -> type:
        class Annotated(HardwarePerfConfig):
            @fwd_coefficient()
            def forward(self) -> PerfCoefficient:
                return COEFFICIENTS[type(self)]

        COEFFICIENTS[Annotated] = CHEAP
        return Annotated

    assert_noticed(make, lambda config_class: COEFFICIENTS.update({config_class: EXPENSIVE}))


COEFFICIENTS: dict[type, PerfCoefficient] = {}


def test_a_method_that_is_annotated_later() -> None:
    def make() -> type:
        class Plain(EmbeddingPerfEstimatorConfig):
            def compute(self, context: Any) -> float:
                return 7.5

        return Plain

    sharders, records = small().sharders, []
    for planner_class in (TorchRecPlanner, FastPlanner):
        config_class = make()
        planner = planner_with(planner_class, config_class())
        run(planner, small_model(), sharders)
        forward_compute(config_class.compute)
        records.append(run(planner, small_model(), sharders))
    assert_same(*records)
    assert_engine(planner, "mixed")


class OnDemand(Mapping):
    """Constraints that are made when they are asked for, where others have been."""

    def __init__(self, count: int, make: Callable[[int], ParameterConstraints]) -> None:
        self._count = count
        self._make = make
        self._addresses: set[int] = set()

    def __getitem__(self, name: str) -> ParameterConstraints:
        number = int(name.removeprefix("table_"))
        made = made_at(self._addresses, lambda: self._make(number))
        self._addresses.add(id(made))
        return made

    def __iter__(self) -> Any:
        return iter(f"table_{i}" for i in range(self._count))

    def __len__(self) -> int:
        return self._count


def made_of_number(i: int) -> ParameterConstraints:
    return ParameterConstraints(
        pooling_factors=[3.5 * (i + 1) ** 2], min_partition=32 * (1 + i % 2)
    )


SHARED = ParameterConstraints()
STATS = EmbeddingOffloadStats(
    cacheability=0.4,
    expected_lookups=3000,
    mrc_hist_counts=torch.tensor([5.0, 4.0, 3.0, 1.0]),
    height=40_000,
)


def written_on_one_object(i: int) -> ParameterConstraints:
    SHARED.pooling_factors = [3.5 * (i + 1) ** 2]
    SHARED.sharding_types = [["table_wise"], ["row_wise"]][i % 2]
    return SHARED


@pytest.mark.parametrize("make", [made_of_number, written_on_one_object])
def test_constraints_that_are_made_on_demand(make: Any) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(count=12, constraints=OnDemand(12, make))
        planner = planner_class(**built.planner_kwargs)
        records.append(run(planner, built.module, built.sharders))
    assert_same(*records)
    assert_engine(planner, "native")


def widen_bandwidths(planner: Any) -> None:
    planner._topology._ddr_mem_bw, planner._topology._hbm_mem_bw = 1e5, 1e6


def halve_capacities(planner: Any) -> None:
    for device in planner._topology.devices:
        device.storage.hbm //= 2


def set_batch_sizes(planner: Any) -> None:
    planner._constraints["table_1"].batch_sizes = [4000]


def set_a_flag(planner: Any) -> None:
    planner._constraints["table_1"].enforce_hbm = True


def set_batch_size(planner: Any) -> None:
    planner._enumerator._batch_size = 33


def set_bandwidth_of_another_kernel(planner: Any) -> None:
    planner._enumerator._estimators[0]._config.kernel_device_bandwidths = {("cuda", "fused"): 1e6}


@pytest.mark.parametrize(
    "change",
    [
        widen_bandwidths,
        halve_capacities,
        set_batch_sizes,
        set_a_flag,
        set_batch_size,
        set_bandwidth_of_another_kernel,
    ],
)
@pytest.mark.parametrize("is_read", [True, False])
def test_scale_up_estimates_a_remembered_search_space_as_it_is_now(
    change: Callable[[Any], None], is_read: bool
) -> None:
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(
            topology=small_topology(hbm=64 * MIB),
            constraints=small_constraints(
                sharding_types=["table_wise"],
                compute_kernels=["fused_uvm_caching"],
                cache_params=CacheParams(load_factor=0.1, stats=STATS),
            ),
            proposer=EmbeddingOffloadScaleupProposer(),
            storage_reservation=FixedPercentageStorageReservation(0.0),
        )
        planner = planner_class(**built.planner_kwargs)
        planner.plan(built.module, built.sharders)
        if is_read:
            assert planner._enumerator.last_stored_search_space
        change(planner)
        planner._proposers = [EmbeddingOffloadScaleupProposer()]
        records.append(run(planner, built.module, built.sharders))
    assert_same(*records)


@pytest.mark.skipif(not ESTIMATES_NATIVELY, reason="TorchRec's own code estimates")
@pytest.mark.skipif(SELF_CHECK, reason="TorchRec does not fall back")
@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_torchrec_is_handed_proposers_as_they_were(
    calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core refuses an estimate in the middle of a search; TorchRec then searches."""
    left = iter(range(calls))
    estimate = scaleup.estimate

    def refusing(request: Any) -> Any:
        if next(left, None) is None:
            raise OutOfRange("too large")
        return estimate(request)

    monkeypatch.setattr(scaleup, "estimate", refusing)
    records = []
    for planner_class in (TorchRecPlanner, FastPlanner):
        built = small(
            topology=small_topology(hbm=64 * MIB),
            constraints=small_constraints(
                compute_kernels=["fused", "fused_uvm_caching"],
                cache_params=CacheParams(load_factor=0.1, stats=STATS),
            ),
            proposer=[
                DynamicProgrammingProposer(10),
                GreedyProposer(threshold=3),
                EmbeddingOffloadScaleupProposer(),
            ],
            storage_reservation=FixedPercentageStorageReservation(0.0),
        )
        planner = planner_class(**built.planner_kwargs)
        record = run(planner, built.module, built.sharders)
        records.append({**record, **left_behind(planner)})
    assert_same(*records)
    assert planner.last_run.engine == "torchrec"
