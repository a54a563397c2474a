"""A lazy list is a list in every way one can look at it."""

import copy
import operator
import pickle
from functools import partial

import pytest

from fastplan.torchrec.write.plan import LazyList


@pytest.fixture
def lazy() -> LazyList:
    return LazyList(lambda: [1, 2, 3])


def test_nothing_is_built_until_somebody_looks(lazy):
    assert isinstance(lazy, list)
    assert not lazy.is_built
    assert len(lazy) == 3
    assert lazy.is_built


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (len, 3),
        (list, [1, 2, 3]),
        (tuple, (1, 2, 3)),
        (sorted, [1, 2, 3]),
        (bool, True),
        (repr, "[1, 2, 3]"),
        (lambda x: x[1], 2),
        (lambda x: x[-2:], [2, 3]),
        (lambda x: 2 in x, True),
        (lambda x: [*x], [1, 2, 3]),
        (partial(operator.add, []), [1, 2, 3]),
        (lambda x: operator.add(x, [4]), [1, 2, 3, 4]),
        (partial(operator.eq, [1, 2, 3]), True),
        (lambda x: x == [1, 2, 3], True),
        (lambda x: x != [1], True),
        (lambda x: x * 2, [1, 2, 3, 1, 2, 3]),
        (lambda x: list(reversed(x)), [3, 2, 1]),
        (lambda x: x.index(3), 2),
        (lambda x: x.count(1), 1),
        (lambda x: x.copy(), [1, 2, 3]),
        (copy.copy, [1, 2, 3]),
        (copy.deepcopy, [1, 2, 3]),
        (lambda x: pickle.loads(pickle.dumps(x)), [1, 2, 3]),
        (lambda x: dict(enumerate(x)), {0: 1, 1: 2, 2: 3}),
    ],
)
def test_every_way_to_read_it_sees_the_items(lazy, look, expected):
    assert look(lazy) == expected


def test_an_extended_list_sees_the_items(lazy):
    other = [0]
    other.extend(lazy)
    assert other == [0, 1, 2, 3]


def test_it_can_be_changed(lazy):
    lazy.append(4)
    lazy[0] = 9
    del lazy[1]
    assert lazy == [9, 3, 4]


def test_copies_are_plain_lists(lazy):
    assert type(copy.deepcopy(lazy)) is list
    assert type(pickle.loads(pickle.dumps(lazy))) is list
