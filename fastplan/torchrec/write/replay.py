"""Raises TorchRec's own error if there is no plan.

Its message has the number of proposals, the storage of the smallest one and the error of the last
one. So TorchRec's planner runs with that storage and the last proposal only, and raises the message
of its version. The replay is not visible elsewhere: finished parts are not called again, and hooks
receive the facts of the real search.
"""

from __future__ import annotations

import copy
import heapq
import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any, NoReturn

from torchrec.distributed.planner import planners
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner
from torchrec.distributed.planner.planners import EmbeddingShardingPlanner
from torchrec.distributed.planner.types import PlannerError, ShardingOption

from fastplan.engine.solve import placer
from fastplan.model.request import Partitioner
from fastplan.model.vocabulary import UNIFORM_TYPES
from fastplan.torchrec.read.components import read_partitioner
from fastplan.torchrec.search.native import PlannerSearched
from fastplan.torchrec.write import hooks


class _ReplayProposer:
    """Proposes the given proposals, then sets the counts of the whole search."""

    def __init__(self, planner: Any, proposals: list[Any], counts: tuple[int, int]) -> None:
        self._planner = planner
        self._waiting = list(proposals)
        self._counts = counts

    def load(self, search_space: Any, enumerator: Any = None) -> None:
        pass

    def propose(self) -> Any:
        if self._waiting:
            return self._waiting[0]
        self._planner._num_proposals, self._planner._num_plans = self._counts
        return None

    def feedback(self, *args: Any, **kwargs: Any) -> None:
        self._waiting.pop(0)


class _StorageOnlyOption:
    """Replaces an option of a proposal of which only the storage is known."""

    def __init__(self, storage: Any) -> None:
        self.shards = [SimpleNamespace(storage=storage, rank=None)]


class _KnownPlacements:
    """Places groups of options on the ranks that the core has found for them.

    TorchRec's partitioner copies the devices of hosts for each group, which takes many times as
    long as the search. Only the error of the first group that fits nowhere is needed from it.

    Args:
        own: TorchRec's greedy partitioner.
        proposal: the options that it will receive.
        ranks: of the shards that are not uniform, in order; -1 from the group on that fails.
    """

    # Each receives a group or an option, and devices: a heap, or a list for each host.
    _METHODS = (
        "_device_partition",
        "_column_wise_device_partition",
        "_cohost_partition",
        "_multi_hosts_partition",
    )

    def __init__(self, own: Any, proposal: list[ShardingOption], ranks: list[int]) -> None:
        self._own = own
        self._ranks: dict[int, list[int]] = {}
        begin = 0
        for option in proposal:
            if option.sharding_type not in UNIFORM_TYPES:
                self._ranks[id(option)] = ranks[begin : begin + len(option.shards)]
                begin += len(option.shards)
        self._devices: dict[int, Any] = {}
        self._heap: list[Any] = []

    def partitioner(self) -> Any:
        """Returns a copy of the partitioner with other methods."""
        twin = copy.copy(self._own)
        twin._establish_minheap = self._establish_heap
        for name in self._METHODS:
            if hasattr(twin, name):
                setattr(twin, name, partial(self._place, getattr(twin, name)))
        return twin

    def _establish_heap(self, *arguments: Any) -> list[Any]:
        # TorchRec makes one after each host. The devices are always the same.
        if not self._heap:
            self._heap = self._own._establish_minheap(*arguments)
        return self._heap

    def _place(self, method: Callable[..., None], placed: Any, devices: list[Any]) -> None:
        options = getattr(placed, "sharding_options", (placed,))
        known = [(option, self._ranks[id(option)]) for option in options]
        if any(-1 in ranks for _, ranks in known):
            heapq.heapify(self._heap)  # nobody has read it since the placements before
            return method(placed, devices)
        for option, ranks in known:
            for shard, rank in zip(option.shards, ranks, strict=True):
                if rank not in self._devices:
                    self._devices.update(_by_rank(devices))
                device = self._devices[rank]
                shard.rank = rank
                device.storage -= shard.storage
                device.perf += shard.perf
        return None


def _by_rank(devices: list[Any]) -> dict[int, Any]:
    """Returns the devices of a heap or of all hosts by rank."""
    if isinstance(devices[0], list):
        return {device.rank: device for host in devices for device in host}
    return {ordered.device.rank: ordered.device for ordered in devices}


def _quick_partitioner(planner: Any, searched: PlannerSearched, proposal: Any) -> Any:
    """Returns a partitioner with the same error for a proposal as the planner's, in less time."""
    own, last = planner._partitioner, searched.last
    settings = read_partitioner(own)
    if type(own) is not GreedyPerfPartitioner or not isinstance(settings, Partitioner):
        return own
    if searched.problem is None or not len(last):
        return own
    native = placer(searched.problem, settings)
    if native.place(list(last)) is not None:
        return own
    ranks = native.ranks_before_failure()
    return _KnownPlacements(own, proposal, ranks).partitioner() if ranks else own


class _Partitioner:
    """Raises the error of the search; without one, calls another partitioner."""

    def __init__(self, own: Any, error: PlannerError | None) -> None:
        self._own = own
        self._error = error

    def partition(self, proposal: Any, storage_constraint: Any) -> Any:
        if isinstance(proposal[0], _StorageOnlyOption):
            raise PlannerError("too large")
        if self._error is not None:
            raise self._error
        return self._own.partition(proposal=proposal, storage_constraint=storage_constraint)


class _Proxy:
    """Forwards to another object, except for a few attributes."""

    def __init__(self, real: Any, **attributes: Any) -> None:
        self.__dict__.update(attributes, _real=real)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.__dict__["_real"])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)


def _named_proxy(real: Any, **attributes: Any) -> Any:
    """Returns a proxy with the class of `real`, because messages name it."""
    return type(type(real).__name__, (_Proxy,), {})(real, **attributes)


class _Stats:
    """Statistics that receive the planner's own parts."""

    def __init__(self, own: Any, **parts: Any) -> None:
        self._own = own
        self._parts = parts

    def log(self, **arguments: Any) -> None:
        self._own.log(**{**arguments, **self._parts})


def raise_no_plan(
    planner: Any,
    module: Any,
    sharders: Any,
    searched: PlannerSearched,
    facts: dict[str, str],
    some_option: list[ShardingOption],
) -> NoReturn:
    """Raises the PlannerError that TorchRec raises if no proposal can be placed.

    Without any proposal, `some_option` shows TorchRec that there are tables. `facts` are the facts
    of the search for TorchRec's hooks.
    """
    hooks.after_proposing(planner, searched)
    proposals: list[Any] = searched.failed()
    options = [option for proposal in proposals for option in proposal] or some_option
    own = _quick_partitioner(planner, searched, proposals[0]) if proposals else planner._partitioner
    if searched.lowest is not None:
        proposals = [[_StorageOnlyOption(searched.lowest)], *proposals]
    double = object.__new__(type(planner))
    double.__dict__.update(planner.__dict__)
    double._fastplan = copy.copy(planner._fastplan)
    enumerator, reservation = planner._enumerator, planner._storage_reservation
    double._enumerator = _named_proxy(enumerator, enumerate=lambda module, sharders: options)
    double._storage_reservation = _named_proxy(reservation, reserve=lambda **_: searched.reserved)
    double._stats = [
        _Stats(stats, enumerator=enumerator, storage_reservation=reservation)
        for stats in planner._stats or ()
    ]
    counts = (searched.proposals, planner._num_plans)
    double._proposers = [_ReplayProposer(double, proposals, counts)]
    double._partitioner = _Partitioner(own, searched.error)
    double.plan_loader = None
    double._timeout_seconds = None
    _plan_with_hook(lambda **theirs: hooks.without_plan(theirs, facts))(double, module, sharders)
    raise AssertionError("a proposal that could not be placed was placed by TorchRec")


def _plan_with_hook(log_planning_result: Callable[..., None]) -> Callable[..., Any]:
    """Returns TorchRec's method without its loggers, with only this hook."""
    plan = inspect.unwrap(EmbeddingShardingPlanner.plan)
    if getattr(plan, "__globals__", None) is not vars(planners) or plan.__closure__:
        # Other code has replaced it.
        return EmbeddingShardingPlanner.plan  # type: ignore[no-any-return]
    silent = {name: _ignore for name in vars(planners) if name.startswith("log_")}
    names = {**vars(planners), **silent, "log_planning_result": log_planning_result}
    return FunctionType(plan.__code__, names, plan.__name__, plan.__defaults__)


def _ignore(*args: Any, **kwargs: Any) -> None:
    pass
