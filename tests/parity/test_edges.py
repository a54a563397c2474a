"""Unusual and impossible input: TorchRec's result where it has one, else its error and text."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
)
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import HeuristicalStorageReservation
from torchrec.distributed.planner.types import CustomTopologyData, ParameterConstraints
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from .draw import Draw
from .instances import Built
from .models import META, MODULES, Table, bag_collection, make_sharder
from .small import (
    MIB,
    assert_agree,
    assert_engine,
    cramped,
    dense_model,
    small,
    small_constraints,
    small_model,
    small_tables,
    small_topology,
)
from .subject import TORCHREC_VERSION


def table(**fields: Any) -> Table:
    return Table(**{"name": "table_0", "rows": 1000, "dim": 64, "features": ("f",), **fields})


def model_of(*tables: Table) -> EmbeddingBagCollection:
    return bag_collection(list(tables))


def rowless() -> EmbeddingBagCollection:
    config = EmbeddingBagConfig(
        name="table_0",
        feature_names=["f"],
        num_embeddings=0,
        embedding_dim=64,
        weight_init_min=-1.0,
        weight_init_max=1.0,
    )
    return EmbeddingBagCollection(tables=[config], device=META)


def two_paths(shared: bool) -> nn.Module:
    first = small_model(2)
    return nn.ModuleDict({"left": first, "right": first if shared else small_model(2)})


def constrained(count: int = 2, **fields: Any) -> Built:
    return small(count=count, constraints=small_constraints(count, **fields))


def validated(topology: Any) -> Built:
    """With TorchRec's estimator that refuses perf values which are negative or not numbers."""
    estimators = [EmbeddingPerfEstimator(topology), EmbeddingStorageEstimator(topology)]
    enumerator = EmbeddingEnumerator(topology, 512, estimator=estimators)
    return small(topology=topology, enumerator=enumerator)


def collisions(buckets_rows: int, ranks: int) -> Built:
    tables = [table(rows=buckets_rows)]
    module = MODULES["collision_bag"](Draw("edges"), tables)
    built = small(module, topology=small_topology(ranks))
    built.sharders[:] = [make_sharder("collision_bag", None, None)]
    return built


def cached(load_factor: float) -> Built:
    return constrained(
        compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=load_factor)
    )


def scaled_up_without_room() -> Built:
    """Two proposers whose failures TorchRec counts and quotes together."""
    constraints = small_constraints(
        2,
        sharding_types=["table_wise", "row_wise"],
        compute_kernels=["fused", "fused_uvm_caching"],
        cache_params=CacheParams(load_factor=0.1),
    )
    proposers = [EmbeddingOffloadScaleupProposer(), GreedyProposer()]
    return small(count=2, constraints=constraints, proposer=proposers, **cramped())


def another_device_group() -> Built:
    constraints = {
        **small_constraints(1),
        "other": ParameterConstraints(device_group="cpu"),
    }
    module = nn.ModuleDict({"here": small_model(1), "there": model_of(table(name="other"))})
    return small(module, constraints=constraints)


def uneven(**caps: list[int]) -> Built:
    return small(topology=small_topology(custom_topology_data=CustomTopologyData(caps, 4)))


PLANNED: dict[str, Callable[[], Built]] = {
    "no-embedding-modules": lambda: small(dense_model()),
    "no-sharders": lambda: Built(small_model(), [], {"topology": small_topology()}, True),
    "collection-without-tables": lambda: small(model_of()),
    "unknown-name-in-constraints": lambda: small(
        constraints={"nobody": ParameterConstraints(sharding_types=["row_wise"])}
    ),
    "empty-constraints": lambda: small(constraints={}),
    "one-rank": lambda: small(topology=small_topology(1)),
    "one-row": lambda: small(model_of(table(rows=1))),
    "fewer-rows-than-ranks": lambda: small(model_of(table(rows=3))),
    "one-column": lambda: small(model_of(table(dim=1))),
    "odd-dimension": lambda: small(model_of(table(dim=130), table(name="b", dim=33))),
    "min-partition-above-dimension": lambda: constrained(min_partition=4096),
    "min-partition-of-one": lambda: constrained(min_partition=1),
    "zero-pooling": lambda: small(
        count=1, constraints={"table_0": ParameterConstraints(pooling_factors=[0.0])}
    ),
    "huge-pooling": lambda: small(
        count=1,
        constraints={"table_0": ParameterConstraints(pooling_factors=[1e13])},
        topology=small_topology(hbm=2**62),
    ),
    "same-table-names-at-two-paths": lambda: small(two_paths(shared=False)),
    "one-module-at-two-paths": lambda: small(two_paths(shared=True)),
    "repeated-kernel-constraint": lambda: constrained(compute_kernels=["fused", "fused"]),
    "repeated-type-constraint": lambda: constrained(
        sharding_types=["table_wise", "table_wise", "row_wise"]
    ),
    "ranks-beyond-whole-hosts": lambda: small(topology=small_topology(5, local_world_size=2)),
    "host-larger-than-world": lambda: small(topology=small_topology(2, local_world_size=8)),
    "infinite-bandwidth": lambda: small(topology=small_topology(hbm_mem_bw=math.inf)),
    "ranks-without-memory": lambda: uneven(hbm_cap=[256 * MIB, 0, 256 * MIB, 0]),
    "float-capacity": lambda: small(topology=small_topology(hbm=256.5 * MIB)),
    "string-kernels": lambda: constrained(compute_kernels=["fused", "no such kernel"]),
}


@pytest.mark.parametrize("name", PLANNED)
def test_unusual_input_is_planned_as_by_torchrec(name: str) -> None:
    record, _ = assert_agree(PLANNED[name])
    assert record["error"] is None


HUGE_ROWS = 2**54


@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("capacity", [2**40, 2**62, 2**63 - 1, 2**70])
def test_sizes_around_the_end_of_64_bits_agree(count: int, capacity: int) -> None:
    tables = [table(name=f"table_{i}", rows=HUGE_ROWS - i, dim=64) for i in range(count)]
    types = ["table_wise", "row_wise", "column_wise"]
    assert_agree(
        lambda: small(
            model_of(*tables),
            topology=small_topology(hbm=capacity, ddr_cap=capacity),
            constraints=small_constraints(count, sharding_types=types),
        )
    )


REFUSED: dict[str, tuple[Callable[[], Built], str]] = {
    "no-rows": (lambda: small(rowless()), "Error"),
    "zero-bandwidth": (
        lambda: small(topology=small_topology(hbm_mem_bw=0.0)),
        "ZeroDivisionError",
    ),
    "negative-bandwidth": (
        lambda: small(topology=small_topology(inter_host_bw=-1e6)),
        "AssertionError",
    ),
    "nan-bandwidth": (
        lambda: small(topology=small_topology(hbm_mem_bw=math.nan)),
        "AssertionError",
    ),
    "rating-above-every-limit": (
        lambda: small(topology=small_topology(inter_host_bw=1e-300)),
        "PlannerError",
    ),
    "nan-rating": (
        lambda: small(topology=small_topology(bwd_compute_multiplier=math.nan)),
        "PlannerError",
    ),
    "nan-perf-validated": (
        lambda: validated(small_topology(bwd_compute_multiplier=math.nan)),
        "AssertionError",
    ),
    "negative-perf-validated": (
        lambda: validated(small_topology(bwd_compute_multiplier=-2.0)),
        "AssertionError",
    ),
    "infinite-pooling": (
        lambda: small(
            count=1, constraints={"table_0": ParameterConstraints(pooling_factors=[math.inf])}
        ),
        "OverflowError",
    ),
    "nan-pooling": (
        lambda: small(
            count=1, constraints={"table_0": ParameterConstraints(pooling_factors=[math.nan])}
        ),
        "ValueError",
    ),
    "negative-pooling": (
        lambda: small(
            count=1, constraints={"table_0": ParameterConstraints(pooling_factors=[-2.0])}
        ),
        "AssertionError",
    ),
    "too-few-poolings": (
        lambda: small(
            count=1,
            constraints={
                "table_0": ParameterConstraints(pooling_factors=[1.0, 2.0], num_poolings=[1.0])
            },
        ),
        "AssertionError",
    ),
    "too-few-batch-sizes": (
        lambda: small(
            count=1,
            constraints={
                "table_0": ParameterConstraints(pooling_factors=[1.0, 2.0], batch_sizes=[64])
            },
        ),
        "AssertionError",
    ),
    "unknown-sharding-type": (
        lambda: constrained(sharding_types=["no such type"]),
        "RuntimeError",
    ),
    "unknown-kernel": (lambda: constrained(compute_kernels=["no such kernel"]), "RuntimeError"),
    "kernel-of-another-sharder": (lambda: constrained(compute_kernels=["quant"]), "RuntimeError"),
    "key-value-without-ssd": (
        lambda: small(
            topology=small_topology(ssd_cap=0),
            constraints=small_constraints(compute_kernels=["key_value"]),
        ),
        "RuntimeError",
    ),
    "indivisible-buckets": (
        lambda: small(model_of(table(rows=1001, buckets=10))),
        "AssertionError",
    ),
    "fewer-buckets-than-ranks": (lambda: small(model_of(table(buckets=2))), "ValueError"),
    "uneven-collision-buckets": (lambda: collisions(9600, 7), "ValueError"),
    "full-cache": (lambda: cached(1.0), "PlannerError"),
    "overfull-cache": (lambda: cached(1.5), "PlannerError"),
    "negative-cache": (lambda: cached(-0.25), "AssertionError"),
    "module-of-another-device-group": (another_device_group, "PlannerError"),
    "no-memory": (lambda: small(topology=small_topology(hbm=0)), "PlannerError"),
    "too-little-memory": (lambda: small(**cramped()), "PlannerError"),
    "too-little-memory-for-one-table": (lambda: small(count=1, **cramped()), "PlannerError"),
    "too-little-memory-for-scaling-up": (scaled_up_without_room, "PlannerError"),
    "rank-too-small-for-any-row-wise-shard": (
        lambda: small(
            topology=small_topology(
                custom_topology_data=CustomTopologyData({"ddr_cap": [0, 1, 2, 3]}, 4)
            ),
            constraints=small_constraints(
                sharding_types=["row_wise"], compute_kernels=["fused_uvm"]
            ),
        ),
        "PlannerError",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_input_raises_torchrecs_error(name: str) -> None:
    build, error = REFUSED[name]
    record, _ = assert_agree(build)
    if TORCHREC_VERSION < (1, 8):
        return  # TorchRec accepted some of it before, or refused it otherwise
    assert record["error"] is not None
    assert record["error"]["class"].endswith(error)


def test_planner_recovers_after_an_error() -> None:
    def build() -> Built:
        return small(topology=small_topology(hbm=24 * MIB), count=5)

    record, planner = assert_agree(build)
    assert record["error"] is None
    assert_engine(planner, "native")


def test_ranks_with_less_memory_than_is_reserved_take_no_room_from_others() -> None:
    """All ranks together have less than the tables need, and two of them have enough."""

    def build() -> Built:
        capacities = CustomTopologyData({"hbm_cap": [70 * MIB, 5 * MIB] * 2}, 4)
        return small(
            topology=small_topology(custom_topology_data=capacities),
            constraints=small_constraints(sharding_types=["table_wise"], compute_kernels=["fused"]),
            storage_reservation=HeuristicalStorageReservation(0.0, dense_tensor_estimate=40 * MIB),
        )

    record, planner = assert_agree(build)
    assert record["error"] is None
    assert_engine(planner, "native")


def test_parameters_of_several_dtypes_in_one_module_agree() -> None:
    def build() -> Built:
        built = small()
        for i, bag in enumerate(built.module.embedding_bags.values()):
            dtype = [torch.float32, torch.float16, torch.float64, torch.bfloat16][i % 4]
            bag.weight = nn.Parameter(torch.empty(bag.weight.shape, dtype=dtype, device=META))
        return built

    assert_agree(build)


def test_tables_on_a_real_device_agree_with_tables_on_meta() -> None:
    def build(device: str) -> Built:
        configs = [t.config(EmbeddingBagConfig, num_embeddings=64) for t in small_tables(2)]
        return small(EmbeddingBagCollection(tables=configs, device=torch.device(device)))

    on_cpu, _ = assert_agree(build, device="cpu")
    on_meta, _ = assert_agree(build, device="meta")
    assert on_cpu == on_meta
