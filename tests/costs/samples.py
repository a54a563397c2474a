"""Functions that the tests compile, and problems to try them on."""

import math
from dataclasses import replace

import numpy as np

import fastplan
from fastplan.model.request import Pricing, Request
from tests.problems import request, table

FACTOR = 1.4
MEASURED = np.array([0.1, 0.2, 0.4])


@fastplan.shard_cost
def uvm_is_slower(shard, out):
    """The example of the docs."""
    out.fwd_compute = shard.stock.fwd_compute * (
        FACTOR if shard.kernel == fastplan.Kernel.FUSED_UVM_CACHING else 1.0
    )
    out.fwd_comms = shard.stock.fwd_comms + 1e-5 * math.sqrt(shard.dim * shard.pooling)


@fastplan.shard_cost
def fails_on_small_tables(shard, out):
    if shard.table_rows < 100:
        out.fwd_compute = 1.0 / (shard.table_rows - 70)


@fastplan.shard_cost
def reads_past_the_end(shard, out):
    out.fwd_compute = MEASURED[shard.table_dim]


@fastplan.shard_cost
def not_a_number(shard, out):
    out.bwd_comms = math.nan if shard.table_rows < 100 else 0.0


@fastplan.plan_objective
def critical_path(ranks, out):
    compute = (ranks.fwd_compute + ranks.bwd_compute + ranks.prefetch_compute).max()
    out.rating = compute + (ranks.fwd_comms + ranks.bwd_comms).max()


@fastplan.plan_objective
def rates_nothing(ranks, out):
    pass


@fastplan.plan_objective
def divides_by_nothing(ranks, out):
    out.rating = 1.0 / (ranks[0].host - ranks[0].host)


def priced(cost) -> Request:
    tables = [table("large", 10_000, 64, pooling=3.0), table("small", 70, 32)]
    made = request(tables, 4, 4, ("table_wise", "row_wise"))
    return replace(made, pricing=Pricing(function=cost, batch_size=512))
