"""Reads topologies: TorchRec's own code reserves memory, then ranks become plain numbers."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any, cast

from torchrec.distributed.planner import storage_reservations
from torchrec.distributed.planner.types import DeviceHardware, Perf, Storage, Topology

from fastplan.model.request import Cluster
from fastplan.torchrec.compat import NotNative, describe
from fastplan.torchrec.differences import storage_tiers
from fastplan.torchrec.differences.group_size import group_size
from fastplan.torchrec.read.modules import CachedSharder, ModuleSizes
from fastplan.torchrec.support import support
from fastplan.torchrec.support.watch import RESERVATION

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
_MODULE_SIZE = getattr(storage_reservations, "_get_module_size", None)


def reserve(planner: Any, module: Any, sharders: Any, cached: list[CachedSharder]) -> Topology:
    """Returns the topology after the reservation, by the reservation's own code.

    Args:
        planner: the planner.
        module: the module.
        sharders: the user's sharders, which custom code may change.
        cached: the same sharders, for TorchRec's code.
    """
    reservation, topology = planner._storage_reservation, planner._topology
    run = reservation.reserve
    if type(reservation) not in _STOCK_RESERVATIONS or support.why_not(RESERVATION):
        cached = sharders
    elif type(topology) is Topology and _has_own_storages(topology):
        topology = copy.copy(topology)
        _install_fast_deepcopy(topology, times=2)
        run = _with_fast_sizes(reservation, module) or run
    reserved = run(
        topology=topology,
        batch_size=planner._batch_size,
        module=module,
        sharders=cast("list[Any]", cached),
        constraints=planner._constraints,
    )
    vars(reserved).pop("__deepcopy__", None)
    return reserved


def _has_own_storages(topology: Topology) -> bool:
    """Whether no two ranks share an object, which a deep copy would let them share, too."""
    storages = {id(device.storage) for device in topology.devices}
    return len(storages) == len(topology.devices)


def _with_fast_sizes(reservation: Any, module: Any) -> Any:
    """Returns TorchRec's own `reserve` with module sizes from one walk; None if it is not stock.

    TorchRec's function asks torch for all parameters and buffers of the model, and again for those
    of every module that it shards. Everything else in it stays as it is.
    """
    stock = vars(storage_reservations)
    function = vars(type(reservation)).get("reserve")
    if (
        not isinstance(function, FunctionType)
        or function.__globals__ is not stock
        or "reserve" in vars(reservation)
        or stock.get("_get_module_size") is not _MODULE_SIZE
        or _MODULE_SIZE is None
        or "_get_dense_tensor_size" not in stock
    ):
        return None
    plain: Any = _MODULE_SIZE
    sizes: list[ModuleSizes] = []

    def module_size(part: Any, multiplier: float) -> int:
        if not sizes:
            sizes.append(ModuleSizes(module))
        known = sizes[0].size(part, multiplier)
        return plain(part, multiplier) if known is None else known

    names = dict(stock)
    for name, value in stock.items():
        if isinstance(value, FunctionType) and value.__globals__ is stock:
            names[name] = _rebound(value, names)
    names["_get_module_size"] = module_size
    return _rebound(function, names).__get__(reservation)


def _rebound(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """Returns a function that looks its globals up in `names`."""
    made = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


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
            storage=storage_tiers.storage(*storage_tiers.bytes_of(device.storage)),
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
        zip(*(storage_tiers.bytes_of(device.storage) for device in devices), strict=True)
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
        group_size=group_size(reserved),
    )
