"""Random requests and problems with no torch in them."""

from __future__ import annotations

import random
from dataclasses import replace

from fastplan.engine.problem import Problem
from fastplan.engine.solve import estimate
from fastplan.model.request import (
    Cluster,
    Coefficients,
    CostModel,
    MenuItem,
    Partitioner,
    Proposer,
    Request,
    Search,
    Table,
)
from fastplan.model.vocabulary import SHARDING_TYPES

GIB = 1 << 30

ALL_TYPES = SHARDING_TYPES

DEFAULT_PROPOSERS = (
    Proposer(kind="grid"),
    Proposer(kind="greedy"),
    Proposer(kind="greedy", use_depth=False),
    Proposer(kind="uniform"),
)

ALL_PROPOSERS = (*DEFAULT_PROPOSERS, Proposer(kind="dynamic_programming", bins_per_device=5))


def cost_model(ranks: int, group: int) -> CostModel:
    """TorchRec's default hardware, in bytes per millisecond."""
    intra, inter, hbm_to_ddr = 6.4e8, 1.3e7, 3.4e7
    across = inter if ranks > group else intra
    return CostModel(
        perf_world_size=ranks,
        perf_local_world_size=group,
        perf_group_size=group,
        bw_world_all_to_all=across,
        bw_world_reduce_scatter=across,
        bw_world_all_gather=across,
        bw_world_all_reduce=inter * group,
        bw_group_reduce_scatter=intra,
        bw_group_all_gather=intra,
        bw_across_all_to_all=inter,
        hbm_to_ddr_bw=hbm_to_ddr,
        bwd_compute_multiplier=2.0,
        weighted_bwd_multiplier=1.0,
        perf_inference=False,
        min_dim_table_wise=True,
        block_penalty_table_wise=True,
        block_penalty_other=False,
        input_read_in_bytes=True,
        input_element_size=8.0,
        weighted_kernel_multiplier=1.1,
        fetches_from_batch_inputs=False,
        linear_prefetch=False,
        prefetch_coefficients=(0.0, 0.0, 0.0),
        storage_world_size=ranks,
        storage_group_size=group,
        device_kind="hbm",
        weights_in_ddr=False,
        quant_weights_in_ddr=False,
        pipeline="none",
        at_peak_memory=False,
        storage_inference=False,
        layout_world_size=ranks,
        layout_group_size=group,
        layout_rank_memory=(),
    )


def table(name: str, rows: int, dim: int, *, menu: int = 0, pooling: float = 1.0) -> Table:
    """A pooled fp32 table, looked up by one feature in batches of 512."""
    inputs = pooling * 512
    return Table(
        name=name,
        path="sparse",
        rows=rows,
        dim=dim,
        element_size=4,
        bytes=rows * dim * 4,
        menu=menu,
        perf_inputs=inputs,
        perf_outputs=512.0,
        storage_inputs=inputs,
        storage_outputs=512.0,
        pooled=True,
        weighted=False,
        usage="base",
        virtual=False,
        output_element_size=4.0,
        fwd_a2a=4.0,
        bwd_a2a=4.0,
        fwd_sr=4.0,
        bwd_sr=4.0,
        min_partition=0,
        buckets=0,
        prefetch_passes=0,
        optimizer_multiplier=0.0,
        cache_ratio=0.2,
        kv_load_factor=0.2,
        kv_cache_bytes=0,
        expected_lookups=float("nan"),
        miss_rate=float("nan"),
        tower=None,
    )


def menu_of(types: tuple[str, ...]) -> tuple[MenuItem, ...]:
    """Both device and cached kernels for every type."""
    items = []
    for kind in types:
        if kind == "data_parallel":
            items.append(MenuItem(kind, "dense", 4.8e8, 0))
            continue
        items.append(MenuItem(kind, "fused", 9.6e8, 0))
        items.append(MenuItem(kind, "fused_uvm_caching", 2.2e7, 0))
    return tuple(items)


def request(tables: list[Table], ranks: int, group: int, types: tuple[str, ...]) -> Request:
    return Request(
        tables=tuple(tables),
        menus=(menu_of(types),),
        coefficients=(Coefficients((1.0, 1.0, 1.0, 0.0), None),),
        cost=cost_model(ranks, group),
    )


def random_problem(seed: int) -> tuple[Problem, Search]:
    """A small problem with loose, tight or hopeless memory, ties, hosts and towers."""
    rng = random.Random(seed)
    hosts = rng.choice((1, 1, 2, 4))
    group = rng.choice((1, 2, 4, 8))
    ranks = hosts * group
    alike = rng.random() < 0.3
    types = tuple(rng.sample(ALL_TYPES, rng.randint(1, len(ALL_TYPES))))
    tables = []
    for i in range(rng.randint(1, 12)):
        rows = 100_000 if alike else int(10 ** rng.uniform(0, 7))
        dim = 128 if alike else rng.choice((4, 16, 64, 128, 256, 512))
        made = table(f"t{i}", rows, dim, pooling=1.0 if alike else rng.uniform(0.1, 40))
        tables.append(
            made._replace(min_partition=rng.choice((0, 0, 32)), path=rng.choice(("a", "b")))
        )
    if rng.random() < 0.15 and set(types) <= {"table_row_wise", "table_column_wise"}:
        tables = [made._replace(tower="a") for made in tables]
    space = estimate(request(tables, ranks, group, types))
    memory = sum(made.bytes for made in tables) / ranks * rng.choice((0.3, 0.9, 1.2, 3, 50))
    memory += 64 * 1024 * 1024 * rng.choice((0.1, 1))
    balanced = rng.random() < 0.2
    # TorchRec's memory-balanced partitioner takes all ranks for equal, and may overfill small ones.
    uneven = rng.random() < 0.3 and not balanced
    cluster = Cluster(
        rank_hbm=tuple(
            int(memory * (rng.uniform(0.5, 1.5) if uneven else 1)) for _ in range(ranks)
        ),
        rank_ddr=(int(memory * rng.choice((0.2, 4))),) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )
    partitioner = Partitioner(
        memory_balanced=balanced,
        sort_by_perf=rng.random() < 0.3,
        balance_modules=rng.random() < 0.3,
    )
    proposers = tuple(rng.sample(ALL_PROPOSERS, rng.randint(1, len(ALL_PROPOSERS))))
    search = Search(proposers=proposers, partitioner=partitioner)
    return Problem(space, cluster), search


def tight_problem(seed: int) -> tuple[Problem, Search]:
    """Tens of tables on ranks that they nearly fill: ranks refuse shards, and hosts tables."""
    rng = random.Random(seed)
    hosts, group = rng.choice(((1, 8), (2, 4), (4, 4), (4, 8), (3, 2)))
    ranks = hosts * group
    types = tuple(rng.sample(ALL_TYPES, rng.randint(2, len(ALL_TYPES))))
    tables = []
    for i in range(rng.randint(20, 40)):
        rows = int(10 ** rng.uniform(3, 6.5))
        made = table(f"t{i}", rows, rng.choice((16, 64, 128)), pooling=rng.uniform(0.1, 40))
        tables.append(made._replace(min_partition=32, path=rng.choice(("a", "b"))))
    space = estimate(request(tables, ranks, group, types))
    memory = sum(made.bytes for made in tables) / ranks * rng.uniform(0.4, 1.3)
    cluster = Cluster(
        rank_hbm=tuple(int(memory * rng.uniform(0.95, 1.05)) for _ in range(ranks)),
        rank_ddr=(int(memory * rng.choice((0.3, 1, 4))),) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )
    partitioner = Partitioner(sort_by_perf=rng.random() < 0.3, balance_modules=rng.random() < 0.3)
    proposers = tuple(rng.sample(ALL_PROPOSERS, rng.randint(1, len(ALL_PROPOSERS))))
    return Problem(space, cluster), Search(proposers=proposers, partitioner=partitioner)


def small_problem(**changes: object) -> Problem:
    """Six tables on eight ranks of two hosts, with room to spare."""
    tables = [table(f"t{i}", 10_000 * (i + 1), 64, pooling=2.0 + i) for i in range(6)]
    space = estimate(request(tables, 8, 4, ALL_TYPES))
    cluster = Cluster(
        rank_hbm=(GIB,) * 8,
        rank_ddr=(8 * GIB,) * 8,
        rank_ssd=(0,) * 8,
        local_world_size=4,
        group_size=4,
    )
    return Problem(space, replace(cluster, **changes) if changes else cluster)


DEFAULT_SEARCH = Search(proposers=DEFAULT_PROPOSERS, partitioner=Partitioner())


def grid_tower_request(*types: tuple[str, ...], ranks: int = 8, group: int = 4) -> Request:
    """Tables of one tower, each with sharding types of its own."""
    tables = [
        table(f"t{i}", 100_000, 128, menu=i)._replace(tower="a", min_partition=32)
        for i in range(len(types))
    ]
    made = request(tables, ranks, group, ALL_TYPES)
    return replace(made, menus=tuple(menu_of(own) for own in types))


def grid_tower(*types: tuple[str, ...], ranks: int = 8, group: int = 4) -> Problem:
    """The same with a GiB of memory on each rank."""
    cluster = Cluster(
        rank_hbm=(GIB,) * ranks,
        rank_ddr=(GIB,) * ranks,
        rank_ssd=(0,) * ranks,
        local_world_size=group,
        group_size=group,
    )
    return Problem(estimate(grid_tower_request(*types, ranks=ranks, group=group)), cluster)
