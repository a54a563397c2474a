"""TorchRec's stock rules, for planning without TorchRec: menus, cost model, reservations.

Tests compare them with the installed TorchRec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fastplan.model.job import DoesNotFit
from fastplan.model.request import CostModel
from fastplan.model.units import format_size
from fastplan.model.vocabulary import KERNELS
from fastplan.spec import stock
from fastplan.spec.hardware import Hardware
from fastplan.spec.model import ModuleSpec, ReservationSpec, TableSpec


def kernels_of(version: str) -> tuple[str, ...]:
    """Returns TorchRec's kernels in the order of its enum."""
    return KERNELS if version.startswith("1.9") else KERNELS[: KERNELS.index("unfused_tpu")]


def stock_kernels(kind: stock.Kind, sharding_type: str, device: str) -> tuple[str, ...]:
    """Returns the kernels that the stock sharder of a kind of module offers."""
    return ("dense",) if sharding_type == "data_parallel" else kind.kernels[device]


def kernel_bandwidth(
    device: str,
    kernel: str,
    *,
    hbm: float,
    ddr: float,
    ssd: float,
    hbm_to_ddr: float,
    cache_ratio: float | None,
    prefetch: bool,
) -> float | None:
    """Returns the bytes per ms of the memory that a kernel reads; None if TorchRec has no figure.

    Args:
        device: The kind of device.
        kernel: The compute kernel.
        hbm: Bandwidth of HBM; `ddr`, `ssd` and `hbm_to_ddr` likewise.
        ddr: Bandwidth of DDR.
        ssd: Bandwidth of SSDs.
        hbm_to_ddr: Bandwidth between HBM and DDR.
        cache_ratio: The cache load factor; None: TorchRec's default.
        prefetch: Whether a cached table is prefetched.
    """
    ratio = stock.CACHE_LOAD_FACTOR if cache_ratio is None else cache_ratio
    if device in ("cpu", "mtia"):
        own = ddr if device == "cpu" else hbm
        return {"dense": 0.5 * own, "fused": 1 * own, "quant": 1 * own}.get(kernel)
    if prefetch and kernel == "fused_uvm_caching":
        kernel = "fused"
    cached = (ratio * hbm + (1 - ratio) * hbm_to_ddr) / 10
    return {
        "dense": 0.5 * hbm,
        "fused": 1 * hbm,
        "fused_triton": 1 * hbm,
        "fused_uvm": hbm_to_ddr / 10,
        "fused_uvm_caching": cached,
        "quant": 1 * hbm,
        "quant_uvm": hbm_to_ddr / 10,
        "quant_uvm_caching": cached,
        "key_value": ssd,
        "ssd_virtual_table": hbm_to_ddr,
        "dram_virtual_table": hbm_to_ddr,
        "dram_ssd_virtual_table": hbm_to_ddr,
    }.get(kernel)


def optimizer_multiplier(optimizer: str | None, dim: int) -> float:
    """Returns the bytes of optimizer state per byte of weights, as TorchRec counts them."""
    if optimizer is None or optimizer == "sgd":
        return 0.0
    if optimizer == "rowwise_adagrad":
        return 1 / dim
    return 2.0 if optimizer == "adam" else 1.0


def optimizer_states(optimizer: str | None, dim: int) -> float:
    """Returns the bytes of optimizer state per byte of weights, as the optimizer has them.

    TorchRec counts one for optimizers that it does not know, such as LAMB.
    """
    by_row = 1 / dim
    return {
        "lamb": 2.0,
        "partial_rowwise_adam": 1 + by_row,
        "partial_rowwise_lamb": 1 + by_row,
    }.get(optimizer or "", optimizer_multiplier(optimizer, dim))


class MenuRules:
    """The rules for one TorchRec version, device and cluster.

    TorchRec 1.8 lists the remaining pairs in the order of a set, which depends on string hashes.
    Unless `deterministic`, this class builds the same set, so it has the same order.
    """

    def __init__(self, version: str, device: str, *, has_ssd: bool, deterministic: bool) -> None:
        self._device = device
        self._has_ssd = has_ssd
        self.hashed = not (version.startswith("1.9") or deterministic)
        self._free_kernels = [
            kernel for kernel in kernels_of(version) if kernel not in stock.GUARDED_KERNELS
        ]

    def pairs(self, module: ModuleSpec, table: TableSpec) -> list[tuple[str, str]]:
        """Returns the allowed pairs in TorchRec's order."""
        found = []
        for sharding_type in self._types(module, table):
            offered = self._offered_kernels(module, sharding_type)
            found += [
                (sharding_type, kernel) for kernel in self._kernels(offered, table.compute_kernels)
            ]
        return found

    def as_offered(self, module: ModuleSpec, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Returns the pairs in the order in which the module's sharder offers them."""
        types = self._offered_types(module)
        offered = [(kind, name) for kind in types for name in self._offered_kernels(module, kind)]
        places = {pair: place for place, pair in enumerate(offered)}
        return sorted(pairs, key=lambda pair: places.get(pair, len(places)))

    def _offered_types(self, module: ModuleSpec) -> list[str]:
        if module.sharding_types is not None:
            return list(module.sharding_types)
        return list(stock.KINDS[module.kind].types[self._device])

    def _types(self, module: ModuleSpec, table: TableSpec) -> list[str]:
        kind = stock.KINDS[module.kind]
        offered = self._offered_types(module)
        if table.sharding_types:
            return self._both(list(table.sharding_types), offered)
        left_out = {"grid_shard"} | (stock.GUARDED_TYPES_OF_PROCESSED if kind.processed else set())
        return [name for name in offered if name not in left_out]

    def _offered_kernels(self, module: ModuleSpec, sharding_type: str) -> list[str]:
        if module.compute_kernels is not None:
            return list(module.compute_kernels.get(sharding_type, ()))
        return list(stock_kernels(stock.KINDS[module.kind], sharding_type, self._device))

    def _kernels(self, offered: list[str], wanted: tuple[str, ...] | None) -> list[str]:
        left = self._both(list(wanted) if wanted else self._free_kernels, offered)
        if not self._has_ssd and "key_value" in left:
            left.remove("key_value")
        if "dense" in left and "fused" in left:
            left.remove("dense")
        return left

    def _both(self, wanted: list[str], offered: list[str]) -> list[str]:
        if self.hashed:
            return list(set(wanted) & set(offered))
        return [name for name in offered if name in set(wanted)]


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


_HOME = "torchrec.distributed.planner.storage_reservations"
POLICIES = {
    "heuristical": "HeuristicalStorageReservation",
    "percentage": "FixedPercentageStorageReservation",
    "absolute": "FixedAbsoluteStorageReservation",
    "inference": "InferenceStorageReservation",
    "sku": "SKUAwareStorageReservation",
}
# 2 batches in the pipeline x 10 copies = 20; inference has 1 x 1.
_INPUT_COPIES = {"inference": 1}


def input_bytes(spec: ReservationSpec, tables: Sequence[TableSpec], batch_size: int) -> int:
    """Returns TorchRec's estimate of the bytes of one rank's inputs."""
    if spec.kjt is not None:
        return spec.kjt
    inputs: list[float] = []
    for table in tables:
        sizes = table.batch_sizes or [batch_size] * len(table.pooling)
        inputs += [length * size for length, size in zip(table.pooling, sizes, strict=False)]
    copies = _INPUT_COPIES.get(spec.policy, 20)
    return math.ceil(sum(inputs) * float(stock.INPUT_ELEMENT_SIZE)) * copies


def reserve(
    spec: ReservationSpec,
    device: str,
    inputs: int,
    rank_hbm: Sequence[int],
    rank_ddr: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the HBM and the DDR that are left for tables, by rank.

    Args:
        spec: The reservation.
        device: The kind of device: on `cpu`, dense part and inputs are in DDR.
        inputs: Bytes of one rank's inputs.
        rank_hbm: HBM by rank, in bytes.
        rank_ddr: DDR by rank, in bytes.

    Raises:
        DoesNotFit: Nothing is left, and TorchRec raises for this policy too.
    """
    if spec.policy == "percentage":
        return tuple(_less_share(rank_hbm, spec.percentage)), tuple(rank_ddr)
    if spec.policy == "absolute":
        whole = _less_share(rank_hbm, 0.0)
        return tuple(max(0, n - spec.reserved) for n in whole), tuple(rank_ddr)
    hbm, dense = list(rank_hbm), spec.dense
    if spec.policy == "sku":
        static = spec.margin if spec.base is None else spec.base
        hbm = [max(0, max(0, n - static) - spec.overhead) for n in hbm]
        dense = spec.dense if spec.base is None else 0
    else:
        hbm = _less_share(hbm, spec.percentage)
    kept = dense + inputs
    ddr = list(rank_ddr)
    if device == "cpu":
        ddr = [n - kept for n in ddr]
    else:
        hbm = [n - kept for n in hbm]
    too_little = {"heuristical": hbm[0] < 0, "sku": hbm[0] <= 0}
    if too_little.get(spec.policy, False):
        raise DoesNotFit(
            f"the reservation leaves {format_size(hbm[0])} of HBM on rank 0. From "
            f"{format_size(rank_hbm[0])}, policy `{spec.policy}` keeps {format_size(dense)} for "
            f"the dense part, {format_size(inputs)} for inputs and its margin. Reduce "
            "`batch_size`, `reservation.percentage` or `reservation.dense`, or use larger devices"
        )
    return tuple(hbm), tuple(ddr)


def _less_share(rank_hbm: Sequence[int], percentage: float) -> list[int]:
    return [int((1 - percentage) * n) for n in rank_hbm]


def describe_reservation(spec: ReservationSpec, device: str, inputs: int) -> dict[str, Any]:
    """Returns the policy and its numbers, as fastplan's planner describes them."""
    parts: dict[str, Any] = {"policy": f"{_HOME}.{POLICIES[spec.policy]}"}
    if spec.policy in ("heuristical", "percentage", "inference"):
        parts["percentage"] = spec.percentage
    if spec.policy == "absolute":
        parts["percentage"] = 0.0
        parts["hbm_reserved_bytes"] = spec.reserved
    if spec.policy == "sku":
        parts["margin_bytes"] = spec.margin
        if spec.base is not None:
            parts["model_base_bytes"] = spec.base
    if spec.policy in ("heuristical", "inference") or (spec.policy == "sku" and spec.base is None):
        parts["dense_storage"] = _storage(spec.dense, device)
    parts["kjt_storage"] = _storage(inputs, device)
    return parts


def _storage(size: int, device: str) -> dict[str, int]:
    on_host = device == "cpu"
    return {"hbm": 0 if on_host else size, "ddr": size if on_host else 0, "ssd": 0}
