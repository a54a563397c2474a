"""Runs are found on the ranks of their shards."""

from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.layout import narrowed, shard_ranks
from fastplan.engine.solve import estimate
from fastplan.model.plan import BadRecord
from fastplan.report.estimates import PlanPieces, by_load
from tests.report.samples import criteo, criteo_row_wise, large, small


def test_ranks_that_differ_by_rounding_alone_are_equally_loaded():
    loads = np.array([1.0, 0.3, 1.0 + 1e-15, 1.0 + 1e-6, 0.3 - 1e-16])
    assert by_load(loads).tolist() == [3, 0, 2, 1, 4]
    assert by_load(np.zeros(3)).tolist() == [0, 1, 2]


def narrowed_space(plan):
    return estimate(narrowed(plan.basis.request, plan.basis.record))


@pytest.mark.parametrize("make", [small, criteo, criteo_row_wise, lambda: large(50, 64)])
def test_runs_are_on_the_ranks_of_their_shards(make):
    plan = make()
    space, record = narrowed_space(plan), plan.basis.record
    spread = PlanPieces(space, record, plan.ranks)
    rank = shard_ranks(record, spread.table_shards, plan.ranks)
    run = np.repeat(np.arange(len(space.run_count)), space.run_count)
    for one in range(plan.ranks):
        assert sorted(spread.runs_on(one).tolist()) == sorted(run[rank == one].tolist())
    values = np.arange(1, len(space.run_count) + 1)
    assert spread.by_rank(values).tolist() == np.bincount(rank, values[run]).tolist()


@pytest.mark.parametrize("make", [small, criteo, lambda: large(50, 64)])
def test_tables_are_on_the_ranks_of_the_layout(make):
    plan = make()
    spread = PlanPieces(narrowed_space(plan), plan.basis.record, plan.ranks)
    for ranks, layout in zip(spread.table_ranks(), plan.layout.tables, strict=True):
        assert ranks.tolist() == sorted(set(layout.shards[:, 4].tolist()))


@pytest.mark.parametrize(
    ("ranks", "complaint"),
    [
        (lambda ranks: ranks[:-1], "ranks for"),
        (lambda ranks: np.append(ranks, 0), "ranks for"),
        (lambda ranks: np.where(ranks == 0, 8, ranks), "a shard is on rank 8 of 8"),
        (lambda ranks: np.where(ranks == 0, -1, ranks), "a shard is on rank -1 of 8"),
    ],
)
def test_ranks_that_do_not_belong_to_the_shards_are_refused(ranks, complaint):
    plan = criteo()
    record = replace(plan.basis.record, ranks=ranks(plan.basis.record.ranks))
    with pytest.raises(BadRecord, match=complaint):
        PlanPieces(narrowed_space(plan), record, 8)


def test_uniform_tables_must_have_a_shard_on_every_rank():
    plan = criteo_row_wise()
    with pytest.raises(BadRecord, match="one shard on each of 9"):
        PlanPieces(narrowed_space(plan), plan.basis.record, 9)
