"""Reads TorchRec's proposers, partitioners and perf models as settings of the native search."""

from __future__ import annotations

from typing import Any

from torchrec.distributed.planner import partitioners, perf_models, proposers

from fastplan.costs.functions import PlanObjective
from fastplan.model.request import Partitioner, Proposer
from fastplan.model.solution import ProposerReport
from fastplan.torchrec.fallback import NotNative, describe, require_stock
from fastplan.torchrec.read.custom import ObjectiveModel

_PROPOSER_METHODS = ("load", "propose", "feedback")


def read_proposer(proposer: Any) -> Proposer:
    """A static proposer's settings; NotNative for others."""
    kind = type(proposer)
    if kind is proposers.GridSearchProposer:
        require_stock(proposer, kind, *_PROPOSER_METHODS)
        return Proposer(kind="grid", max_proposals=int(proposer._max_proposals))
    if kind is proposers.GreedyProposer:
        require_stock(proposer, kind, *_PROPOSER_METHODS)
        return Proposer(
            kind="greedy",
            use_depth=bool(proposer._use_depth),
            threshold=int(proposer._threshold or 0),
            best_rating=float(proposer._best_perf_rating),
            inferior=int(proposer._num_inferior_perf),
        )
    if kind is proposers.UniformProposer:
        require_stock(proposer, kind, *_PROPOSER_METHODS)
        return Proposer(kind="uniform", use_depth=bool(proposer._use_depth))
    if kind is proposers.DynamicProgrammingProposer:
        require_stock(proposer, kind, *_PROPOSER_METHODS)
        return Proposer(
            kind="dynamic_programming",
            bins_per_device=int(proposer._hbm_bins_per_device),
            exhausted=bool(proposer._inited),
        )
    raise NotNative(f"{describe(proposer)} proposes in Python")


def listens(proposer: Any) -> bool:
    """Whether this is the stock proposer whose path depends on ratings."""
    return type(proposer) is proposers.EmbeddingOffloadScaleupProposer


def keep_state(proposer: Any, report: ProposerReport) -> None:
    """Leaves a proposer in the state its own run would have left for the next plan."""
    if type(proposer) is proposers.GreedyProposer and proposer._threshold:
        proposer._best_perf_rating = report.state_best_rating
        proposer._num_inferior_perf = report.state_inferior
    elif type(proposer) is proposers.DynamicProgrammingProposer:
        proposer._inited = True


def read_partitioner(partitioner: Any) -> Partitioner:
    """A stock partitioner's settings; NotNative for others."""
    if type(partitioner) is partitioners.GreedyPerfPartitioner:
        require_stock(partitioner, partitioners.GreedyPerfPartitioner, "partition")
        sort_by = partitioner._sort_by
        if sort_by not in (partitioners.SortBy.STORAGE, partitioners.SortBy.PERF):
            raise NotNative(f"partitioner sorts by {sort_by}")
        return Partitioner(
            sort_by_perf=sort_by == partitioners.SortBy.PERF,
            balance_modules=bool(partitioner._balance_modules),
        )
    require_stock(partitioner, partitioners.MemoryBalancedPartitioner, "partition")
    return Partitioner(
        memory_balanced=True,
        balance_modules=bool(partitioner._balance_modules),
        max_search_count=int(partitioner._max_search_count),
        tolerance=float(partitioner._tolerance),
    )


def check_perf_model(perf_model: Any, ranks: int) -> None:
    """Raises NotNative unless plans are rated by the largest rank."""
    require_stock(perf_model, perf_models.NoopPerfModel, "rate")
    if perf_model._topology.world_size != ranks:
        raise NotNative("the perf model rates another number of ranks")


def read_objective(perf_model: Any, ranks: int) -> PlanObjective | None:
    """What plans are rated by, None for the largest rank; NotNative where that is Python's."""
    if type(perf_model) is not ObjectiveModel:
        check_perf_model(perf_model, ranks)
        return None
    require_stock(perf_model, ObjectiveModel, "rate")
    if perf_model._topology.world_size != ranks:
        raise NotNative("the objective rates another number of ranks")
    return perf_model.objective
