"""Shards lie where the plan says, and blocks are blocks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fastplan.engine import layout as shards
from fastplan.engine.layout import cuts_of, layout_in, layout_of, narrowed
from fastplan.engine.solve import estimate
from fastplan.model.cuts import Cut, block_shards, copy_shards, cut_of, merged
from fastplan.model.plan import RANK, BadRecord, Plan
from fastplan.model.vocabulary import KERNEL_INDEX, UNIFORM_TYPES
from fastplan.torchrec.write.options import shard_offsets
from tests.plans.samples import SEEDS, mixed_plan, random_plan

SIZES = [(1, 1), (8, 4), (8, 8), (6, 3), (16, 2)]
PLANS = [partial(random_plan, seed) for seed in SEEDS] + [
    partial(mixed_plan, seed, *size) for seed, size in enumerate(SIZES * 4)
]


def one_by_one(plan: Plan) -> list[list[list[int]]]:
    """Every table's shards, built slowly from the estimated runs."""
    assert plan.basis is not None
    request, record = plan.basis.request, plan.basis.record
    space = estimate(narrowed(request, record))
    waiting = iter(record.ranks.tolist())
    tables = []
    for i, table in enumerate(plan.layout.tables):
        runs = range(space.option_run_begin[i], space.option_run_begin[i + 1])
        sizes = [
            (int(space.run_rows[run]), int(space.run_cols[run]))
            for run in runs
            for _ in range(space.run_count[run])
        ]
        offsets = shard_offsets(table.sharding_type, sizes, request.tables[record.table[i]].dim)
        uniform = table.sharding_type in UNIFORM_TYPES
        tables.append(
            [
                [*offset, *size, number if uniform else next(waiting)]
                for number, (offset, size) in enumerate(zip(offsets, sizes, strict=True))
            ]
        )
    assert next(waiting, None) is None
    return tables


@pytest.mark.parametrize("make", PLANS, ids=range(len(PLANS)))
def test_a_layout_is_the_one_built_shard_by_shard(make):
    plan = make()
    for table, expected in zip(plan.layout.tables, one_by_one(plan), strict=True):
        assert table.shards.tolist() == expected, table.name


@pytest.mark.parametrize("make", PLANS, ids=range(len(PLANS)))
def test_shards_cover_their_table_and_copies_are_whole(make):
    for table in make().layout.tables:
        rows, columns = table.shape
        areas = table.shards[:, 2] * table.shards[:, 3]
        copies = len(table.shards) if table.sharding_type == "data_parallel" else 1
        assert areas.sum() == copies * rows * columns


@pytest.mark.parametrize("make", PLANS, ids=range(len(PLANS)))
def test_a_layout_of_options_in_their_space_is_the_one_of_their_estimates(make):
    basis = make().basis
    space = estimate(basis.request)
    tables = np.repeat(np.arange(space.tables), np.diff(space.table_option_begin))
    number = {
        each: option
        for option, each in enumerate(
            zip(tables.tolist(), space.option_type, space.option_kernel, strict=True)
        )
    }
    record = basis.record
    kinds = zip(record.table.tolist(), record.sharding_type, record.kernel, strict=True)
    options = np.array([number[each] for each in kinds], np.int32)
    found = layout_in(basis.request, basis.cluster, record, space, options)
    expected = layout_of(basis.request, basis.cluster, record)
    assert (found.device, found.ranks_per_host) == (expected.device, expected.ranks_per_host)
    for table, other in zip(found.tables, expected.tables, strict=True):
        assert table._replace(shards=None) == other._replace(shards=None)
        assert np.array_equal(table.shards, other.shards)


@pytest.mark.parametrize("make", PLANS, ids=range(len(PLANS)))
def test_cuts_give_the_same_shards(make):
    plan = make()
    tables, space = shards.chosen_space(plan.basis.request, plan.basis.record)
    for table, cut in zip(plan.layout.tables, cuts_of(tables, space), strict=True):
        if table.sharding_type == "data_parallel":
            assert cut is None
            continue
        assert cut.shape == table.shape
        assert cut.blocks == len(table.shards)
        assert np.array_equal(block_shards(cut, table.shards[:, RANK]), table.shards)
        assert cut_of(table.shards) == cut


def test_device_and_hosts_are_the_requests():
    plan = mixed_plan(ranks=8, group=4)
    assert (plan.layout.device, plan.layout.ranks_per_host) == ("cuda", 4)
    basis = plan.basis
    for kind, device in (("cpu", "cpu"), ("other", None)):
        request = replace(basis.request, cost=replace(basis.request.cost, device_kind=kind))
        assert layout_of(request, basis.cluster, basis.record).device == device
    given = layout_of(basis.request, basis.cluster, basis.record, device="mtia")
    assert given.device == "mtia"


def test_a_resized_cache_leaves_shards_as_they_are():
    plan = mixed_plan()
    record = plan.basis.record
    cached = record.kernel == KERNEL_INDEX["fused_uvm_caching"]
    assert cached.sum() > 1
    resized = replace(
        record,
        load_factor=np.where(cached, 0.5, np.nan),
        kernel=np.where(cached, KERNEL_INDEX["fused"], record.kernel).astype(np.uint8),
    )
    layout = layout_of(plan.basis.request, plan.basis.cluster, resized)
    for before, after in zip(plan.layout.tables, layout.tables, strict=True):
        assert np.array_equal(before.shards, after.shards)
        assert after.kernel in ("dense", "fused")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: {"ranks": r.ranks[:-1]}, "ranks for"),
        (lambda r: {"ranks": np.where(np.arange(len(r.ranks)), r.ranks, 99)}, "rank 99 of 8"),
        (lambda r: {"kernel": np.zeros_like(r.kernel)}, "does not allow"),
        (lambda r: {"table": r.table[:-1]}, "it has 13 tables, the model 14"),
    ],
    ids=["fewer ranks", "no such rank", "kernel", "tables"],
)
def test_a_record_of_another_request_is_refused(change, text):
    basis = mixed_plan().basis
    record = replace(basis.record, **change(basis.record))
    with pytest.raises(BadRecord, match=text):
        layout_of(basis.request, basis.cluster, record)


def test_endless_shards_and_columns_are_refused(monkeypatch):
    basis = mixed_plan().basis
    monkeypatch.setattr(shards, "MOST_SHARDS", 10)
    with pytest.raises(BadRecord, match="shards, over 10"):
        layout_of(basis.request, basis.cluster, basis.record)
    space, options = estimate(basis.request), np.arange(len(basis.record.table))
    with pytest.raises(BadRecord, match="shards, over 10"):
        layout_in(basis.request, basis.cluster, basis.record, space, options)
    wide = replace(
        basis.request,
        tables=tuple(table._replace(rows=1, dim=2**40 + 1) for table in basis.request.tables),
    )
    with pytest.raises(BadRecord, match="columns, over"):
        layout_of(wide, basis.cluster, basis.record)
    with pytest.raises(BadRecord, match="columns, over"):
        layout_in(wide, basis.cluster, basis.record, space, options)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s[::-1],
        lambda s: s[:-1],
        lambda s: s[1:],
        lambda s: s[:0],
        lambda s: s + np.array([1, 0, 0, 0, 0]),
        lambda s: s * np.array([1, 1, 1, 2, 1]),
        lambda s: np.where(np.arange(5) == 2, -1, s),
    ],
    ids=["backwards", "no last", "no first", "none", "further down", "wider", "negative"],
)
def test_what_is_no_blocks_is_not_taken_for_some(change):
    blocks = block_shards(Cut(((2, 5), (1, 3)), ((2, 4),)), range(6))
    assert cut_of(blocks) == Cut(((2, 5), (1, 3)), ((2, 4),))
    assert cut_of(change(blocks)) is None


def test_empty_blocks_are_blocks():
    cut = Cut(((1, 5), (3, 0)), ((1, 4),))
    assert cut_of(block_shards(cut, [0, 1, 2, 3])) == cut
    assert cut.shape == (5, 4)


def test_runs_are_merged():
    assert merged([(2, 5), (0, 7), (1, 5), (1, 4), (0, 3)]) == ((3, 5), (1, 4))


def test_copies_of_unknown_shape_are_just_ranks():
    assert copy_shards(None, [3, 5]).tolist() == [[0, 0, 0, 0, 3], [0, 0, 0, 0, 5]]
    assert copy_shards((7, 4), [3]).tolist() == [[0, 0, 7, 4, 3]]
