"""Runs TorchRec's EmbeddingOffloadScaleupProposer, which searches cache sizes, on light options.

The proposer tries cache sizes one by one on deep copies of the whole proposal, and the enumerator
estimates them again. It reads little of an option, so it receives options of a few numbers each,
and an enumerator that estimates them natively.
"""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from torchrec.distributed.planner.proposers import EmbeddingOffloadScaleupProposer
from torchrec.distributed.planner.types import Storage
from torchrec.distributed.types import CacheParams

from fastplan.engine.problem import Problem, SearchSpace
from fastplan.engine.solve import ProposerReport, estimate, placer
from fastplan.model.plan import AS_REQUESTED, NO_LOAD_FACTOR, PlanRecord
from fastplan.model.request import Cluster, Request, Search, Table
from fastplan.model.vocabulary import KERNELS, SHARDING_TYPES
from fastplan.torchrec.compat import why_not_stock
from fastplan.torchrec.read.miss_rates import MissRates
from fastplan.torchrec.read.space import Choice, EstimatedSpace


class OptionNumbers:
    """The fields of a ShardingOption that the proposer reads and writes."""

    __slots__ = (
        "cache_params",
        "compute_kernel",
        "fqn",
        "name",
        "sharding_type",
        "shards",
        "table",
        "total_storage",
    )

    def __init__(
        self, space: EstimatedSpace, table: int, number: int, total_storage: Storage
    ) -> None:
        origin, columns = space.origins[table], space.columns
        self.table = table
        self.name = origin.name
        self.fqn = f"{origin.path}.{origin.name}"
        self.sharding_type = SHARDING_TYPES[columns.option_type[number]]
        self.compute_kernel = KERNELS[columns.option_kernel[number]]
        self.cache_params = _shallow_copy(origin.constraint and origin.constraint.cache_params)
        self.total_storage = total_storage
        self.shards = _priced_shards(columns, number)

    @property
    def cache_load_factor(self) -> float | None:
        return None if self.cache_params is None else self.cache_params.load_factor

    def __deepcopy__(self, memo: dict[int, Any]) -> OptionNumbers:
        twin = OptionNumbers.__new__(OptionNumbers)
        twin.table, twin.name, twin.fqn = self.table, self.name, self.fqn
        twin.sharding_type, twin.compute_kernel = self.sharding_type, self.compute_kernel
        twin.total_storage, twin.shards = self.total_storage, self.shards
        # Only these change; statistics never do.
        twin.cache_params = _shallow_copy(self.cache_params)
        return twin

    def key(self) -> tuple[Any, ...]:
        """Returns a key that is equal for options that TorchRec treats as equal."""
        return (self.table, self.sharding_type, self.compute_kernel, self.cache_load_factor)


def _shallow_copy(params: Any) -> Any:
    """Returns copy.copy() of cache parameters, in less time for TorchRec's own."""
    if type(params) is not CacheParams:
        return copy.copy(params)
    copied = object.__new__(CacheParams)
    vars(copied).update(vars(params))
    return copied


def _total_storages(columns: SearchSpace) -> list[Storage]:
    """Returns the storage of all shards, for each option."""
    sums = (
        np.add.reduceat(columns.run_count * sizes, columns.option_run_begin[:-1]).tolist()
        for sizes in (columns.run_hbm, columns.run_ddr, columns.run_ssd)
    )
    return list(map(Storage, *sums))


def _priced_shards(columns: SearchSpace, number: int) -> list[Any]:
    """Returns shards with only a total cost, for the proposer's scores."""
    shards: list[Any] = []
    for run in range(columns.option_run_begin[number], columns.option_run_begin[number + 1]):
        total = (
            columns.run_fwd_compute[run]
            + columns.run_bwd_compute[run]
            + columns.run_fwd_comms[run]
            + columns.run_bwd_comms[run]
            + columns.run_prefetch_compute[run]
        )
        shard = SimpleNamespace(perf=SimpleNamespace(total=float(total)))
        shards += [shard] * int(columns.run_count[run])
    return shards


class _Estimator:
    """Replaces the enumerator: estimates light options again after a change.

    The proposer asks for the same few cache sizes again for each proposal. Only load factors
    change, so tables and storages are kept by option and load factor.
    """

    def __init__(self, space: EstimatedSpace) -> None:
        self._extraction = space.extraction
        self._pricing = space.request.pricing
        self._tables: dict[tuple[Any, ...], Table] = {}
        self._storages: dict[tuple[Any, ...], Storage] = {}
        self._miss_rates = MissRates()
        self.estimated = 0  # options

    def populate_estimates(self, options: list[OptionNumbers]) -> None:
        new = {key: o for o in options if (key := o.key()) not in self._storages}
        if new:
            self.estimated += len(new)
            columns = estimate(self.request([*new.values()]))
            self._storages.update(zip(new, _total_storages(columns), strict=True))
        for option in options:
            option.total_storage = self._storages[option.key()]

    def request(self, options: list[OptionNumbers]) -> Request:
        """Returns a request with only these options, one per table, without a custom cost."""
        return self._extraction.request([self._table(option) for option in options])

    def columns(self, proposal: list[OptionNumbers]) -> SearchSpace:
        """Returns the columns of a proposal, with its costs."""
        return estimate(replace(self.request(proposal), pricing=self._pricing))

    def _table(self, option: OptionNumbers) -> Table:
        key = option.key()
        if key not in self._tables:
            choice = option.table, option.sharding_type, option.compute_kernel
            self._tables[key] = self._extraction.variant(
                *choice, option.cache_params, self._miss_rates
            )
        return self._tables[key]


def why_not(proposer: Any, space: Any) -> str:
    """Why Python must run the scale-up proposer; empty if it can use the core's numbers."""
    methods = ("load", "propose", "feedback")
    if reason := why_not_stock(proposer, EmbeddingOffloadScaleupProposer, *methods):
        return reason
    if not isinstance(space, EstimatedSpace):
        return "the scale-up proposer needs an enumerator that is TorchRec's own"
    caching = KERNELS.index("fused_uvm_caching")
    for table, origin in enumerate(space.origins):
        begin, end = space.columns.table_option_begin[table : table + 2]
        cached = (space.columns.option_kernel[begin:end] == caching).any()
        if cached and (origin.constraint is None or origin.constraint.cache_params is None):
            return f"table {origin.name} is cached without cache parameters"
    return ""


def twin(proposer: Any) -> Any:
    """Returns a copy of a proposer. Running it leaves the original unchanged."""
    result = copy.copy(proposer)
    result.search = copy.deepcopy(proposer.search)
    return result


class Scaleup:
    """One run of the proposer."""

    def __init__(self, space: EstimatedSpace, reserved: Any, cluster: Cluster) -> None:
        self._space = space
        self.estimator = _Estimator(space)
        self._reserved = reserved
        self._cluster = cluster
        self._seen: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.found = False
        self.rating = 0.0
        self._best_proposal: list[OptionNumbers] = []
        self._best_ranks: Any = None
        self.fresh: list[list[OptionNumbers]] = []  # distinct proposals
        self.feasible: list[bool] = []
        self.repeats = 0
        self.timed_out = False

    def run(self, proposer: Any, search: Search, deadline: float) -> None:
        """Runs the proposer until it ends or time.time() reaches `deadline`."""
        begin = self._space.columns.table_option_begin
        storages = _total_storages(self._space.columns)
        options = [
            OptionNumbers(self._space, table, number, storages[number])
            for table in range(self._space.columns.tables)
            for number in range(begin[table], begin[table + 1])
        ]
        proposer.load(search_space=options, enumerator=self.estimator)
        while proposal := proposer.propose():
            if time.time() > deadline:
                self.timed_out = True
                return
            key = tuple(option.key() for option in proposal)
            if key in self._seen:
                self.repeats += 1
            else:
                self._seen[key] = self._place(proposal, search)
                self.fresh.append(proposal)
                self.feasible.append(self._seen[key][0])
            feasible, rating = self._seen[key]
            proposer.feedback(
                partitionable=feasible,
                plan=proposal,
                perf_rating=rating,
                storage_constraint=self._reserved,
            )

    @cached_property
    def best(self) -> tuple[EstimatedSpace, Any] | None:
        """A space of only the best plan, and its ranks; None if nothing was placed."""
        return (self.space_of(self._best_proposal), self._best_ranks) if self.found else None

    def report(self) -> ProposerReport:
        plans = sum(self.feasible)
        rating = self.rating if self.found else float("nan")
        return ProposerReport(len(self.fresh), self.repeats, plans, self.timed_out, rating, 0.0, 0)

    def record(self) -> PlanRecord:
        """Returns the best plan as plain data, with cache sizes that the request does not have."""
        assert self.best is not None
        space, ranks = self.best
        record = PlanRecord.of(space.columns, range(space.columns.tables), ranks, self.rating)
        factors = [self._load_factor(option) for option in self._best_proposal]
        return replace(
            record,
            table=np.array([option.table for option in self._best_proposal], np.int32),
            load_factor=np.array(factors),
        )

    def _load_factor(self, option: OptionNumbers) -> float:
        rule = self._space.origins[option.table].constraint
        cache = rule.cache_params if rule is not None else None
        factor = option.cache_load_factor
        if cache is None or cache.load_factor == factor:
            return AS_REQUESTED
        return NO_LOAD_FACTOR if factor is None else factor

    def space_of(self, proposal: list[OptionNumbers]) -> EstimatedSpace:
        """Returns a search space of only this proposal, with its cache sizes."""
        return self._space.narrowed(
            Choice(option.table, option.sharding_type, option.compute_kernel, option.cache_params)
            for option in proposal
        )

    def _place(self, proposal: list[OptionNumbers], search: Search) -> tuple[bool, float | None]:
        columns = self.estimator.columns(proposal)
        problem = Problem(columns, self._cluster)
        placed = placer(problem, search.partitioner, search.objective).place(
            list(range(len(proposal)))
        )
        if placed is None:
            return False, None
        ranks, rating = placed
        if not self.found or rating < self.rating:
            self.found, self.rating = True, rating
            self._best_ranks = np.array(ranks, np.int32)
            self._best_proposal = proposal
        return True, rating
