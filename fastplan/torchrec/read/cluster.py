"""Reads topologies: TorchRec's own code reserves memory, then ranks become plain numbers."""

from __future__ import annotations

import copy
from typing import Any, cast

from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.planner.types import DeviceHardware, Perf, Storage, Topology

from fastplan.model.request import Cluster
from fastplan.torchrec.compat import NotNative, describe
from fastplan.torchrec.read.holder import CachedSharder

_STOCK_RESERVATIONS = tuple(
    getattr(storage_reservations, name)
    for name in (
        "FixedPercentageStorageReservation",
        "FixedAbsoluteStorageReservation",
        "HeuristicalStorageReservation",
        "InferenceStorageReservation",
        "SKUAwareStorageReservation",
    )
    if hasattr(storage_reservations, name)
)
_LARGEST = 1 << 60


def reserve(planner: Any, module: Any, sharders: list[CachedSharder]) -> Topology:
    """Returns the topology after the reservation, by the reservation's own code."""
    reservation, topology = planner._storage_reservation, planner._topology
    if type(reservation) not in _STOCK_RESERVATIONS:
        sharders = [asked.sharder for asked in sharders]
    elif type(topology) is Topology:
        topology = copy.copy(topology)
        _install_fast_deepcopy(topology, times=2)
    reserved = reservation.reserve(
        topology=topology,
        batch_size=planner._batch_size,
        module=module,
        sharders=cast("list[Any]", sharders),
        constraints=planner._constraints,
    )
    vars(reserved).pop("__deepcopy__", None)
    return reserved


def _install_fast_deepcopy(topology: Topology, times: int) -> None:
    """Makes deep copies of a topology fast (microseconds per rank).

    TorchRec's reservations copy the whole topology and store a copy of the result, which takes
    most of the time of a start with a thousand ranks. Only the devices ever change.
    """

    def quick(memo: Any) -> Topology:
        result = copied(topology)
        if times > 1:
            _install_fast_deepcopy(result, times - 1)
        return result

    vars(topology)["__deepcopy__"] = quick


def copied(topology: Topology) -> Topology:
    """Returns a copy of a topology, of TorchRec's class, with separate devices."""
    result = copy.copy(topology)
    vars(result).pop("__deepcopy__", None)
    result._devices = [
        DeviceHardware(
            rank=device.rank,
            storage=Storage(device.storage.hbm, device.storage.ddr, device.storage.ssd),
            perf=Perf(**vars(device.perf)),
        )
        for device in topology.devices
    ]
    return result


def read_cluster(reserved: Any) -> Cluster:
    """Returns the ranks of a plan. Raises NotNative for devices that the core can't represent."""
    devices = reserved.devices
    if len(devices) != reserved.world_size:
        raise NotNative("the topology does not have one device per rank")
    for rank, device in enumerate(devices):
        if device.rank != rank:
            raise NotNative(f"device {rank} has rank {device.rank}")
        if type(device.storage) is not Storage or type(device.perf) is not Perf:
            raise NotNative(f"rank {rank} has a {describe(device.storage)}, not TorchRec's Storage")
        if device.perf.total != 0:
            raise NotNative(f"rank {rank} has a cost before any shard is placed")
    capacities = tuple(
        tuple(getattr(device.storage, tier) for device in devices) for tier in ("hbm", "ddr", "ssd")
    )
    for capacity in capacities:
        if not all(
            isinstance(n, int) and -_LARGEST < n < _LARGEST // len(devices) for n in capacity
        ):
            raise NotNative("a capacity is not a whole number of bytes below 2^60")
    return Cluster(
        rank_hbm=capacities[0],
        rank_ddr=capacities[1],
        rank_ssd=capacities[2],
        local_world_size=reserved.local_world_size,
        group_size=reserved.intra_group_size,
    )
