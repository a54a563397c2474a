"""TorchRec's cost as a custom cost: a template to copy, equal to the core's cost to the bit.

Sizes are tuples: input read, forward and backward lookup, forward and backward output, lookups of
the linear prefetch model, and the number of parts that a batch is divided into.
"""

# numba's decorators and records have no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"

from __future__ import annotations

import math
from typing import Any

from numba import njit

from fastplan.costs.functions import shard_cost
from fastplan.costs.names import Kernel, ShardingType

BATCHED_COPY = 2.455
DATA_PARALLEL_OPTIMIZER = 9.22

_TABLE_WISE = (
    ShardingType.TABLE_WISE.value,
    ShardingType.COLUMN_WISE.value,
    ShardingType.TABLE_COLUMN_WISE.value,
)


@shard_cost
def stock_cost(shard: Any, out: Any) -> None:
    """Sets every part of a shard's cost to what TorchRec estimates."""
    bandwidths, model = shard.bandwidths, shard.model
    table_wise = shard.sharding_type in _TABLE_WISE
    data_parallel = shard.sharding_type == ShardingType.DATA_PARALLEL
    if table_wise:
        sizes = table_wise_sizes(shard)
        comms = (sizes[3] / bandwidths.all_to_all, sizes[4] / bandwidths.all_to_all)
    elif shard.sharding_type == ShardingType.ROW_WISE:
        sizes = by_rows_sizes(shard, float(shard.world_size), True)
        comms = row_wise_comms(shard, sizes)
    elif data_parallel:
        sizes = data_parallel_sizes(shard)
        comms = (0.0, data_parallel_bwd_comms(shard))
    else:
        sizes = by_rows_sizes(shard, float(shard.group_size), False)
        comms = by_host_comms(shard, sizes)
    out.fwd_compute = fwd_compute(shard, sizes, table_wise)
    out.fwd_comms = comms[0]
    out.bwd_compute = 0.0 if model.inference else bwd_compute(shard, sizes, out.fwd_compute)
    out.bwd_comms = 0.0 if model.inference else comms[1]
    out.prefetch_compute = 0.0 if data_parallel else prefetch_compute(shard, sizes)
    out.input_dist_comms = 0.0
    if not data_parallel:
        ids = math.ceil(shard.inputs * shard.world_size * model.input_element_size)
        out.input_dist_comms = ids / bandwidths.all_to_all


@njit
def table_wise_sizes(shard: Any) -> Any:
    model = shard.model
    indices = shard.inputs * shard.world_size
    read = float(math.ceil(indices * model.input_element_size))
    if not model.input_read_in_bytes:
        read = float(math.ceil(indices))
    lookup_dim = max(float(shard.dim), 32.0) if model.min_dim_table_wise else float(shard.dim)
    outputs = shard.outputs * shard.world_size * shard.dim
    return (
        double_if_weighted(shard, read),
        indices * lookup_dim * shard.element_size,
        indices * shard.dim * shard.element_size,
        outputs * shard.fwd_a2a,
        outputs * shard.bwd_a2a,
        double_if_weighted(shard, float(math.ceil(indices))),
        1.0,
    )


@njit
def by_rows_sizes(shard: Any, parts: float, whole_world: bool) -> Any:
    """Each of the parts sees its part of the batch."""
    size = shard.model.input_element_size
    indices = shard.inputs / parts * shard.world_size
    lookup = indices * shard.dim * shard.element_size
    # Only the row-wise form asks whether outputs are pooled before it takes reduce-scatter sizes.
    scatter = shard.pooled or not whole_world
    put_out = shard.outputs if shard.pooled else shard.outputs / parts
    outputs = put_out * shard.world_size * shard.dim
    prefetched = math.ceil(shard.inputs * size) if whole_world else math.ceil(indices * size)
    return (
        double_if_weighted(shard, float(math.ceil(indices * size))),
        lookup,
        lookup,
        outputs * (shard.fwd_sr if scatter else shard.fwd_a2a),
        outputs * (shard.bwd_sr if scatter else shard.bwd_a2a),
        double_if_weighted(shard, float(prefetched)),
        parts,
    )


@njit
def data_parallel_sizes(shard: Any) -> Any:
    read = float(math.ceil(shard.inputs * shard.model.input_element_size))
    lookup = shard.inputs * shard.dim * shard.element_size
    output = shard.outputs * shard.dim * shard.element_size
    return (double_if_weighted(shard, read), lookup, lookup, output, output, 0.0, 1.0)


@njit
def double_if_weighted(shard: Any, size: float) -> float:
    return size * 2 if shard.weighted else size


@njit
def linear(weights: Any, read: float, lookup: float, output: float, rows: int) -> float:
    return weights[0] * read + weights[1] * lookup + weights[2] * output + weights[3] * rows


@njit
def fwd_compute(shard: Any, sizes: Any, table_wise: bool) -> float:
    model = shard.model
    penalty = 1.0
    if model.block_penalty_table_wise if table_wise else model.block_penalty_other:
        penalty = 1.0 if shard.dim >= 128 else (1.15 if shard.dim >= 64 else 1.75)
    work = linear(model.fwd, sizes[0], sizes[1], sizes[3], shard.rows)
    return work * penalty / shard.bandwidths.memory


@njit
def bwd_compute(shard: Any, sizes: Any, forward: float) -> float:
    model = shard.model
    if model.has_bwd:
        work = linear(model.bwd, sizes[0], sizes[2], sizes[4], shard.rows)
        backward = work / shard.bandwidths.memory
    else:
        backward = forward * model.bwd_compute_multiplier
    if not shard.weighted:
        return backward
    backward = backward * model.weighted_bwd_multiplier
    return backward + forward * model.weighted_kernel_multiplier


@njit
def prefetch_compute(shard: Any, sizes: Any) -> float:
    model, parts = shard.model, sizes[6]
    known = shard.kernel == Kernel.FUSED_UVM_CACHING and not math.isnan(shard.expected_lookups)
    unique = shard.expected_lookups
    fetches = 0.0
    if known:
        batch = float(math.ceil(shard.world_size * shard.inputs))
        if model.linear_prefetch:
            unique = min(unique, batch, float(shard.table_rows))
        fetches = shard.miss_rate * (batch if model.fetches_from_batch_inputs else unique)
    fetches = fetches / parts
    if model.linear_prefetch and known:
        weights = model.prefetch
        lookups = weights[0] * (sizes[5] / parts) + weights[1] * (unique / parts)
        return lookups + weights[2] * (fetches * shard.dim)
    bandwidth = shard.bandwidths.hbm_to_ddr
    return fetches * shard.dim * shard.element_size / bandwidth if bandwidth > 0 else 0.0


@njit
def row_wise_comms(shard: Any, sizes: Any) -> Any:
    bandwidths = shard.bandwidths
    copy = sizes[4] * BATCHED_COPY / bandwidths.memory
    return (sizes[3] / bandwidths.reduce_scatter, sizes[4] / bandwidths.all_gather + copy)


@njit
def by_host_comms(shard: Any, sizes: Any) -> Any:
    """Inside the host, and between hosts."""
    bandwidths = shard.bandwidths
    groups = max(1, shard.world_size // shard.group_size)
    across_fwd = across_bwd = 0.0
    if groups > 1:
        outputs = shard.outputs * groups * shard.dim
        across_fwd = outputs * shard.fwd_a2a / bandwidths.across_all_to_all
        across_bwd = outputs * shard.bwd_a2a / bandwidths.across_all_to_all
    gather = sizes[4] / bandwidths.group_all_gather
    copy = sizes[4] * BATCHED_COPY / bandwidths.memory
    return (
        sizes[3] / bandwidths.group_reduce_scatter + across_fwd,
        across_bwd + gather + copy,
    )


@njit
def data_parallel_bwd_comms(shard: Any) -> float:
    """All-reduce of the whole table's gradient, and the optimizer's element-wise kernels."""
    bandwidths = shard.bandwidths
    table = float(shard.rows * shard.dim * shard.element_size)
    nodes = min(shard.world_size / shard.local_world_size, 2.0)
    reduce = 0.0
    if bandwidths.all_reduce > 0:
        reduce = table * (2 * nodes - 1) / nodes / bandwidths.all_reduce
    if shard.world_size > 2 * shard.local_world_size:
        reduce = reduce * 2
    return reduce + table * DATA_PARALLEL_OPTIMIZER / bandwidths.memory
