"""Decorated functions: what they compute, and what is said when they can't."""

import pickle
import sys

import numpy as np
import pytest

import fastplan
from fastplan import CostError, plan_objective, shard_cost
from fastplan.engine import _native
from fastplan.engine.solve import estimate, solve
from tests.interpreter import python
from tests.problems import DEFAULT_SEARCH, small_problem

from . import samples


def test_a_compiled_cost_is_the_python_function_to_the_bit():
    space = estimate(samples.priced(samples.uvm_is_slower))
    shown = []

    def keep(shard, out):
        shown.append((shard, out))

    stock = estimate(samples.priced(Recorder(keep)))
    for run, (shard, out) in enumerate(shown):
        samples.uvm_is_slower(shard, out)
        assert space.run_fwd_compute[run] == out.fwd_compute
        assert space.run_fwd_comms[run] == out.fwd_comms
    assert (space.run_fwd_compute != stock.run_fwd_compute).any()
    assert space.run_bwd_compute.tobytes() == stock.run_bwd_compute.tobytes()


class Recorder:
    """A cost that shows its records to Python and changes nothing."""

    name = "recorder"

    def __init__(self, keep):
        import ctypes

        def call(shards, costs, count):
            for address, dtype in ((shards, _native.SHARD_DTYPE), (costs, _native.COST_DTYPE)):
                size = count * dtype.itemsize
                data = (ctypes.c_char * size).from_address(address)
                found.append(np.frombuffer(data, dtype).copy().view(np.recarray))
            costs_, shards_ = found.pop(), found.pop()
            for shard, out in zip(shards_, costs_, strict=True):
                keep(shard, out)
            return count

        found = []
        self._pointer = ctypes.CFUNCTYPE(*[ctypes.c_int64] * 4)(call)
        self._address = ctypes.cast(self._pointer, ctypes.c_void_p).value

    def address(self):
        return self._address


@pytest.mark.parametrize(
    ("cost", "what"),
    [
        (samples.fails_on_small_tables, r"raised ZeroDivisionError: .*, line \d+"),
        (samples.not_a_number, "set `bwd_comms` to nan, which is not a valid cost"),
    ],
)
def test_a_failing_cost_names_itself_the_table_and_the_shard(cost, what):
    where = r"table small as \(table_wise, fused\), shard 0 of 1, 70 x 32"
    with pytest.raises(CostError, match=f"samples:{cost.__name__} {what}: {where}"):
        estimate(samples.priced(cost))


def test_an_index_out_of_bounds_is_an_error():
    with pytest.raises(CostError, match=r"reads_past_the_end raised IndexError.*table large"):
        estimate(samples.priced(samples.reads_past_the_end))


@pytest.mark.parametrize(
    ("objective", "what"),
    [
        (samples.rates_nothing, "set `rating` to nan, or not at all"),
        (samples.divides_by_nothing, "raised"),
    ],
)
def test_a_failing_objective_names_itself_and_the_plan(objective, what):
    from dataclasses import replace

    search = replace(DEFAULT_SEARCH, objective=objective)
    where = r"a plan of 8 ranks, where rank \d costs most"
    with pytest.raises(CostError, match=f"samples:{objective.__name__} {what}.*: {where}"):
        solve(small_problem(), search)


def test_a_changed_global_is_compiled_anew(monkeypatch):
    before = samples.uvm_is_slower.fingerprint()
    first = estimate(samples.priced(samples.uvm_is_slower))
    monkeypatch.setattr(samples, "FACTOR", 2.8)
    second = estimate(samples.priced(samples.uvm_is_slower))
    assert samples.uvm_is_slower.fingerprint() != before
    slower = second.run_fwd_compute != first.run_fwd_compute
    cached = first.option_kernel == fastplan.Kernel.FUSED_UVM_CACHING
    assert slower.tolist() == np.repeat(cached, np.diff(first.option_run_begin)).tolist()


def test_functions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(samples.uvm_is_slower)) is samples.uvm_is_slower


def wrong_signatures():
    def one(shard): ...
    def three(shard, out, more): ...
    def default(shard, out=None): ...
    def starred(*both): ...

    return [one, three, default, starred]


@pytest.mark.parametrize("function", wrong_signatures(), ids=lambda f: f.__name__)
def test_a_wrong_signature_is_refused_with_the_right_one_and_the_line(function):
    line = function.__code__.co_firstlineno
    wanted = rf"`{function.__name__}\(shard, out\)`.*test_functions.py:{line}"
    with pytest.raises(CostError, match=wanted):
        shard_cost(function)


def test_what_is_no_function_is_refused():
    with pytest.raises(CostError, match="@plan_objective takes a function, not a int"):
        plan_objective(3)


def no_such_field(shard, out):
    out.fwd_compute = shard.colour


def no_such_part(shard, out):
    out.fwd_compte = 1.0


def opens_a_file(shard, out):
    out.fwd_compute = len(open("/dev/null").read())  # noqa: SIM115


def adds_a_text(shard, out):
    out.fwd_compute = "a" + shard.rows


def unknown_name(shard, out):
    out.fwd_compute = nowhere * 2.0  # noqa: F821


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (no_such_field, "there is no field `colour`"),
        (no_such_part, "there is no field `fwd_compte`"),
        (opens_a_file, "Untyped global name 'open'"),
        (adds_a_text, "No implementation of function .*add"),
        (unknown_name, "name 'nowhere' is not defined"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_numba_can_not_compile_is_told_in_one_line_with_the_place(function, reason):
    line = function.__code__.co_firstlineno + 1
    with pytest.raises(CostError, match=reason) as caught:
        shard_cost(function).address()
    text = str(caught.value)
    assert f"test_functions.py:{line} in `out." in text
    assert "\n" not in text and len(text) < 700


def test_a_result_that_nobody_reads_is_refused():
    def returns(shard, out):
        return shard.rows

    with pytest.raises(CostError, match=r"returns a int64.*set fields of `out`"):
        shard_cost(returns).address()


def test_without_numba_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)

    def own(shard, out):
        out.fwd_compute = 1.0

    with pytest.raises(CostError, match=r"pip install 'fastplan\[numba\]'"):
        shard_cost(own).address()


def test_without_numba_the_examples_say_how_to_get_it():
    code = """
import sys
sys.modules["numba"] = None
try:
    from fastplan.costs import examples
except Exception as error:
    print(type(error).__name__, error)
"""
    told = python(code)
    assert told.startswith("CostError custom costs and objectives are compiled with numba")
    assert "pip install 'fastplan[numba]'" in told
