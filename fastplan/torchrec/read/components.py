"""Reads TorchRec's proposers, partitioners and perf models as settings of the native search."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from torchrec.distributed.planner import partitioners, perf_models, proposers
from torchrec.distributed.planner.shard_estimators import EmbeddingOffloadStats

from fastplan.costs.errors import NoFingerprint
from fastplan.costs.functions import PlanObjective
from fastplan.engine.solve import ProposerReport
from fastplan.model.job import Job
from fastplan.model.request import Cluster, Partitioner, Proposer, Search
from fastplan.torchrec.compat import Custom, describe, why_not_stock
from fastplan.torchrec.read.custom import ObjectiveModel
from fastplan.torchrec.read.space import EstimatedSpace, Space
from fastplan.torchrec.support import support

_PROPOSER_METHODS = ("load", "propose", "feedback")


def read_proposer(proposer: Any) -> Proposer | Custom:
    """Returns the settings of a proposer whose proposals don't depend on ratings, or Custom."""
    kind = type(proposer)
    read = _PROPOSERS.get(kind)
    if read is None:
        return Custom(proposer, f"{describe(proposer)} is a custom proposer, which runs in Python")
    reason = why_not_stock(proposer, kind, *_PROPOSER_METHODS) or _unusual(proposer)
    return Custom(proposer, reason) if reason else read(proposer)


# TorchRec works with any numbers, and the core with these. A longer time-out never passes.
_LARGEST = 1 << 62
_LONGEST = 1e12
_SETTINGS: dict[type, dict[str, Any]] = {
    proposers.GridSearchProposer: {"_max_proposals": int},
    proposers.GreedyProposer: {
        "_threshold": int | None,
        "_best_perf_rating": int | float,
        "_num_inferior_perf": int,
    },
    proposers.DynamicProgrammingProposer: {"_hbm_bins_per_device": int},
    partitioners.MemoryBalancedPartitioner: {"_max_search_count": int, "_tolerance": int | float},
}


def _unusual(part: Any) -> str:
    """Which setting of a stock part is of a type that the core does not have; empty if none is."""
    for name, kinds in _SETTINGS.get(type(part), {}).items():
        value = getattr(part, name)
        setting = f"`{name.strip('_')}` of {describe(part)}"
        if not isinstance(value, kinds):
            return f"{setting} is a {type(value).__name__}"
        if isinstance(value, int) and abs(value) > _LARGEST:
            return f"{setting} is too large"
    return ""


def _read_grid(proposer: Any) -> Proposer:
    return Proposer(kind="grid", max_proposals=int(proposer._max_proposals))


def _read_greedy(proposer: Any) -> Proposer:
    return Proposer(
        kind="greedy",
        use_depth=bool(proposer._use_depth),
        threshold=int(proposer._threshold or 0),
        best_rating=float(proposer._best_perf_rating),
        inferior=int(proposer._num_inferior_perf),
    )


def _read_uniform(proposer: Any) -> Proposer:
    return Proposer(kind="uniform", use_depth=bool(proposer._use_depth))


def _read_dynamic_programming(proposer: Any) -> Proposer:
    return Proposer(
        kind="dynamic_programming",
        bins_per_device=int(proposer._hbm_bins_per_device),
        exhausted=bool(proposer._inited),
    )


_PROPOSERS = {
    proposers.GridSearchProposer: _read_grid,
    proposers.GreedyProposer: _read_greedy,
    proposers.UniformProposer: _read_uniform,
    proposers.DynamicProgrammingProposer: _read_dynamic_programming,
}


def is_scaleup(proposer: Any) -> bool:
    """Whether this is the stock proposer whose proposals depend on ratings."""
    return type(proposer) is proposers.EmbeddingOffloadScaleupProposer


def keep_state(proposer: Any, report: ProposerReport) -> None:
    """Sets the state that a proposer's own run would have left for the next plan."""
    if type(proposer) is proposers.GreedyProposer and proposer._threshold:
        proposer._best_perf_rating = report.state_best_rating
        proposer._num_inferior_perf = report.state_inferior
    elif type(proposer) is proposers.DynamicProgrammingProposer:
        proposer._inited = True


def mark_as_run(planner: Any) -> None:
    """Marks proposers that propose only once, after a plan for which none of them ran."""
    for proposer in planner._proposers:
        if type(proposer) is proposers.DynamicProgrammingProposer:
            proposer._inited = True


def read_partitioner(partitioner: Any) -> Partitioner | Custom:
    """Returns the settings of a partitioner, or Custom."""
    kind = type(partitioner)
    if kind is not partitioners.GreedyPerfPartitioner:
        kind = partitioners.MemoryBalancedPartitioner
    if reason := why_not_stock(partitioner, kind, "partition") or _unusual(partitioner):
        return Custom(partitioner, reason)
    if kind is partitioners.GreedyPerfPartitioner:
        sort_by = partitioner._sort_by
        if sort_by not in (partitioners.SortBy.STORAGE, partitioners.SortBy.PERF):
            return Custom(partitioner, f"partitioner sorts by {sort_by}")
        return Partitioner(
            sort_by_perf=sort_by == partitioners.SortBy.PERF,
            balance_modules=bool(partitioner._balance_modules),
        )
    return Partitioner(
        memory_balanced=True,
        balance_modules=bool(partitioner._balance_modules),
        max_search_count=int(partitioner._max_search_count),
        tolerance=float(partitioner._tolerance),
    )


def read_rating(perf_model: Any, ranks: int) -> PlanObjective | Custom | None:
    """Returns the objective of a perf model; None for the largest rank, or Custom."""
    kind = ObjectiveModel if type(perf_model) is ObjectiveModel else perf_models.NoopPerfModel
    if reason := why_not_stock(perf_model, kind, "rate"):
        return Custom(perf_model, reason)
    if perf_model._topology.world_size != ranks:
        rater = "the objective" if kind is ObjectiveModel else "the perf model"
        return Custom(perf_model, f"{rater} is for a different number of ranks")
    return perf_model.objective if kind is ObjectiveModel else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A planner's parts before a search, which may change them.

    Attributes:
        proposers: settings, or the part itself if it is custom; None for the scale-up proposer,
            whose proposals depend on ratings.
        search: all settings together, without custom parts.
        keys: for parts without settings, their addition to the cache key, or the part itself.
    """

    proposers: tuple[Proposer | Custom | None, ...]
    partitioner: Partitioner | Custom
    rating: PlanObjective | Custom | None
    search: Search
    keys: tuple[Any, ...]

    @classmethod
    def of(cls, planner: Any, ranks: int) -> Parts:
        """Reads the parts of a planner for a number of ranks."""
        read = tuple(None if is_scaleup(p) else read_proposer(p) for p in planner._proposers)
        partitioner = read_partitioner(planner._partitioner)
        rating = read_rating(planner._perf_model, ranks)
        search = Search(
            proposers=tuple(each for each in read if isinstance(each, Proposer)),
            partitioner=Partitioner() if isinstance(partitioner, Custom) else partitioner,
            timeout_seconds=float(min(planner._timeout_seconds or 0, _LONGEST)),
            objective=None if isinstance(rating, Custom) else rating,
        )
        keys: list[Any] = []
        for index, (part, own) in enumerate(zip(planner._proposers, read, strict=True)):
            if own is None:
                keys.append(["scaleup", index, bool(part.use_depth), part.search is not None])
            elif isinstance(own, Custom):
                keys.append((index, part))
        keys += [(None, each.part) for each in (partitioner, rating) if isinstance(each, Custom)]
        return cls(
            proposers=read, partitioner=partitioner, rating=rating, search=search, keys=tuple(keys)
        )

    @property
    def scaleup(self) -> list[int]:
        """The positions of the scale-up proposers."""
        return [index for index, each in enumerate(self.proposers) if each is None]

    @property
    def python(self) -> str:
        """Why Python must run a part; empty if all parts are native."""
        parts = (self.rating, *self.proposers, self.partitioner)
        return next((each.reason for each in parts if isinstance(each, Custom)), "")

    def fingerprints(self) -> list[Any]:
        """Returns what parts without settings add to the cache key. Raises NoFingerprint."""
        found = []
        for key in self.keys:
            if isinstance(key, list):
                found.append(key)
                continue
            index, part = key
            own = own_fingerprint(part)
            found.append(own if index is None else [index, own])
        return found


def own_fingerprint(part: Any) -> list[str]:
    """Returns the fingerprint of a custom part. Raises NoFingerprint if it has none."""
    give = getattr(part, "fingerprint", None)
    if not callable(give):
        raise NoFingerprint(f"{describe(part)} has no `fingerprint()`")
    return [describe(part), str(give())]


def read_job(planner: Any, space: Space, cluster: Cluster, parts: Parts, name: str = "") -> Job:
    """Returns the job of one plan() call, before the search.

    Args:
        planner: the planner, after its reservation.
        space: the search space; not estimated yet if that is native.
        cluster: the topology after the reservation.
        parts: the planner's proposers, partitioner and perf model.
        name: the model's name, for lists of cached plans.
    """
    hardware = planner._fastplan.hardware
    uncacheable = None
    if not isinstance(space, EstimatedSpace):
        uncacheable = "the search space is enumerated in Python"
    elif planner.plan_loader is not None:
        uncacheable = "the plan comes from a plan loader"
    context = {
        "torchrec": support.torchrec_name(),
        "deterministic": planner._fastplan.deterministic,
        "local_world_size": cluster.local_world_size,
        "group_size": cluster.group_size,
        "reservation": _reservation(planner._storage_reservation),
    }
    if isinstance(space, EstimatedSpace):
        order = space.extraction.menus.order_digest(space.request.tables)
        context |= {"option_order": order} if order else {}
    return Job(
        name=name,
        hardware="" if hardware is None else hardware.sku.name,
        request=space.request if isinstance(space, EstimatedSpace) else None,
        cluster=cluster,
        search=parts.search,
        context=context,
        custom=partial(_fingerprints, space, parts),
        uncacheable=uncacheable,
        figures={} if hardware is None else hardware.sku.costs,
    )


def _fingerprints(space: Space, parts: Parts) -> list[Any]:
    """Returns what custom parts add to the cache key. Raises NoFingerprint."""
    assert isinstance(space, EstimatedSpace)
    space.check_cost()
    found = parts.fingerprints()
    if parts.scaleup:
        found.append(["scaleup", "statistics", _statistics(space)])
    estimators = space.extraction.estimators
    if estimators.custom:
        # A custom estimator is told from a missing one of TorchRec's, whose estimates others keep.
        found.append(["stock estimators", estimators.has_perf, estimators.has_storage])
    return [*found, *map(own_fingerprint, estimators.custom)]


def _statistics(space: EstimatedSpace) -> str:
    """Returns the digest of what the scale-up proposer reads of the statistics of caches.

    Raises NoFingerprint for statistics that other code made.
    """
    digest = hashlib.blake2b(digest_size=16)
    for origin in sorted(space.origins, key=attrgetter("path", "name")):
        params = origin.constraint.cache_params if origin.constraint else None
        stats = None if params is None else params.stats
        if stats is None:
            continue
        if type(stats) is not EmbeddingOffloadStats:
            raise NoFingerprint(f"table {origin.name} has statistics of {describe(stats)}")
        numbers = stats.cacheability, stats.expected_lookups, stats.height
        facts = origin.path, origin.name, *map(repr, numbers), stats.hist.tolist()
        digest.update(repr(facts).encode(errors="surrogatepass"))
    return digest.hexdigest()


def _reservation(reservation: Any) -> dict[str, Any]:
    """Returns policy and result. The memory left on devices is compared with a tolerance."""
    parts: dict[str, Any] = {}
    for name in ("_percentage", "_hbm_reserved_bytes", "_margin_bytes", "_model_base_bytes"):
        value = getattr(reservation, name, None)
        if isinstance(value, int | float | np.generic):
            parts[name.strip("_")] = value
    for name in ("_dense_storage", "_kjt_storage"):
        storage = getattr(reservation, name, None)
        if storage is not None:
            known = is_dataclass(storage) and not isinstance(storage, type)
            parts[name.strip("_")] = asdict(storage) if known else describe(storage)
    return {"policy": describe(reservation), **parts}
