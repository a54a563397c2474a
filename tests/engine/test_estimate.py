"""Shards, costs and storage of hand-made tables."""

import math
import random
from dataclasses import replace

import pytest

from fastplan.engine.solve import OutOfRange, estimate
from tests.problems import request, table


def space_of(rows, dim, ranks, types, group=None, **changes):
    made = table("t", rows, dim)._replace(**changes)
    return estimate(request([made], ranks, group or ranks, types))


def runs(space, option=0):
    begin, end = space.option_run_begin[option : option + 2]
    return [
        (int(space.run_count[r]), int(space.run_rows[r]), int(space.run_cols[r]))
        for r in range(begin, end)
    ]


@pytest.mark.parametrize(
    ("rows", "ranks", "expected"),
    [
        (10, 4, [(3, 3, 64), (1, 1, 64)]),
        (5, 4, [(2, 2, 64), (1, 1, 64), (1, 0, 64)]),
        (8, 4, [(4, 2, 64)]),
        (6, 4, [(3, 2, 64), (1, 0, 64)]),
        (1, 4, [(1, 1, 64), (3, 0, 64)]),
    ],
)
def test_row_wise_shards_are_full_blocks_then_the_rest_then_nothing(rows, ranks, expected):
    assert runs(space_of(rows, 64, ranks, ("row_wise",))) == expected


def test_row_wise_shards_of_buckets_differ_by_one_bucket():
    assert runs(space_of(10, 64, 4, ("row_wise",), buckets=5)) == [(1, 4, 64), (3, 2, 64)]


def test_uneven_row_wise_shards_follow_memory_and_the_last_takes_the_rest():
    made = request([table("t", 100, 64)], 4, 4, ("row_wise",))
    made = replace(made, cost=replace(made.cost, layout_rank_memory=(1, 1, 2, 4)))
    assert runs(estimate(made)) == [(2, 12, 64), (1, 25, 64), (1, 51, 64)]


@pytest.mark.parametrize(
    ("dim", "smallest", "width"), [(256, 0, 128), (512, 32, 32), (100, 32, 100), (96, 20, 24)]
)
def test_column_wise_shards_are_the_smallest_allowed_divisor_of_the_dimension(dim, smallest, width):
    space = space_of(1000, dim, 4, ("column_wise",), min_partition=smallest)
    assert runs(space) == [(dim // width, 1000, width)]


def test_a_grid_repeats_the_rows_of_a_host_for_every_column():
    space = space_of(10, 256, 8, ("grid_shard",), group=4)
    assert runs(space) == [(3, 3, 128), (1, 1, 128), (3, 3, 128), (1, 1, 128)]


def test_data_parallel_has_a_whole_table_on_every_rank():
    assert runs(space_of(10, 64, 8, ("data_parallel",))) == [(8, 10, 64)]


def test_storage_of_a_shard_is_pythons_ceiling_of_the_rounded_share():
    rng = random.Random(7)
    for _ in range(3000):
        rows, ranks = rng.randint(1, 10**9), rng.choice((2, 3, 7, 8, 64, 100))
        dim = rng.choice((4, 36, 64, 128, 500))
        weights = rows * dim * 4 + rng.randint(0, 9)
        space = space_of(rows, dim, ranks, ("row_wise",), bytes=weights)
        block = math.ceil(rows / ranks)
        share = math.ceil(weights * (block * dim) / (rows * dim))
        assert space.run_hbm[0] == share + 512 * 8 + 512 * ranks * dim * 4


def test_weighted_tables_read_twice_as_much_and_cost_more():
    plain = space_of(1000, 64, 4, ("table_wise",))
    weighted = space_of(1000, 64, 4, ("table_wise",), weighted=True)
    assert weighted.run_fwd_compute[0] > plain.run_fwd_compute[0]
    assert weighted.run_bwd_compute[0] > 2 * plain.run_fwd_compute[0]


def test_cache_statistics_add_a_prefetch_to_cached_kernels_only():
    space = space_of(1000, 64, 4, ("table_wise",), expected_lookups=100.0, miss_rate=0.5)
    assert list(space.run_prefetch_compute > 0) == [False, True]


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 1 << 50},
        {"bytes": 1 << 60},
        {"bytes": -1},
        {"perf_inputs": float("inf")},
        {"perf_inputs": float("nan")},
        {"storage_inputs": -5.0},
        {"optimizer_multiplier": float("inf")},
        {"rows": 0},
        {"buckets": 3},
    ],
)
def test_what_can_not_be_computed_exactly_is_refused(changes):
    with pytest.raises(OutOfRange):
        estimate(request([table("t", 1000, 64)._replace(**changes)], 4, 4, ("row_wise",)))


def test_a_size_beyond_64_bits_is_told_with_its_table():
    tables = [table("small", 1000, 64), table("huge", 1000, 64)._replace(bytes=1 << 70)]
    with pytest.raises(OutOfRange, match="`bytes` of table 'huge' is beyond 64 bits"):
        estimate(request(tables, 4, 4, ("row_wise",)))


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_a_bandwidth_that_is_not_positive_is_refused(bandwidth):
    made = request([table("t", 1000, 64)], 4, 4, ("table_wise",))
    with pytest.raises(OutOfRange, match="bandwidth"):
        estimate(replace(made, cost=replace(made.cost, bw_world_all_to_all=bandwidth)))


@pytest.mark.parametrize("kind", ["column_wise", "table_column_wise", "grid_shard"])
def test_widths_that_would_be_looked_for_all_day_are_refused(kind):
    wide = table("t", 4, (1 << 20) + 7)
    with pytest.raises(OutOfRange, match="columns"):
        estimate(request([wide], 8, 4, (kind,)))


def narrowest(dim, smallest):
    """TorchRec's loop: the first width that divides the table and is a multiple of 4."""
    fits = (w for w in range(smallest, dim) if dim % w == 0 and w % 4 == 0)
    return next(fits, dim)


def test_column_wise_shards_are_as_narrow_as_torchrec_cuts_them():
    draw = random.Random(11)
    cases = [(draw.randrange(1, 4000), draw.choice([0, 1, 4, 30, 128, 500])) for _ in range(400)]
    for dim, least in [*cases, (1 << 20, 4), ((1 << 20) - 3, 4), (1 << 20, 0)]:
        ((count, _, width),) = runs(space_of(10, dim, 4, ("column_wise",), min_partition=least))
        assert width == narrowest(dim, least or 128)
        assert count * width == dim
