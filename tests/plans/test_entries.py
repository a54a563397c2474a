"""A table of a plan file comes back as it was written, and shards that overlap are found."""

from __future__ import annotations

import random

import pytest

from fastplan.model.cuts import Cut
from fastplan.plans.checks import BadValue
from fastplan.plans.entries import EntryReader, ListedShard, TableEntry, _overlap, rank_runs


def entry(**changes) -> TableEntry:
    fields = {
        "path": "a.b",
        "name": "t",
        "sharding_type": "row_wise",
        "kernel": "fused",
        "ranks": ((0, 3),),
        "cut": Cut(((3, 5), (1, 2)), ((1, 8),)),
        "listed": None,
        "settings": {},
    }
    return TableEntry(**{**fields, **changes})


@pytest.mark.parametrize(
    "made",
    [
        entry(),
        entry(cut=Cut(((1, 5),), ((4, 8),)), settings={"enforce_hbm": True}),
        entry(cut=Cut(((2, 5),), ((1, 8), (1, 4))), ranks=((7, 7), (3, 5))),
        entry(cut=None, ranks=None),
        entry(cut=None, ranks=()),
        entry(cut=None, ranks=((0, 0), (5, 6), (0, 9))),
        entry(cut=None, listed=(ListedShard([0, 0], [5, 4], "rank:0/cpu"),)),
        entry(cut=None, listed=(ListedShard([0], [5], None), ListedShard([5], [5], "ps0/cpu"))),
    ],
    ids=range(8),
)
def test_a_table_comes_back(made):
    found = EntryReader(has_device=True).read("a.b", "t", made.json())
    assert found.json() == made.json()
    assert found.all_ranks() == made.all_ranks()
    assert found._replace(ranks=made.ranks) == made


def test_names_are_part_of_the_place():
    assert entry().place == 'modules["a.b"].t'
    assert entry(path="", name='<b>"\n').place == 'modules[""]["<b>\\"\\n"]'


@pytest.mark.parametrize(
    ("ranks", "runs"),
    [
        ([], ()),
        ([4], ((4, 4),)),
        ([0, 1, 2], ((0, 2),)),
        ([2, 1, 0], ((2, 2), (1, 1), (0, 0))),
        ([0, 1, 5, 6, 7, 7], ((0, 1), (5, 7), (7, 7))),
    ],
)
def test_ranks_that_follow_each_other_are_a_run(ranks, runs):
    assert rank_runs(ranks) == runs


def brute_overlap(shards: list[ListedShard]) -> bool:
    seen = set()
    for shard in shards:
        cells = {
            (row, column)
            for row in range(shard.offset[0], shard.offset[0] + shard.size[0])
            for column in range(shard.offset[1], shard.offset[1] + shard.size[1])
        }
        if cells & seen:
            return True
        seen |= cells
    return False


def test_overlaps_are_found_whatever_the_shards():
    draw = random.Random(3)
    found = 0
    for _ in range(600):
        shards = tuple(
            ListedShard(
                [draw.randrange(8), draw.randrange(8)], [draw.randrange(4), draw.randrange(4)], None
            )
            for _ in range(draw.randint(1, 6))
        )
        pair = _overlap(shards)
        assert (pair is not None) == brute_overlap(list(shards))
        if pair is not None:
            found += 1
            assert brute_overlap([shards[pair[0]], shards[pair[1]]])
    assert 100 < found < 500


def test_shards_of_other_dimensions_are_refused():
    shards = [
        {"offset": [0], "size": [4], "placement": None},
        {"offset": [4, 0], "size": [4, 4], "placement": None},
    ]
    fields = {"sharding_type": "a", "compute_kernel": "b", "ranks": None, "shards": shards}
    with pytest.raises(BadValue, match="number of dimensions"):
        EntryReader(has_device=True).read("m", "t", fields)
