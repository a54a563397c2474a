"""Movement is what a count of single cells finds."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fastplan.model.cuts import Cut, block_shards, copy_shards
from fastplan.model.plan import RANK, Layout, Plan, TableLayout
from fastplan.planning.movement import (
    ADDED,
    KERNEL,
    MOVED,
    REMOVED,
    RESHARDED,
    UNCHANGED,
    Movement,
    movement,
)
from tests import problems
from tests.plans.samples import cluster_of, mixed_plan, plan_for, random_record


def table(name, shards, *, kind="row_wise", kernel="fused", shape=(8, 4)) -> TableLayout:
    lines = np.array(shards, np.int64).reshape(-1, 5)
    return TableLayout("m", name, kind, kernel, shape, lines, {})


def blocks(name, rows, ranks, *, columns=((1, 4),), **fields) -> TableLayout:
    cut = Cut(rows, columns)
    return table(name, block_shards(cut, ranks), shape=cut.shape, **fields)


def copies(name, ranks, shape=(8, 4)) -> TableLayout:
    return table(name, copy_shards(shape, ranks), kind="data_parallel", shape=shape)


def plan(*tables, host=None) -> Plan:
    return Plan(name="x", layout=Layout(tables=tables, device="cuda", ranks_per_host=host))


def cells_by_rank(layout: TableLayout | None) -> dict[int, set[tuple[int, int]]]:
    found: dict[int, set[tuple[int, int]]] = {}
    for row, column, rows, columns, rank in [] if layout is None else layout.shards.tolist():
        found.setdefault(rank, set()).update(
            (i, j) for i in range(row, row + rows) for j in range(column, column + columns)
        )
    return found


def brute(before: Plan, after: Plan) -> dict[str, Counter]:
    """Bytes by rank, one cell after the other."""
    old = {(t.path, t.name): t for t in before.layout.tables}
    sizes = {}
    for made in (before, after):
        if made.basis is not None:
            for facts in made.basis.request.tables:
                sizes[facts.path, facts.name] = facts.element_size * (
                    1 + facts.optimizer_multiplier
                )
    count = {"received": Counter(), "created": Counter(), "near": Counter(), "table": Counter()}
    host = after.layout.ranks_per_host or 1
    for new in after.layout.tables:
        size = sizes.get((new.path, new.name), 4)
        held = cells_by_rank(old.get((new.path, new.name)))
        for rank, needed in cells_by_rank(new).items():
            for cell in needed - held.get(rank, set()):
                holders = [other for other, cells in held.items() if cell in cells]
                count["table"][new.path, new.name] += size
                if not holders:
                    count["created"][rank] += size
                    continue
                count["received"][rank] += size
                if any(other // host == rank // host for other in holders):
                    count["near"][rank] += size
    return count


def check(before: Plan, after: Plan) -> Movement:
    found = movement(before, after)
    expected = brute(before, after)
    ranks = range(len(found.rank_received))
    assert found.rank_received.tolist() == [expected["received"][rank] for rank in ranks]
    assert found.rank_created.tolist() == [expected["created"][rank] for rank in ranks]
    assert found.rank_sent.sum() == found.rank_received.sum() == found.bytes
    for each in found.tables:
        assert each.bytes == expected["table"][each.path, each.name], each.name
    sizes = [each.bytes for each in found.tables]
    assert sizes == sorted(sizes, reverse=True)
    return found


def random_table(draw: random.Random, name: str, ranks: int, shape) -> TableLayout:
    """Copies, blocks, or a few shards that leave gaps."""
    rows, columns = shape
    style = draw.randrange(4)
    if style == 0:
        return copies(name, draw.sample(range(ranks), draw.randint(1, ranks)), shape)
    heights = [b - a for a, b in _pairs(draw, rows)]
    widths = [b - a for a, b in _pairs(draw, columns)]
    cut = Cut(tuple((1, size) for size in heights), tuple((1, size) for size in widths))
    shards = block_shards(cut, [draw.randrange(ranks) for _ in range(cut.blocks)])
    if style == 1:
        shards = shards[draw.sample(range(len(shards)), max(1, len(shards) - 1))]
    return table(name, shards, kind="grid_shard", shape=shape)


def _pairs(draw: random.Random, length: int):
    cuts = sorted(draw.sample(range(length + 1), draw.randint(0, min(3, length))))
    ends = [0, *cuts, length]
    return list(pairwise(ends))


@pytest.mark.parametrize("seed", range(150))
def test_random_tables_move_as_their_cells_do(seed):
    draw = random.Random(seed)
    ranks = draw.randint(1, 6)
    host = draw.choice((None, 1, 2, 3))
    sides = []
    names = [f"t{i}" for i in range(draw.randint(1, 4))]
    grow = draw.random() < 0.3
    shapes = {name: (draw.randint(1, 7), draw.randint(1, 5)) for name in names}
    for side in range(2):
        tables = []
        for name in names:
            rows, columns = shapes[name]
            if side and grow:
                rows, columns = rows + draw.randint(-rows + 1, 3), columns + draw.randint(0, 2)
            if draw.random() < 0.9:
                tables.append(random_table(draw, name, ranks, (rows, columns)))
        sides.append(plan(*tables, host=host))
    found = check(*sides)
    assert found.seconds is None
    same = movement(sides[0], sides[0])
    assert same.bytes == same.created == 0
    assert {each.change for each in same.tables} <= {UNCHANGED}


def busy_bytes(before: Plan, after: Plan, link: str) -> Counter:
    """By rank, what it sends or receives over a link, whichever is more."""
    transfers = {}
    movement(before, after, transfers)
    ways = Counter()
    for sent in transfers.values():
        for source, target, size in zip(sent.source, sent.target, sent.bytes, strict=True):
            if (source // 4 == target // 4) == (link == "near"):
                ways["sent", int(source)] += int(size)
                ways["received", int(target)] += int(size)
    return Counter({rank: max(ways["sent", rank], ways["received", rank]) for _, rank in ways})


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_every_type_move_as_their_cells_do(seed):
    draw = random.Random(seed)
    tables = [
        problems.table(f"t{i}", draw.randint(1, 12), draw.choice((8, 16)))._replace(
            min_partition=4,
            element_size=draw.choice((2, 4)),
            optimizer_multiplier=draw.choice((0.0, 1.0, 2.0)),
        )
        for i in range(7)
    ]
    request = problems.request(tables, 8, 4, problems.ALL_TYPES)
    plans = [
        plan_for(
            request,
            cluster_of(8, 4),
            problems.DEFAULT_SEARCH,
            random_record(request, random.Random(seed * 10 + i), 8, 4),
        )
        for i in range(2)
    ]
    found = check(*plans)
    assert not found.assumed
    cost = request.cost
    busy = Counter()
    for link, bandwidth in (("near", cost.bw_group_all_gather), ("far", cost.bw_across_all_to_all)):
        for rank, size in busy_bytes(*plans, link).items():
            busy[rank] += size / bandwidth / 1000
    assert found.seconds == pytest.approx(max(busy.values()), rel=1e-12)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (blocks("t", ((2, 4),), [0, 1]), blocks("t", ((2, 4),), [0, 1]), UNCHANGED),
        (blocks("t", ((2, 4),), [0, 1]), blocks("t", ((2, 4),), [0, 1], kernel="dense"), KERNEL),
        (blocks("t", ((2, 4),), [0, 1]), blocks("t", ((2, 4),), [1, 0]), MOVED),
        (blocks("t", ((2, 4),), [0, 1]), blocks("t", ((1, 8),), [0]), RESHARDED),
        (
            blocks("t", ((1, 8),), [0], kind="table_wise"),
            blocks("t", ((1, 8),), [0], kind="column_wise"),
            RESHARDED,
        ),
        (copies("t", [0, 1]), copies("t", [0, 1]), UNCHANGED),
        (copies("t", [0, 1]), copies("t", [0, 1, 2]), MOVED),
        (copies("t", [0], (8, 4)), copies("t", [0], (9, 4)), RESHARDED),
        (None, copies("t", [0]), ADDED),
        (copies("t", [0]), None, REMOVED),
    ],
)
def test_changes_are_told_apart(before, after, change):
    made = [plan(*filter(None, [side])) for side in (before, after)]
    found = check(*made)
    assert [each.change for each in found.tables] == [change]
    assert found.count(change) == 1
    assert (found.tables[0].before, found.tables[0].after) == (before, after)


def test_a_type_of_the_same_shards_is_resharded_without_moving_anything():
    found = movement(
        plan(blocks("t", ((1, 8),), [0], kind="table_wise")),
        plan(blocks("t", ((1, 8),), [0], kind="column_wise")),
    )
    assert (found.bytes, found.tables[0].change) == (0, RESHARDED)


def test_a_copy_comes_from_the_own_host():
    before, after = copies("t", [0, 4]), copies("t", [0, 4, 5, 6, 2])
    found = movement(plan(before, host=4), plan(after, host=4))
    size = 8 * 4 * 4
    assert found.rank_received.tolist() == [0, 0, size, 0, 0, size, size]
    assert found.rank_sent.tolist() == [size, 0, 0, 0, 2 * size, 0, 0]


def test_without_a_request_elements_of_four_bytes_are_assumed():
    found = movement(plan(copies("t", [0])), plan(copies("t", [1])))
    assert (found.bytes, found.assumed, found.seconds) == (8 * 4 * 4, True, None)
    assert not movement(plan(copies("t", [0])), plan(copies("t", [0]))).assumed


def test_a_bare_plan_takes_element_sizes_from_the_other_one():
    made = mixed_plan(count=7)
    bare = replace(made, basis=None)
    moved = tuple(
        each._replace(shards=np.column_stack([each.shards[:, :RANK], each.shards[:, RANK] ^ 1]))
        for each in made.layout.tables
        if each.sharding_type == "table_wise"
    )
    other = replace(bare, layout=replace(bare.layout, tables=moved))
    assert not movement(other, made).assumed
    assert movement(other, bare).assumed


def test_an_unknown_shape_is_taken_from_where_it_is_known():
    unknown = table("t", [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1]], kind="data_parallel", shape=None)
    alone = table("t", [[0, 0, 0, 0, 3]], kind="table_wise", shape=None)
    for before in (unknown, alone):
        found = movement(plan(before), plan(blocks("t", ((2, 4),), [0, 2])))
        known = copies("t", before.shards[:, RANK])
        expected = movement(plan(known), plan(blocks("t", ((2, 4),), [0, 2])))
        assert found.bytes == expected.bytes > 0
        assert not found.unknown


@pytest.mark.parametrize(
    ("ranks", "kernel", "change"),
    [
        ([0, 1], "fused", UNCHANGED),
        ([0, 1], "fused_uvm", KERNEL),
        ([0, 2], "fused", MOVED),
        ([0, 1, 2], "fused", RESHARDED),
    ],
)
def test_sizes_that_one_plan_does_not_tell_are_taken_for_the_same(ranks, kernel, change):
    known = blocks("t", ((2, 4),), [0, 1])
    bare = table("t", [[0, 0, 0, 0, rank] for rank in ranks], kernel=kernel, shape=None)
    for before, after in ((known, bare), (bare, known)):
        found = movement(plan(before), plan(after))
        assert [each.change for each in found.tables] == [change]


@pytest.mark.parametrize(
    ("ranks", "change", "size"),
    [([0, 1], UNCHANGED, 0), ([1, 0], MOVED, None), ([0, 1, 2], RESHARDED, None)],
)
def test_tables_of_unknown_shape_are_not_counted(ranks, change, size):
    def made(ranks):
        return plan(table("t", [[0, 0, 0, 0, rank] for rank in ranks], shape=None))

    found = movement(made([0, 1]), made(ranks))
    assert (found.tables[0].change, found.tables[0].bytes) == (change, size)
    assert len(found.unknown) == (size is None)
    assert found.bytes == 0


def test_fewer_and_more_ranks_are_counted():
    wide = blocks("t", ((8, 1),), range(8))
    narrow = blocks("t", ((2, 4),), range(2))
    shrunk = check(plan(wide), plan(narrow))
    assert shrunk.rank_sent.tolist()[2:] == [16] * 6
    grown = check(plan(narrow), plan(wide))
    assert grown.rank_received.tolist()[2:] == [16] * 6


def test_no_bandwidth_no_seconds():
    made = mixed_plan(count=7)
    cost = replace(
        made.basis.request.cost,
        bw_group_all_gather=0.0,
        bw_group_reduce_scatter=float("nan"),
        bw_across_all_to_all=0.0,
        bw_world_all_to_all=0.0,
    )
    request = replace(made.basis.request, cost=cost)
    slow = replace(made, basis=replace(made.basis, request=request))
    assert movement(slow, slow).seconds == 0.0
    other = replace(slow, layout=mixed_plan(5, count=7).layout)
    assert movement(slow, other).seconds is None


def test_empty_plans_have_nothing_to_move():
    found = movement(plan(), plan())
    assert (found.bytes, found.tables, found.unknown) == (0, (), ())


def test_a_table_on_no_known_rank_is_not_counted():
    nowhere = table("t", [], shape=None)
    found = movement(plan(nowhere), plan(copies("t", [0])))
    assert found.tables[0].change == RESHARDED
    assert found.tables[0].bytes is None
