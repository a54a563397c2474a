"""Costs and memory by rank are those behind the rating."""

import random
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine.layout import narrowed
from fastplan.engine.solve import estimate
from fastplan.model.cuts import copy_shards
from fastplan.model.plan import RANK
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from fastplan.report.analysis import analyse
from fastplan.report.estimates import PARTS, RATED
from fastplan.report.plan_text import facts
from tests.problems import ALL_TYPES, GIB, request, table
from tests.report.samples import (
    bare,
    cluster_of,
    criteo,
    criteo_row_wise,
    large,
    mixed_request,
    plan_of,
    rated,
    small,
)


def random_plan(seed):
    rng = random.Random(seed)
    group = rng.choice((1, 2, 4, 8))
    ranks = group * rng.choice((1, 2, 4))
    tables = [
        table(f"t{i}", int(10 ** rng.uniform(1, 7)), rng.choice((16, 64, 128, 256)))
        for i in range(rng.randint(1, 20))
    ]
    tables = [made._replace(perf_inputs=512 * rng.uniform(0.1, 50)) for made in tables]
    mixed = rng.random() < 0.5
    asked = (
        mixed_request(tables, ranks, group) if mixed else request(tables, ranks, group, ALL_TYPES)
    )
    return plan_of(asked, cluster_of(ranks, group, rng.choice((8, 80)) * GIB))


def shard_by_shard(plan):
    """Costs and memory by rank, added up one shard at a time."""
    basis = plan.basis
    space = estimate(narrowed(basis.request, basis.record))
    ranks = len(basis.cluster.rank_hbm)
    sums = {name: [0.0] * ranks for name in (*PARTS, "hbm", "ddr", "ssd")}
    waiting = iter(basis.record.ranks.tolist())
    columns = {"prefetch": "prefetch_compute", "input_dist": "input_dist_comms"}
    for option in range(space.options):
        shard = 0
        uniform = SHARDING_TYPES[space.option_type[option]] in UNIFORM_TYPES
        for run in range(*space.option_run_begin[option : option + 2]):
            for _ in range(space.run_count[run]):
                rank = shard if uniform else next(waiting)
                shard += 1
                for name, by_rank in sums.items():
                    by_rank[rank] += getattr(space, f"run_{columns.get(name, name)}")[run]
    return sums


@pytest.mark.parametrize("seed", range(40))
def test_every_rank_costs_and_holds_what_its_shards_do(seed):
    plan = random_plan(seed)
    analysis = analyse(plan)
    expected = shard_by_shard(plan)
    for part in PARTS:
        assert analysis.costs.parts[part] == pytest.approx(expected[part], rel=1e-12)
    for tier in analysis.memory:
        assert tier.used.tolist() == expected[tier.tier]
    used = {tier.tier for tier in analysis.memory}
    assert all(not any(expected[tier]) for tier in {"ddr", "ssd"} - used)


@pytest.mark.parametrize("seed", range(40))
def test_the_largest_total_is_the_rating(seed):
    plan = random_plan(seed)
    costs = analyse(plan).costs
    assert costs.rating == plan.basis.record.rating
    assert costs.total.max() == pytest.approx(costs.rating, rel=1e-9)
    assert costs.total == pytest.approx(sum(costs.parts[part] for part in RATED), rel=1e-12)
    assert costs.total == pytest.approx(costs.compute + costs.comms, rel=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_tables_add_up_to_ranks(seed):
    analysis = analyse(random_plan(seed))
    costs = analysis.costs
    assert sum(row.cost for row in analysis.tables) == pytest.approx(costs.total.sum())
    assert sum(row.cost_share for row in analysis.tables) == pytest.approx(1)
    there = sum(row.on_worst for row in analysis.tables)
    assert there == pytest.approx(costs.total[costs.worst_rank])


@pytest.mark.parametrize("seed", range(20))
def test_rows_say_where_the_layout_has_the_shards(seed):
    plan = random_plan(seed)
    for row, layout in zip(analyse(plan).tables, plan.layout.tables, strict=True):
        assert (row.path, row.name) == (layout.path, layout.name)
        assert row.shards == len(layout.shards)
        assert row.ranks.tolist() == sorted(set(layout.shards[:, 4].tolist()))


def test_rows_know_shape_and_size():
    row = analyse(criteo()).tables[0]
    assert (row.name, row.shape, row.element_size) == ("t_cat_0", (40_000_000, 128), 4)
    assert row.bytes == 40_000_000 * 128 * 4


def test_what_is_dearer_on_the_worst_rank_than_elsewhere_pins_it():
    analysis = analyse(criteo())
    first = analysis.tables[analysis.pinning[0]]
    assert first.ranks.tolist() == [analysis.costs.worst_rank]
    assert all(analysis.tables[i].on_worst > 0 for i in analysis.pinning)


def test_equal_ranks_are_balanced():
    costs = analyse(criteo_row_wise()).costs
    assert costs.balanced
    assert costs.imbalance == pytest.approx(0, abs=1e-9)


def test_imbalance_is_what_the_worst_rank_has_above_the_mean():
    costs = analyse(criteo()).costs
    assert not costs.balanced
    assert costs.imbalance == pytest.approx(costs.total.max() / costs.total.mean() - 1)
    assert costs.total[costs.worst_rank] == pytest.approx(costs.rating, rel=1e-9)


def test_headroom_is_that_of_the_fullest_rank():
    analysis = analyse(criteo())
    hbm = analysis.memory[0]
    free = hbm.capacity - hbm.used
    assert hbm.headroom == free.min()
    assert hbm.headroom_share == pytest.approx(free.min() / (32 * GIB))
    assert hbm.fullest_rank == int(free.argmin())
    assert analysis.fits


def test_the_fullest_rank_has_the_smallest_share_left():
    plan = small()
    uneven = replace(plan.basis.cluster, rank_hbm=(64 << 20, *[GIB] * 7))
    hbm = analyse(replace(plan, basis=replace(plan.basis, cluster=uneven))).memory[0]
    assert hbm.fullest_rank == 0


def test_a_plan_that_does_not_fit_says_so():
    plan = small()
    tiny = replace(plan.basis.cluster, rank_hbm=(1 << 20,) * 8)
    analysis = analyse(replace(plan, basis=replace(plan.basis, cluster=tiny)))
    assert analysis.fits is False
    assert analysis.memory[0].headroom < 0


def test_memory_without_capacity_is_full():
    plan = small()
    none = replace(plan.basis.cluster, rank_hbm=(0, *[GIB] * 7))
    hbm = analyse(replace(plan, basis=replace(plan.basis, cluster=none))).memory[0]
    assert hbm.fullest_rank == 0
    assert hbm.headroom < 0


def test_a_bare_layout_gives_what_is_known():
    plan = criteo()
    analysis = analyse(bare(plan))
    assert analysis.costs is None
    assert analysis.pinning == ()
    assert analysis.fits is None
    assert analysis.ranks == 8
    hbm = analysis.memory[0]
    assert (hbm.capacity, hbm.headroom, hbm.headroom_share) == (None, None, None)
    assert any("4 bytes are assumed" in text for text in analysis.assumptions)
    assert any("unknown shape" in text for text in analysis.assumptions)
    copies = [row for row in analysis.tables if row.sharding_type == "data_parallel"]
    assert {row.bytes for row in copies} == {None}
    assert {row.element_size for row in analysis.tables} == {None}


def test_a_layout_without_sizes_has_no_bytes_in_its_head():
    plan = bare(criteo())
    tables = tuple(
        each._replace(shape=None, shards=copy_shards(None, each.shards[:, RANK]))
        for each in plan.layout.tables
    )
    analysis = analyse(replace(plan, layout=replace(plan.layout, tables=tables)))
    assert facts(analysis) == "26 tables, weights of unknown size, 8 ranks (1 host x 8)"


def test_bare_weights_lie_where_the_shards_do():
    plan = bare(criteo())
    expected = np.zeros(8, np.int64)
    for layout in plan.layout.tables:
        for _, _, rows, columns, rank in layout.shards.tolist():
            expected[rank] += 4 * rows * columns
    assert analyse(plan).memory[0].used.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("kernel", "tier"),
    [
        ("fused", "hbm"),
        ("dense", "hbm"),
        ("fused_uvm_caching", "ddr"),
        ("quant_uvm", "ddr"),
        ("dram_virtual_table", "ddr"),
        ("key_value", "ssd"),
        ("ssd_virtual_table", "ssd"),
    ],
)
def test_bare_weights_are_counted_where_their_kernel_keeps_them(kernel, tier):
    plan = bare(small())
    tables = tuple(layout._replace(kernel=kernel) for layout in plan.layout.tables)
    analysis = analyse(replace(plan, layout=replace(plan.layout, tables=tables)))
    assert [memory.tier for memory in analysis.memory] == [tier]


def test_an_empty_layout_is_a_plan_too():
    plan = bare(small())
    analysis = analyse(replace(plan, layout=replace(plan.layout, tables=())))
    assert (analysis.ranks, analysis.tables, analysis.memory) == (0, (), ())


def test_costs_that_differ_from_the_rating_are_not_shown_with_the_reason():
    analysis = analyse(rated(small(), 123.0))
    assert analysis.costs is None
    assert "rating is 123" in analysis.assumptions[0]
    assert analysis.memory[0].capacity is not None
    assert analysis.tables[0].element_size == 4


def test_costs_of_resized_caches_are_not_shown_with_the_reason():
    plan = small()
    record = replace(plan.basis.record, load_factor=np.full(6, 0.3))
    analysis = analyse(replace(plan, basis=replace(plan.basis, record=record)))
    assert analysis.costs is None
    assert "resized caches" in analysis.assumptions[0]


def test_a_layout_with_another_table_than_its_request_is_refused():
    plan = small()
    tables = (plan.layout.tables[0]._replace(name="other"), *plan.layout.tables[1:])
    with pytest.raises(ValueError, match="table other"):
        analyse(replace(plan, layout=replace(plan.layout, tables=tables)))


def test_the_gap_comes_from_the_noted_bound():
    rating = small().basis.record.rating
    analysis = analyse(small(notes={"lower_bound": repr(rating / 1.25)}))
    assert analysis.lower_bound == rating / 1.25
    assert analysis.gap == pytest.approx(0.25)


@pytest.mark.parametrize("bound", ["", "nan", "inf", "-1", "0", "soon"])
def test_an_invalid_bound_is_not_shown(bound):
    analysis = analyse(small(notes={"lower_bound": bound}))
    assert (analysis.lower_bound, analysis.gap) == (None, None)


def test_many_tables_on_many_ranks():
    analysis = analyse(large())
    assert len(analysis.tables) == 1000
    assert len(analysis.costs.total) == 1024
    assert analysis.hosts == 128
