"""A cost is what its code and all values say now, in this process and from the disk."""

import ctypes
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba import njit
from numba.extending import intrinsic, overload, register_jitable

import fastplan
from fastplan.costs.errors import NoFingerprint
from fastplan.costs.identity import digest
from fastplan.engine import _native

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(monkeypatch):
    """A module with constants."""
    own = ModuleType("fastplan_test_config")
    own.A, own.B = 1.0, 10.0
    monkeypatch.setitem(sys.modules, own.__name__, own)
    return own


def cost_of(source: str, **names: object):
    """A cost of a module of its own."""
    names = {"numba": numba, "njit": njit, "np": np, "fastplan": fastplan, **names}
    exec(source, names)
    function = names["f"]
    assert isinstance(function, FunctionType)
    return fastplan.shard_cost(function)


def priced(cost) -> float:
    """What the machine code sets."""
    shards, costs = np.zeros(1, _native.SHARD_DTYPE), np.zeros(1, _native.COST_DTYPE)
    assert cost.price(shards, costs) == 1
    return float(costs["fwd_compute"][0])


TWO_READERS = """
@njit
def helper():
    return cfg.B

def f(shard, out):
    out.fwd_compute = cfg.A + helper()
"""


def test_every_reader_of_a_module_counts(config):
    cost = cost_of(TWO_READERS, cfg=config)
    before = cost.fingerprint()
    assert priced(cost) == 11.0
    config.B = 20.0
    assert cost.fingerprint() != before
    assert priced(cost) == 21.0
    config.B = 10.0
    assert (cost.fingerprint(), priced(cost)) == (before, 11.0)


def test_a_helper_that_its_owner_has_compiled_before_is_compiled_for_the_values_of_now(config):
    cost = cost_of(TWO_READERS, cfg=config)
    helper = cost._function.__globals__["helper"]
    assert helper() == 10.0
    config.B = 20.0
    assert priced(cost) == 21.0
    assert helper() == 10.0  # numba's own semantics, left to its owner


def test_a_helper_with_a_declared_signature_keeps_it(config):
    source = """
@njit(signature)
def helper(x):
    return x / 3

def f(shard, out):
    out.fwd_compute = helper(1.0)
"""
    costs = [cost_of(source, signature=f"{kind}({kind})") for kind in ("float64", "float32")]
    assert [priced(cost) for cost in costs] == [1 / 3, float(np.float32(1) / np.float32(3))]
    assert costs[0].fingerprint() != costs[1].fingerprint()


@pytest.mark.parametrize("place", ["cfg.sub.C", "cfg.sub.cfg.sub.C", "make_alias().C"])
def test_modules_in_modules_count(config, place):
    config.sub = ModuleType("fastplan_test_config.sub")
    config.sub.C, config.sub.cfg = 1.0, config
    if place == "make_alias().C":
        source = "def f(shard, out):\n    alias = cfg.sub\n    out.fwd_compute = alias.C\n"
    else:
        source = f"def f(shard, out):\n    out.fwd_compute = {place}\n"
    cost = cost_of(source, cfg=config)
    assert priced(cost) == 1.0
    config.sub.C = 2.0
    assert priced(cost) == 2.0


def test_a_module_in_a_closure_counts(config):
    source = """
def make(cfg):
    def f(shard, out):
        out.fwd_compute = cfg.A
    return f
f = make(config)
"""
    cost = cost_of(source, config=config)
    assert priced(cost) == 1.0
    config.A = 2.0
    assert priced(cost) == 2.0


def test_an_attribute_by_its_text_counts(config):
    cost = cost_of("def f(shard, out):\n    out.fwd_compute = getattr(cfg, 'A')\n", cfg=config)
    assert priced(cost) == 1.0
    config.A = 2.0
    assert priced(cost) == 2.0


def test_what_a_module_makes_on_demand_counts_and_is_not_taken_for_what_is_gone(config):
    numbers = iter(range(100))

    def made(name):
        if name in ("x", "y"):
            return np.full(3, float(next(numbers)))
        raise AttributeError(name)

    config.__getattr__ = made
    source = "def f(shard, out):\n    out.fwd_compute = cfg.x[0] * 10 + cfg.y[0]\n"
    assert priced(cost_of(source, cfg=config)) % 11 == 1.0  # 10 * n + (n + 1): read once each


def test_large_arrays_are_those_of_the_fingerprint():
    source = "def f(shard, out):\n    out.fwd_compute = table[0]\n"
    first = np.full(1 << 18, 1.0)  # numba reads arrays of more than 1 MB where they lie
    cost = cost_of(source, table=first)
    assert priced(cost) == 1.0
    first[:] = 2.0
    assert priced(cost) == 2.0
    cost._function.__globals__["table"] = np.full(1 << 18, 1.0)
    assert priced(cost) == 1.0


def test_defaults_of_helpers_count():
    source = """
@njit
def helper(x, y=value):
    return x * y

def f(shard, out):
    out.fwd_compute = helper(2.0)
"""
    cost = cost_of(source, value=3.0)
    assert priced(cost) == 6.0
    cost._function.__globals__["helper"].py_func.__defaults__ = (4.0,)
    assert priced(cost) == 8.0


def test_helpers_that_call_themselves_are_compiled():
    source = """
@njit
def helper(n):
    if n <= 0:
        return K
    return helper(n - 1) + 1.0

def f(shard, out):
    out.fwd_compute = helper(3)
"""
    cost = cost_of(source, K=1.0)
    assert priced(cost) == 4.0
    cost._function.__globals__["K"] = 2.0
    assert priced(cost) == 5.0


def test_where_a_try_begins_and_the_kind_of_arguments_count():
    source = """
def f(shard, out):
    try:
        out.fwd_compute = 2.0
    except Exception:
        out.fwd_compute = 1.0
"""
    code = cost_of(source)._function.__code__
    others = [{"co_exceptiontable": b""}, {"co_flags": code.co_flags | 0x80}]
    codes = [code.replace(**other) for other in ({}, *others)]
    assert len({digest(FunctionType(each, {})) for each in codes}) == 3


class Plain(IntEnum):
    ONE = 1
    TWO = 2
    USED = ONE


class Changed(IntEnum):
    ONE = 1
    TWO = 2
    USED = TWO


Changed.__qualname__ = "Plain"


def test_other_names_of_members_count():
    source = "def f(shard, out):\n    out.fwd_compute = E.USED.value\n"
    costs = [cost_of(source, E=kind) for kind in (Plain, Changed)]
    assert [priced(cost) for cost in costs] == [1.0, 2.0]
    assert costs[0].fingerprint() != costs[1].fingerprint()


def test_names_of_fields_count():
    class Point(NamedTuple):
        a: float
        b: float

    first = Point

    class Point(NamedTuple):
        b: float
        a: float

    source = "def f(shard, out):\n    out.fwd_compute = p.a\n"
    costs = [cost_of(source, p=kind(1.0, 2.0)) for kind in (first, Point)]
    assert [priced(cost) for cost in costs] == [1.0, 2.0]
    assert costs[0].fingerprint() != costs[1].fingerprint()


def test_a_number_that_shows_itself_otherwise_is_not_followed():
    class Loud(int):
        def __repr__(self):
            return "a number"

    cost = cost_of("def f(shard, out):\n    out.fwd_compute = x\n", x=Loud(1))
    with pytest.raises(NoFingerprint, match="`x` is a Loud"):
        cost.fingerprint()


@numba.vectorize(["float64(float64)"])
def of_ones_own(x):
    return x + 1.0


@intrinsic
def opaque(typing_context):
    signature = numba.types.float64()

    def codegen(context, builder, signature, args):
        return context.get_constant(numba.types.float64, NUMBERS.opaque)

    return signature, codegen


def overloaded():
    """Taught to numba below."""


@overload(overloaded)
def taught():
    number = NUMBERS.overloaded
    return lambda: number


@register_jitable
def jitable():
    return NUMBERS_JITABLE.value


NUMBERS = SimpleNamespace(overloaded=1.0, opaque=1.0)
NUMBERS_JITABLE = ModuleType("numbers_jitable")
NUMBERS_JITABLE.value = 1.0

POINTER_TYPE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
ONE, TWO = (POINTER_TYPE(lambda x, n=n: n) for n in (1.0, 2.0))
CALLBACKS = [numba.cfunc("float64(float64)")(eval(f"lambda x: {n}.0")) for n in (1, 2)]

CALLS = "def f(shard, out):\n    out.fwd_compute = {}\n"


@pytest.mark.parametrize(
    ("call", "names", "reason"),
    [
        ("g(0.0)", {"g": ONE}, "`g` is a CFunctionType"),
        ("g(0.0)", {"g": CALLBACKS[0]}, "`g` is a CFunc"),
        ("g(0.0)", {"g": of_ones_own}, "`g` is a ufunc|`g` is a .*DUFunc"),
        ("g()", {"g": opaque}, "`g` is registered with numba"),
        ("g()", {"g": overloaded}, "`g` is registered with numba.extending in tests.costs"),
        ("g()", {"g": jitable}, "`g` is registered with numba.extending in tests.costs"),
        ("m.overloaded()", {"m": sys.modules[__name__]}, "`m.overloaded` is registered with numba"),
        ("np.random.rand()", {}, "`np.random` .* different numbers"),
    ],
)
def test_what_can_not_be_followed_is_told(call, names, reason):
    cost = cost_of(CALLS.format(call), **names)
    with pytest.raises(NoFingerprint, match=reason):
        cost.fingerprint()
    assert not cost.compiled().from_disk
    assert cost.address() != cost.address()  # not kept


def test_a_pointer_that_was_exchanged_is_called():
    cost = cost_of(CALLS.format("g(0.0)"), g=ONE)
    assert priced(cost) == 1.0
    cost._function.__globals__["g"] = TWO
    assert priced(cost) == 2.0


def test_a_value_beside_a_pointer_counts():
    cost = cost_of(CALLS.format("g(0.0) * K"), g=ONE, K=1.0)
    assert priced(cost) == 1.0
    cost._function.__globals__["K"] = 3.0
    assert priced(cost) == 3.0


@pytest.mark.parametrize("call", ["overloaded", "jitable", "opaque"])
def test_what_an_overload_reads_is_read_when_a_plan_asks(call, monkeypatch):
    own = cost_of(CALLS.format(f"{call}()"), **{call: globals()[call]})
    shards, costs = np.zeros(1, _native.SHARD_DTYPE), np.zeros(1, _native.COST_DTYPE)

    def current_cost() -> float:
        call = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(own.address())
        assert call(shards.ctypes.data, costs.ctypes.data, 1) == 1
        return float(costs["fwd_compute"][0])

    assert current_cost() == 1.0
    place, name = (NUMBERS_JITABLE, "value") if call == "jitable" else (NUMBERS, call)
    monkeypatch.setattr(place, name, 2.0)
    assert current_cost() == 2.0


MODULE = """
import fastplan, numba, {name}_config as cfg

@numba.njit(cache=True)
def helper():
    return cfg.B

@fastplan.shard_cost
def cost(shard, out):
    out.fwd_compute = cfg.A + helper()
"""
CODE = """
import numpy as np
from fastplan.engine import _native
from {name} import cost
made = cost.compiled()
shards, costs = np.zeros(1, _native.SHARD_DTYPE), np.zeros(1, _native.COST_DTYPE)
cost.price(shards, costs)
print(made.from_disk, costs["fwd_compute"][0])
"""


def test_a_new_process_loads_no_code_for_other_values(tmp_path):
    name = "fastplan_test_own"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))

    def run(value: float) -> str:
        (tmp_path / f"{name}_config.py").write_text(f"A = 1.0\nB = {value}\n")
        done = subprocess.run(
            [sys.executable, "-B", "-c", CODE.format(name=name)],
            env={"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{tmp_path}"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    assert [run(10.0), run(10.0), run(20.0)] == ["False 11.0", "True 11.0", "False 21.0"]
