"""Memory of a plan by rank, against its layout and its shards one by one."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.layout import narrowed, shard_ranks
from fastplan.engine.solve import estimate
from fastplan.planning.plan import plan
from fastplan.report.analysis import analyse
from fastplan.spec.lower import lower
from fastplan.spec.model import ModelSpec, TableSpec, TopologySpec
from fastplan.sweep.memory import memory_of, rank_memory
from tests.sweep.samples import hardware, model


def random_model(seed: int) -> ModelSpec:
    draw = random.Random(seed)
    kinds = ("data_parallel", "table_wise", "row_wise", "column_wise", "table_row_wise")
    tables = tuple(
        TableSpec(
            name=f"t{i}",
            rows=draw.randint(1, 2_000_000),
            dim=draw.choice((16, 64, 128, 256)),
            pooling=(draw.uniform(1, 40),),
            sharding_types=(draw.choice((*kinds, "grid_shard", "table_column_wise")),),
        )
        for i in range(draw.randint(1, 20))
    )
    return ModelSpec(name="random", tables=tables, batch_size=draw.choice((16, 512)))


@pytest.mark.parametrize("seed", range(20))
def test_memory_is_the_sum_over_all_shards(seed: int) -> None:
    ranks = random.Random(seed).choice((2, 8, 16, 24))
    topology = TopologySpec(hardware=hardware(), world_size=ranks)
    job = lower(replace(random_model(seed), topology=topology))
    planned = plan(job)
    assert planned.record is not None
    space = estimate(narrowed(job.request, planned.record))
    found = rank_memory(space, planned.record, ranks)
    shards = np.add.reduceat(space.run_count, space.option_run_begin[:-1])
    where = shard_ranks(planned.record, shards, ranks)
    for tier in ("hbm", "ddr", "ssd"):
        sizes = np.repeat(getattr(space, f"run_{tier}"), space.run_count)
        expected = [int(sizes[where == rank].sum()) for rank in range(ranks)]
        assert found[tier].tolist() == expected


def test_headroom_is_what_the_report_says() -> None:
    topology = TopologySpec(hardware=hardware(), world_size=16)
    job = lower(replace(random_model(3), topology=topology))
    planned = plan(job)
    assert planned.record is not None
    found = memory_of(job, planned.record)
    [hbm] = [tier for tier in analyse(planned.plan()).memory if tier.tier == "hbm"]
    assert found["tier"] == "hbm"
    assert found["headroom_bytes"] == hbm.headroom
    assert found["headroom"] == pytest.approx(hbm.headroom_share)
    assert found["hbm_bytes"] == int(hbm.used.sum())


def test_on_cpus_the_memory_is_the_hosts() -> None:
    cpu = hardware("cpu", device="cpu", hbm=0)
    job = lower(model(topology=TopologySpec(hardware=cpu, world_size=2)))
    planned = plan(job)
    assert planned.record is not None
    found = memory_of(job, planned.record)
    assert found["tier"] == "ddr"
    assert found["hbm_bytes"] == 0 < found["ddr_bytes"]
    assert 0 < found["headroom"] < 1
