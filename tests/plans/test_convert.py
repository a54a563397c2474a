"""Layouts become tables of a file and come back, whatever shards they have."""

from __future__ import annotations

import numpy as np
import pytest

from fastplan.model.cuts import Cut
from fastplan.model.plan import TableLayout
from fastplan.plans.checks import BadValue, PlacementRule
from fastplan.plans.entries import MOST_RANKS, ListedShard, TableEntry
from fastplan.plans.file import compacted, table_entry, table_layout

RULE = PlacementRule("cuda", 4)


def table(shards, *, kind="table_wise", shape=(8, 4), settings=None) -> TableLayout:
    lines = np.array(shards, np.int64).reshape(-1, 5)
    return TableLayout("m", "t", kind, "fused", shape, lines, settings or {})


def listed(*shards, ranks=None) -> TableEntry:
    placed = tuple(ListedShard(*shard) for shard in shards)
    return TableEntry("m", "t", "table_wise", "fused", ranks, None, placed, {})


@pytest.mark.parametrize(
    "made",
    [
        table([[0, 0, 8, 4, 5]]),
        table([[0, 0, 5, 4, 5], [5, 0, 3, 4, 5]], kind="row_wise"),
        table([[0, 0, 5, 4, 5], [6, 0, 2, 4, 1]]),  # a gap, so no blocks
        table([[0, 2, 8, 2, 0], [0, 0, 8, 2, 1]]),  # backwards
        table([[0, 0, 8, 4, 0]], shape=(9, 4)),
        table([[0, 0, 0, 0, 2], [0, 0, 0, 0, 7]], kind="data_parallel", shape=None),
        table([[0, 0, 0, 0, 2]], kind="row_wise", shape=None),
        table([], kind="row_wise", shape=None, settings={"ranks": None}),
        table([[0, 0, 8, 4, 5]], settings={"enforce_hbm": True, "cache_params": {"a": [1, None]}}),
    ],
    ids=range(9),
)
def test_a_layout_comes_back(made):
    entry = table_entry(made, RULE)
    found = table_layout(entry)
    assert np.array_equal(found.shards, made.shards)
    kept = {name: value for name, value in found.settings.items() if name != "shards"}
    if entry.listed is None:
        assert kept == made.settings
        assert found.shape == made.shape
    assert table_entry(found, RULE).json() == entry.json()


def test_a_copys_shape_is_not_in_a_file():
    made = table([[0, 0, 8, 4, 0]], kind="data_parallel")
    assert table_layout(table_entry(made, RULE)).shape is None


def test_odd_placements_are_kept():
    entry = listed(([0, 0], [5, 4], "rank:1/cuda:7"), ([5, 0], [3, 4], "ps0/cpu"), ranks=((2, 3),))
    layout = table_layout(entry)
    assert layout.shards.tolist() == [[0, 0, 5, 4, 1], [5, 0, 3, 4, 3]]
    assert layout.shape == (8, 4)
    assert table_entry(layout, RULE).json() == entry.json()


def test_vectors_have_one_column():
    layout = table_layout(listed(([0], [5], "rank:1/cpu"), ([5], [3], "rank:0/cpu")))
    assert layout.shards.tolist() == [[0, 0, 5, 1, 1], [5, 0, 3, 1, 0]]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (listed(([0, 0], [5, 4], None)), "names no rank"),
        (listed(([0, 0], [5, 4], "cpu"), ranks=((0, 1),)), "names no rank"),
        (listed(([0, 0, 0], [5, 4, 2], "rank:0/cpu")), "must be rows and columns"),
        (listed(([0, 0], [2**62, 4], "rank:0/cpu")), "must be inside a table"),
        (listed(([0, 0], [5, 4], f"rank:{MOST_RANKS}/cpu")), "must be ranks below"),
        (
            listed()._replace(listed=None, cut=Cut(((1, 2**40),), ((1, 2**40),)), ranks=((0, 0),)),
            "must be a table of up to",
        ),
    ],
    ids=["no rank", "too many ranks", "three", "long", "rank", "large"],
)
def test_what_lies_nowhere_is_refused(entry, text):
    with pytest.raises(BadValue, match=text) as caught:
        table_layout(entry)
    assert caught.value.place.startswith("modules.m.t")


@pytest.mark.parametrize(
    ("settings", "place", "text"),
    [
        ({"enforce": 1}, "modules.m.t.enforce", "is unknown; known are cache_params"),
        ({"enforce_hbm": float("nan")}, "modules.m.t.enforce_hbm", "is not JSON"),
        ({"enforce_hbm": object()}, "modules.m.t.enforce_hbm", "is not JSON"),
        ({"shards": "x"}, "modules.m.t.shards", "must be a list"),
        ({"shards": [], "ranks": [0]}, "modules.m.t.shards", "Empty shard list"),
    ],
)
def test_settings_must_be_those_of_a_file(settings, place, text):
    with pytest.raises(BadValue, match=text) as caught:
        table_entry(table([[0, 0, 8, 4, 5]], settings=settings), RULE)
    assert caught.value.place == place


def test_shards_need_a_device():
    with pytest.raises(BadValue, match=r"must be known, because modules\.m\.t has shards"):
        table_entry(table([[0, 0, 8, 4, 5]]), None)
    copies = table([[0, 0, 8, 4, 5]], kind="data_parallel")
    assert table_entry(copies, None).ranks == ((5, 5),)


def test_listed_blocks_that_lie_by_a_rule_become_blocks():
    blocks = listed(
        ([0, 0], [5, 4], "rank:0/cuda:0"), ([5, 0], [3, 4], "rank:5/cuda:1"), ranks=((0, 0), (5, 5))
    )
    elsewhere = listed(([0, 0], [5, 4], "rank:6/cpu"), ranks=((6, 6),))
    gap = listed(([3, 0], [5, 4], "rank:0/cuda:0"), ranks=((0, 0),))
    found, rule = compacted([blocks, elsewhere, gap])
    assert rule == RULE
    assert found[0].listed is None
    assert found[0].cut == Cut(((1, 5), (1, 3)), ((1, 4),))
    assert found[1:] == [elsewhere, gap]
