"""Numbers of Python objects are read as columns, or not at all."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastplan.engine.watch import read_parts


class Part:
    def __init__(self, size, bytes_, cost):
        self.size, self.storage, self.perf = size, bytes_, cost


class Bytes:
    def __init__(self, near, far):
        self.near, self.far = near, far


class Cost:
    def __init__(self, time):
        self.time = time


def part(rows=3, near=7, time=0.5):
    return Part([rows, 4], Bytes(near, 2**62), Cost(time))


def read(*objects):
    return read_parts(
        [SimpleNamespace(parts=parts) for parts in objects],
        list="parts",
        type=Part,
        sizes="size",
        ints=("storage", Bytes, ("near", "far")),
        floats=("perf", Cost, ("time",)),
    )


def test_equal_neighbours_are_one_run():
    begin, counts, ints, floats = read([part(), part(), part(near=8), part()], [part()])
    assert begin.tolist() == [0, 3, 4]
    assert counts.tolist() == [2, 1, 1, 1]
    assert [column.tolist() for column in ints] == [[3] * 4, [4] * 4, [7, 8, 7, 7], [2**62] * 4]
    assert [column.tolist() for column in floats] == [[0.5] * 4]
    assert [column.dtype for column in (*ints, *floats)] == [np.int64] * 4 + [np.float64]


def test_whole_numbers_are_costs_too():
    _, counts, _, [times] = read([part(time=0), part(time=0.0), part(time=2**53)])
    assert (counts.tolist(), times.tolist()) == ([2, 1], [0.0, 2.0**53])


class Int(int):
    pass


@pytest.mark.parametrize(
    "parts",
    [
        [],
        (part(),),
        [part(), SimpleNamespace(**vars(part()))],
        [part(rows=True)],
        [part(rows=2**63)],
        [part(near=Int(3))],
        [part(near=1.0)],
        [part(time=float("nan"))],
        [part(time=np.float64(1))],
        [part(time=2**53 + 1)],
        [part(time=None)],
        [Part([3], Bytes(1, 2), Cost(0.5))],
        [Part((3, 4), Bytes(1, 2), Cost(0.5))],
        [Part([3, 4], None, Cost(0.5))],
        [Part([3, 4], Bytes(1, 2), Bytes(1, 2))],
    ],
    ids=range(15),
)
def test_what_is_no_plain_number_is_left_to_python(parts):
    assert read([part()], parts) is None
