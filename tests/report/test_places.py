"""Where the shards of one option go."""

import numpy as np

from fastplan.report.places import Cluster, Limits, Loads, Shards, all_places, best_place


def shards(count, cost=1.0, hbm=10):
    return Shards(np.full(count, cost), np.tile(np.array([hbm, 0, 0]), (count, 1)))


def loads(cost, room=1000):
    return Loads(np.array(cost, float), np.full((len(cost), 3), room, np.int64))


FOUR = loads([0.0, 0.5, 3.0, 4.0])
RANKS = Cluster(4, 2)


def placed(kind, count, **more):
    found = best_place(kind, shards(count), FOUR, RANKS, Limits(), **{"apart": False, **more})
    return None if found is None else (found.ranks.tolist(), found.cost)


def test_the_least_loaded_ranks_are_filled_first():
    assert placed("table_wise", 1) == ([0], 1.0)
    assert placed("column_wise", 3) == ([0, 0, 1], 2.0)
    assert placed("column_wise", 7) == ([0, 0, 0, 1, 1, 1, 2], 4.0)


def test_shards_that_must_be_apart_have_a_rank_each():
    assert placed("column_wise", 3, apart=True) == ([0, 1, 2], 4.0)
    assert placed("column_wise", 5, apart=True) is None


def test_hosts_hold_what_is_split_by_host():
    assert placed("table_row_wise", 2) == ([0, 1], 1.5)
    assert placed("table_column_wise", 4) == ([0, 0, 1, 1], 2.5)
    assert placed("grid_shard", 4) == ([0, 1, 0, 1], 2.5)
    assert placed("table_row_wise", 3) is None


def test_a_tower_has_one_host():
    there = Cluster(4, 2, host=1)
    for kind, count in (("table_wise", 1), ("table_row_wise", 2), ("grid_shard", 2)):
        found = best_place(kind, shards(count), FOUR, there, Limits(), apart=False)
        assert min(found.ranks) >= 2


def test_a_tier_that_a_shard_does_not_use_may_be_overfull():
    full = loads([0.0, 1.0])
    full.room[:, 1] = -5
    assert best_place("table_wise", shards(1), full, Cluster(2, 2), Limits(), apart=False)
    full.room[:, 0] = 9
    assert not best_place("table_wise", shards(1), full, Cluster(2, 2), Limits(), apart=False)


def test_more_placements_than_asked_for_are_not_all_of_them():
    every = [*all_places("table_wise", shards(1), FOUR, RANKS, apart=False, most=4)]
    assert [place.ranks.tolist() for place in every] == [[0], [1], [2], [3]]
    assert all(place.exact for place in every)
    some = [*all_places("table_wise", shards(1), FOUR, RANKS, apart=False, most=3)]
    assert [place.exact for place in some] == [False] * 3
    several = [*all_places("column_wise", shards(2), FOUR, RANKS, apart=False, most=3)]
    assert [(place.ranks.tolist(), place.exact) for place in several] == [([0, 1], False)]
