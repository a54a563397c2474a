"""Memory that TorchRec's reservations exclude from tables, and its part of the fingerprint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastplan.model.job import DoesNotFit
from fastplan.model.units import format_size
from fastplan.spec import stock
from fastplan.spec.model import ReservationSpec, TableSpec

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


def describe(spec: ReservationSpec, device: str, inputs: int) -> dict[str, Any]:
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
