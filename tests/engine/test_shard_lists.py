"""Shards as Python objects, made by the core."""

import gc
import sys
import weakref

import numpy as np
import pytest

from fastplan.engine._native import shard_lists


class Shards(list):
    __slots__ = ("__weakref__",)


class Shard:
    __slots__ = ("placement", "shard_offsets", "shard_sizes")

    def __init__(self):
        raise AssertionError("the constructor is not called")


class Place:
    def __init__(self, rank):
        self._worker_name, self._rank, self._device = None, rank, f"device {rank}"


SHARDS = np.array([[0, 0, 8, 4, 1], [0, 4, 8, 4, 0], [0, 0, 3, 64, 2], [3, 0, 2, 64, 1]], np.int64)
BEGIN = np.array([0, 2, 2, 4], np.int64)


def made(shards=SHARDS, begin=BEGIN, **other):
    kinds = {"list_type": Shards, "shard_type": Shard, "placement_type": Place, "placement": Place}
    return shard_lists(shards, begin, **{**kinds, **other})


def numbers(lists):
    return [
        [(*s.shard_offsets, *s.shard_sizes, s.placement._rank, s.placement._device) for s in own]
        for own in lists
    ]


@pytest.mark.parametrize(
    "shards", [SHARDS, np.asfortranarray(SHARDS), np.repeat(SHARDS, 2, axis=0)[::2]]
)
def test_each_table_has_a_list_of_its_shards(shards):
    lists = made(shards)
    assert numbers(lists) == [
        [(0, 0, 8, 4, 1, "device 1"), (0, 4, 8, 4, 0, "device 0")],
        [],
        [(0, 0, 3, 64, 2, "device 2"), (3, 0, 2, 64, 1, "device 1")],
    ]
    assert {*map(type, lists)} == {Shards}
    assert all(type(n) is int for own in lists for s in own for n in s.shard_offsets)
    assert all(vars(s.placement).keys() == vars(Place(0)).keys() for own in lists for s in own)


def test_shards_share_no_lists_and_no_placements():
    shards = [shard for own in made() for shard in own]
    for field in ("shard_offsets", "shard_sizes", "placement"):
        assert len({id(getattr(shard, field)) for shard in shards}) == len(shards)


def test_the_placement_of_a_rank_is_asked_for_once():
    asked = []
    made(placement=lambda rank: asked.append(rank) or Place(rank))
    assert asked == [1, 0, 2]


def test_no_object_is_kept():
    device = object()

    def placement(rank):
        place = Place(rank)
        place._device = device
        return place

    before = sys.getrefcount(device)
    lists = made(placement=placement)
    assert sys.getrefcount(device) == before + len(SHARDS)
    watched = weakref.ref(lists[0])
    del lists
    gc.collect()
    assert watched() is None
    assert sys.getrefcount(device) == before


def test_an_error_of_a_placement_is_raised():
    def placement(rank):
        raise OSError(f"rank {rank}")

    with pytest.raises(OSError, match="rank 1"):
        made(placement=placement)


def test_an_object_without_the_names_of_a_placement():
    with pytest.raises(AttributeError, match="_worker_name"):
        made(placement=lambda rank: object())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"shards": SHARDS.astype(np.int32)}, "five columns"),
        ({"shards": SHARDS[:, :4]}, "five columns"),
        ({"shards": SHARDS[0]}, "five columns"),
        ({"begin": BEGIN.astype(np.int32)}, "`begin`"),
        ({"begin": np.array([], np.int64)}, "`begin`"),
        ({"begin": np.array([0, 5], np.int64)}, "`begin`"),
        ({"begin": np.array([1, 4], np.int64)}, "`begin`"),
        ({"begin": np.array([0, 9, 4], np.int64)}, "decrease"),
        ({"begin": np.array([0, -1, 4], np.int64)}, "decrease"),
        ({"list_type": tuple}, "list"),
        ({"shard_type": 5}, "incompatible"),
        ({"placement": 5}, "incompatible"),
    ],
)
def test_other_input_is_refused(arguments, problem):
    with pytest.raises(TypeError, match=problem):
        made(**arguments)


def test_an_array_that_is_not_aligned():
    shards = np.frombuffer(b"\0" + SHARDS.tobytes(), np.uint8)[1:].view(np.int64).reshape(-1, 5)
    assert numbers(made(shards)) == numbers(made())


def test_an_array_that_changes_while_shards_are_made():
    shards = SHARDS.copy()

    def placement(rank):
        shards.resize((0, 5), refcheck=False)
        return Place(rank)

    assert numbers(made(shards, placement=placement)) == numbers(made())


def test_a_class_without_a_way_to_make_it_is_refused():
    with pytest.raises(TypeError, match="can't be made"):
        made(shard_type=type(iter([])))
