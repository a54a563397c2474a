"""One cost and one objective, in TorchRec's planner and in fastplan's: the same plan, natively."""

from typing import Any

import pytest
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import UniformProposer

import fastplan

from .compare import assert_same, outcome
from .custom import ListeningProposer, ReversingPartitioner, RowCountEstimator
from .functions import assert_agree
from .instances import Built, make_instance
from .small import MIB, assert_engine, small, small_constraints, small_topology
from .subject import ESTIMATES_NATIVELY, SELF_CHECK, FastPlanner

pytestmark = pytest.mark.skipif(SELF_CHECK, reason="TorchRec's planner has no such arguments")


@fastplan.shard_cost
def every_field(shard: Any, out: Any) -> None:
    """Reads all that there is, so that a field which the two planners fill differently shows."""
    facts = shard.rows + 2.0 * shard.dim + 3.0 * shard.table_rows + 5.0 * shard.table_dim
    facts += 7.0 * shard.shards + 11.0 * shard.element_size + 13.0 * shard.batch
    facts += shard.pooling + shard.inputs + 17.0 * shard.outputs + 19.0 * shard.cache_ratio
    facts += 23.0 * shard.world_size + 29.0 * shard.local_world_size + 31.0 * shard.group_size
    facts += shard.fwd_a2a + 2.0 * shard.bwd_a2a + 3.0 * shard.fwd_sr + 5.0 * shard.bwd_sr
    facts += 37.0 * shard.sharding_type + 41.0 * shard.kernel
    if shard.pooled:
        facts += 0.5
    if shard.weighted:
        facts += 0.25
    if shard.miss_rate == shard.miss_rate:
        facts += shard.miss_rate + shard.expected_lookups
    wires = shard.bandwidths
    speeds = wires.memory + wires.all_to_all + 2 * wires.reduce_scatter + 3 * wires.all_gather
    speeds += 5 * wires.all_reduce + 7 * wires.group_reduce_scatter + 11 * wires.group_all_gather
    speeds += 13 * wires.across_all_to_all + 17 * wires.hbm_to_ddr
    model = shard.model
    weights = model.bwd_compute_multiplier + 2.0 * model.weighted_bwd_multiplier
    weights += 3.0 * model.weighted_kernel_multiplier + 5.0 * model.input_element_size
    for i in range(4):
        weights += (i + 1) * model.fwd[i]
        if model.has_bwd:
            weights += (i + 5) * model.bwd[i]
    for i in range(3):
        weights += (i + 9) * model.prefetch[i]
    flags = model.inference + 2 * model.min_dim_table_wise + 4 * model.block_penalty_table_wise
    flags += 8 * model.block_penalty_other + 16 * model.input_read_in_bytes
    flags += 32 * model.fetches_from_batch_inputs + 64 * model.linear_prefetch
    out.fwd_compute = shard.stock.fwd_compute + 1e-9 * facts
    out.fwd_comms = shard.stock.fwd_comms * 1.5 + 1e-14 * speeds
    out.bwd_compute = shard.stock.bwd_compute + 1e-6 * weights + 1e-7 * flags
    out.bwd_comms = shard.stock.bwd_comms + 1e-15 * (shard.hbm + 2.0 * shard.ddr + 3.0 * shard.ssd)


@fastplan.plan_objective
def every_column(ranks: Any, out: Any) -> None:
    compute = (ranks.fwd_compute + ranks.bwd_compute + 2.0 * ranks.prefetch_compute).max()
    comms = (ranks.fwd_comms + ranks.bwd_comms + ranks.input_dist_comms).max()
    memory = 0.0
    for i in range(len(ranks)):
        memory += 1e-15 * (ranks[i].hbm + 2.0 * ranks[i].ddr + ranks[i].ssd) * (1 + ranks[i].host)
    out.rating = compute + comms + memory + 0.125 * ranks.total.max()


def with_functions(built: Built, **functions: Any) -> Built:
    built.planner_kwargs.update(functions)
    return built


FUNCTIONS = {"shard_cost": every_field, "objective": every_column}


# A model of every family, but for those that take TorchRec longer than all others together.
@pytest.mark.parametrize("seed", [*sorted({*range(34)} - {0, 8, 26, 30, 31}), 34])
def test_random_models_are_planned_alike(seed: int) -> None:
    assert_agree(lambda: with_functions(make_instance(seed).build(), **FUNCTIONS), "native")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_alone_is_planned_alike(name: str) -> None:
    tight = {"topology": small_topology(hbm=24 * MIB), "constraints": small_constraints()}
    assert_agree(lambda: small(count=3, **tight, **{name: FUNCTIONS[name]}), "native")


def test_the_parts_of_torchrecs_kinds_run_natively_too() -> None:
    topology, constraints = small_topology(), small_constraints()
    estimators = fastplan.cost_estimators(every_field, topology, constraints)
    enumerator = EmbeddingEnumerator(topology, 512, constraints, estimators)
    model = fastplan.ObjectiveModel(every_column, topology)
    by_parts, by_arguments = (
        outcome(FastPlanner, small(topology=topology, constraints=constraints, **arguments))
        for arguments in (
            {"enumerator": enumerator, "performance_model": model},
            {"shard_cost": every_field, "objective": every_column},
        )
    )
    assert_same(by_parts[0], by_arguments[0])
    assert_engine(by_parts[1], "native")


def test_custom_proposers_and_partitioners_are_rated_by_the_objective() -> None:
    def build() -> Built:
        proposers = [UniformProposer(), ListeningProposer()]
        return small(count=2, proposer=proposers, **FUNCTIONS)

    assert "is a custom proposer" in assert_agree(build, "mixed").last_run.reason
    partitioned = {"partitioner": ReversingPartitioner(), "proposer": UniformProposer()}
    assert_agree(lambda: small(**partitioned, **FUNCTIONS), "mixed")


def test_a_cost_has_the_last_word_after_an_estimator_in_python() -> None:
    def build() -> Built:
        from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator

        topology = small_topology()
        estimators = [RowCountEstimator(topology), EmbeddingStorageEstimator(topology)]
        enumerator = EmbeddingEnumerator(topology, 512, None, estimators)
        arguments = {"topology": topology, "enumerator": enumerator, "proposer": UniformProposer()}
        return small(**arguments, shard_cost=every_field)

    planner = assert_agree(build, "mixed")
    assert not ESTIMATES_NATIVELY or "RowCountEstimator" in planner.last_run.reason


def test_scaleup_is_rated_by_the_objective() -> None:
    from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer
    from torchrec.distributed.types import CacheParams

    def build() -> Built:
        rules = small_constraints(
            sharding_types=["table_wise"],
            compute_kernels=["fused_uvm_caching"],
            cache_params=CacheParams(load_factor=0.2),
        )
        proposer = EmbeddingOffloadScaleupProposer()
        return small(constraints=rules, proposer=proposer, **FUNCTIONS)

    assert_agree(build, "native")
