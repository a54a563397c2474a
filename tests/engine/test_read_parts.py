"""Numbers of Python objects are read as columns, or not at all."""

from types import SimpleNamespace

import numpy as np
import pytest

from fastplan.engine._native import number_columns
from fastplan.engine.watch import read_parts

DTYPES = [np.dtype(kind) for kind in (np.float64, np.int64, np.int32, np.uint8)]


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


def test_a_part_that_replaces_itself_is_read_to_its_end():
    class Replacing:
        def __init__(self, near):
            self.storage, self.perf = Bytes(near, 2), Cost(0.5)

        @property
        def size(self):
            owner.parts[:] = [Replacing(99) for _ in range(9)]
            return [3, 4]

    owner = SimpleNamespace(parts=[Replacing(1)])
    _, counts, ints, _ = read_parts(
        [owner],
        list="parts",
        type=Replacing,
        sizes="size",
        ints=("storage", Bytes, ("near", "far")),
        floats=("perf", Cost, ("time",)),
    )
    assert counts.tolist() == [1, 8]
    assert ints[2].tolist() == [1, 99]


def test_an_interrupt_while_an_attribute_is_read_goes_on():
    class Interrupted:
        @property
        def parts(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_parts(
            [Interrupted()],
            list="parts",
            type=Part,
            sizes="size",
            ints=("storage", Bytes, ()),
            floats=("perf", Cost, ()),
        )


def columns(*rows):
    return number_columns(rows, [*range(len(DTYPES))], DTYPES)


def test_fields_of_tuples_are_the_columns_that_numpy_makes():
    rows = [(0.5, 2**62, -3, True), (-0.0, -(2**63), 2**31 - 1, 255), (2**60 + 1, 0, 0, False)]
    for column, dtype, values in zip(columns(*rows), DTYPES, zip(*rows, strict=True), strict=True):
        assert column.dtype == dtype
        assert column.tobytes() == np.array(values, dtype).tobytes()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((0, value) for value in ("1", None, True, np.float64(1), 10**400)),
        *((1, value) for value in (1.0, 2**63, None)),
        *((2, value) for value in (2**31, 1.5, "1")),
        *((3, value) for value in (256, -1, 0.0)),
    ],
)
def test_a_field_with_anything_but_plain_numbers_in_range_is_no_column(field, value):
    rows = [[0.5, 1, 1, 1], [0.5, 1, 1, 1]]
    rows[1][field] = value
    assert [column is None for column in columns(*map(tuple, rows))] == [
        other == field for other in range(4)
    ]


@pytest.mark.parametrize(
    ("rows", "fields", "dtypes"),
    [
        (([1.0],), [0], DTYPES[:1]),
        (((1.0,),), [1], DTYPES[:1]),
        (((1.0,),), [0], []),
        (((1.0,),), [0], [np.dtype(np.float32)]),
    ],
)
def test_rows_and_fields_must_fit_together(rows, fields, dtypes):
    with pytest.raises(TypeError):
        number_columns(rows, fields, dtypes)
