"""Hardware that differs from TorchRec's in numbers only is asked once, and planned natively."""

from collections import Counter
from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.estimator import EmbeddingPerfEstimatorFactory
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

from .compare import outcome
from .components import SteppedBandwidth, TunedPerfConfig
from .custom import OwnFormulaConfig, PenalisingConfig
from .instances import Built
from .small import assert_agree, assert_engine, small, small_constraints, small_topology
from .subject import ESTIMATES_NATIVELY, SELF_CHECK, FastPlanner

ASKED: Counter[Any] = Counter()


class Numbers(TunedPerfConfig):
    """Weights and bandwidths of its own, and no formula."""

    def get_device_bw(self, compute_device: str, compute_kernel: str, *rest: Any) -> float | None:
        ASKED[("bandwidth", compute_kernel, *rest[4:])] += 1
        found = super().get_device_bw(compute_device, compute_kernel, *rest)
        return None if found is None else found * 0.9

    def get_coefficients_for_sharding(self, sharding_type: str, compute_kernel: str) -> Any:
        ASKED["coefficients", sharding_type, compute_kernel] += 1
        return super().get_coefficients_for_sharding(sharding_type, compute_kernel)


class Measured(SteppedBandwidth):
    """Bandwidths that depend on the collective and on how many take part."""

    def get_bw(self, local_world_size: int, world_size: int, collective_type: Any) -> float:
        ASKED["collective", local_world_size, world_size, collective_type] += 1
        return super().get_bw(local_world_size, world_size, collective_type)


def built(config: Any = None, **topology_arguments: Any) -> Built:
    topology = small_topology(**topology_arguments)
    # Different menus: what tables share must not be asked for each of them.
    constraints = small_constraints()
    constraints["table_1"].sharding_types = ["row_wise", "table_wise"]
    constraints["table_2"].compute_kernels = ["fused", "fused_uvm"]
    perf = EmbeddingPerfEstimatorFactory.create(
        "fastplan_test_numbers" if config is None else config,
        topology=topology,
        constraints=constraints,
    )
    estimators = [perf, EmbeddingStorageEstimator(topology, constraints)]
    enumerator = EmbeddingEnumerator(topology, 512, constraints, estimators)
    return small(topology=topology, constraints=constraints, enumerator=enumerator)


@pytest.fixture
def registry() -> Any:
    register = EmbeddingPerfEstimatorFactory.register
    register("fastplan_test_numbers")(Numbers)
    register("fastplan_test_formula")(OwnFormulaConfig)
    register("fastplan_test_post_processing")(PenalisingConfig)


def test_numbers_of_the_registry_and_of_a_topology_run_natively_and_are_asked_once(
    registry: Any,
) -> None:
    ASKED.clear()
    _, planner = assert_agree(built, generalized_comms_bandwidths=Measured())
    assert_engine(planner, "native")
    if SELF_CHECK or not ESTIMATES_NATIVELY:
        return
    asked_by_torchrec = set(ASKED)
    ASKED.clear()
    outcome(FastPlanner, built(generalized_comms_bandwidths=Measured()))
    assert set(ASKED) <= asked_by_torchrec
    assert {kind for kind, *_ in ASKED} == {"bandwidth", "coefficients", "collective"}
    assert set(ASKED.values()) == {1}


@pytest.mark.parametrize(
    ("name", "method"), [("formula", "forward"), ("post_processing", "post_process_perfs")]
)
def test_formulas_go_to_python_and_the_reason_says_which(
    registry: Any, name: str, method: str
) -> None:
    _, planner = assert_agree(built, config=f"fastplan_test_{name}")
    assert_engine(planner, "mixed")
    if not SELF_CHECK and ESTIMATES_NATIVELY:
        assert f"has its own `{method}`" in planner.last_run.reason
