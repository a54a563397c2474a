"""The digest of a function follows everything that it computes with."""

import math
import sys
from enum import IntEnum
from types import FunctionType, ModuleType

import numpy as np
import pytest
from numba import njit

from fastplan.costs.errors import NoFingerprint
from fastplan.costs.identity import digest


def made(source: str, **globals_: object) -> FunctionType:
    """A function of a module of its own."""
    names: dict[str, object] = {**globals_}
    exec(source, names)
    function = names["f"]
    assert isinstance(function, FunctionType)
    return function


READS = "def f(shard, out):\n    out.fwd_compute = x\n"


def test_equal_code_and_values_give_equal_digests():
    assert digest(made(READS, x=1.5)) == digest(made(READS, x=1.5))


@pytest.mark.parametrize(
    "source",
    [
        "def f(shard, out):\n    out.fwd_compute = x + 1\n",
        "def f(shard, out):\n    out.bwd_compute = x\n",
        "def f(out, shard):\n    out.fwd_compute = x\n",
        "def f(shard, out):\n    out.fwd_compute = (lambda: 2.0)() * x\n",
    ],
)
def test_other_code_gives_another_digest(source):
    assert digest(made(READS, x=1.5)) != digest(made(source, x=1.5))


def test_a_constant_deep_inside_counts():
    source = "def f(shard, out):\n    g = lambda: {}\n    out.fwd_compute = g()\n"
    assert digest(made(source.format(2.0))) != digest(made(source.format(3.0)))


def test_comments_and_lines_do_not_count():
    moved = "\n\n" + READS.replace("= x", "= x  # the measured value")
    assert digest(made(READS, x=1.5)) == digest(made(moved, x=1.5))


class Colour(IntEnum):
    RED = 1


class Shade(IntEnum):
    RED = 2


VALUES = [
    1,
    1.0,
    True,
    -0.0,
    0.0,
    (1.0, 2.0),
    ((1.0,), 2.0),
    "1",
    None,
    np.arange(3),
    np.arange(3.0),
    np.arange(4),
    np.arange(4).reshape(2, 2),
    np.float32(1),
    Colour.RED,
    Shade.RED,
    Colour,
    math.exp,
    math.log,
    np.sqrt,
    float,
    max,
    math,
    np,
    njit(made(READS, x=2.0)),
    njit(made(READS, x=3.0)),
    njit(fastmath=True)(made(READS, x=3.0)),
]


def test_every_value_of_a_global_counts():
    assert len({digest(made(READS, x=value)) for value in VALUES}) == len(VALUES)


def test_only_globals_that_are_read_count():
    assert digest(made(READS, x=1.5, y=2)) == digest(made(READS, x=1.5, y=object()))


def test_closures_count():
    source = """
def make(x):
    def f(shard, out):
        out.fwd_compute = x
    return f
f = make(z)
"""
    assert len({digest(made(source, z=value)) for value in (1.0, 2.0, 1.0)}) == 2


def test_attributes_of_modules_count(monkeypatch):
    own = ModuleType("fastplan_test_constants")
    own.x, own.unused = 1.0, object()
    monkeypatch.setitem(sys.modules, own.__name__, own)
    source = "import fastplan_test_constants as c\ndef f(shard, out):\n    out.fwd_compute = c.x\n"
    function = made(source)
    before = digest(function)
    assert digest(function) == before
    own.x = 2.0
    assert digest(function) != before


def test_functions_that_call_each_other_are_followed_once():
    source = """
def g(shard, out):
    f(shard, out)
def f(shard, out):
    g(shard, out)
    out.fwd_compute = x
"""
    assert digest(made(source, x=1)) != digest(made(source, x=2))


@pytest.mark.parametrize("value", [object(), [1], {}, np.array([object()])])
def test_what_can_not_be_told_is_named(value):
    with pytest.raises(NoFingerprint, match=f"`x` is a {type(value).__name__}"):
        digest(made(READS, x=value))
