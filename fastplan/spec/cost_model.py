"""Computes the scalars of the cost model for a cluster, as TorchRec's stock estimators use them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from fastplan.model.request import CostModel
from fastplan.spec import stock
from fastplan.spec.hardware import Hardware

_DEVICE_KINDS = {"cuda": "hbm", "mtia": "hbm", "cpu": "cpu"}
_BY_HOST_ROWS = frozenset({"table_row_wise", "grid_shard"})

COST_FIELDS = tuple(field.name for field in fields(CostModel))


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of ranks in the job, on a host and in a group of hosts."""

    world_size: int
    local_world_size: int
    group_size: int


def cost_model(
    hardware: Hardware,
    shape: Shape,
    sharding_types: frozenset[str],
    rank_memory: tuple[int, ...],
    given: dict[str, Any],
) -> CostModel:
    """Returns the cost model of a cluster.

    Args:
        hardware: The devices and their links.
        shape: The number of ranks in the job, on a host and in a group.
        sharding_types: Only the bandwidths that these types need are set.
        rank_memory: Bytes by rank, if they differ.
        given: Fields that override the computed ones.
    """
    device = hardware.device
    model = CostModel(
        perf_world_size=shape.world_size,
        perf_local_world_size=shape.local_world_size,
        perf_group_size=shape.group_size,
        **_bandwidths(hardware, shape, sharding_types),
        hbm_to_ddr_bw=hardware.hbm_to_ddr_mem_bw,
        bwd_compute_multiplier=hardware.bwd_compute_multiplier,
        weighted_bwd_multiplier=hardware.weighted_feature_bwd_compute_multiplier,
        perf_inference=False,
        min_dim_table_wise=True,
        block_penalty_table_wise=True,
        block_penalty_other=False,
        input_read_in_bytes=True,
        input_element_size=float(stock.INPUT_ELEMENT_SIZE),
        weighted_kernel_multiplier=stock.WEIGHTED_KERNEL_MULTIPLIER,
        fetches_from_batch_inputs=False,
        linear_prefetch=False,
        prefetch_coefficients=(0.0, 0.0, 0.0),
        storage_world_size=shape.world_size,
        storage_group_size=shape.group_size,
        device_kind=_DEVICE_KINDS.get(device, "other"),
        weights_in_ddr=device == "cpu",
        quant_weights_in_ddr=device in {"cpu", "mtia"},
        pipeline="none",
        at_peak_memory=False,
        storage_inference=False,
        layout_world_size=shape.world_size,
        layout_group_size=shape.group_size,
        layout_rank_memory=rank_memory,
    )
    return replace(model, **given)


def _bandwidths(hardware: Hardware, shape: Shape, types: frozenset[str]) -> dict[str, float]:
    near, far = hardware.intra_host_bw, hardware.inter_host_bw
    world = near if shape.world_size <= shape.local_world_size else far
    groups = max(1, shape.world_size // shape.group_size)
    by_host = bool(types & _BY_HOST_ROWS)
    local = min(shape.group_size, shape.local_world_size)
    group = near if shape.group_size <= local else far
    return {
        "bw_world_all_to_all": world if types - {"data_parallel"} else 0.0,
        "bw_world_reduce_scatter": world if "row_wise" in types else 0.0,
        "bw_world_all_gather": world if "row_wise" in types else 0.0,
        # TorchRec counts one network card per rank of a host.
        "bw_world_all_reduce": far * shape.local_world_size if "data_parallel" in types else 0.0,
        "bw_group_reduce_scatter": group if by_host else 0.0,
        "bw_group_all_gather": group if by_host else 0.0,
        "bw_across_all_to_all": (near if groups <= 1 else far) if by_host and groups > 1 else 0.0,
    }
