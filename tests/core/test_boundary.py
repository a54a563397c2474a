"""The native functions name the column that is wrong, and never crash on bad ones."""

from dataclasses import asdict

import numpy as np
import pytest

from fastplan.core import _native
from fastplan.core.solve import OutOfRange, _proposer, request_columns
from fastplan.spec.request import Partitioner, Proposer
from tests.plans.samples import random_request
from tests.problems import DEFAULT_SEARCH, small_problem

SETTINGS = {
    "partitioner": asdict(Partitioner()),
    "proposers": [_proposer(p) for p in DEFAULT_SEARCH.proposers],
    "exhaustive": False,
    "objective": 0,
    "timeout_seconds": 0.0,
}


def columns(**changes):
    return {**small_problem().columns(), **changes}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_hbm", np.zeros(3, np.int64)),
        ("run_hbm", np.zeros(3, np.int32)),
        ("option_type", [1, 2, 3]),
        ("table_group", np.full(6, 99, np.int32)),
        ("table_module", np.full(6, -1, np.int32)),
        ("rank_ddr", np.zeros((8, 1), np.int64)),
        ("rank_ddr", np.zeros(16, np.int64)[::2]),
        ("group_size", "four"),
        ("option_kernel", np.full(len(small_problem().space.option_kernel), 77, np.uint8)),
    ],
)
def test_a_wrong_column_is_a_type_error_that_names_it(name, value):
    with pytest.raises(TypeError, match=name):
        _native.solve(columns(**{name: value}), SETTINGS)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("device_kind", lambda c: 3),
        ("pipeline", lambda c: 255),
        ("pipeline", lambda c: 256),
        ("table_usage", lambda c: np.full_like(c, 3)),
        ("menu_type", lambda c: np.full_like(c, 99)),
    ],
)
def test_an_estimate_of_a_kind_with_no_meaning_is_a_type_error_that_names_it(name, change):
    made = request_columns(random_request(0)[0])
    with pytest.raises(TypeError, match=name):
        _native.estimate({**made, name: change(made[name])})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("table_option_begin", lambda c: c - 1),
        ("table_option_begin", lambda c: c[::-1].copy()),
        ("option_run_begin", lambda c: np.zeros_like(c)),
        ("run_count", np.zeros_like),
        ("option_type", lambda c: np.full_like(c, 200)),
    ],
)
def test_columns_that_contradict_each_other_are_a_value_error_that_names_one(name, change):
    made = columns()
    with pytest.raises(ValueError, match=name):
        _native.solve({**made, name: change(made[name])}, SETTINGS)


def test_a_missing_column_is_named():
    made = columns()
    del made["run_ssd"]
    with pytest.raises(TypeError, match="run_ssd"):
        _native.solve(made, SETTINGS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_hbm", -1),
        ("run_hbm", 1 << 62),
        ("run_fwd_compute", np.nan),
        ("run_fwd_compute", np.inf),
        ("run_bwd_comms", -1.0),
        ("run_bwd_comms", 1e300),
    ],
)
def test_values_beyond_exact_arithmetic_are_refused(name, value):
    made = columns()
    changed = made[name].copy()
    changed[1] = value
    with pytest.raises(OutOfRange):
        _native.solve({**made, name: changed}, SETTINGS)


@pytest.mark.parametrize("tier", ["rank_hbm", "rank_ddr", "rank_ssd"])
@pytest.mark.parametrize("sign", [1, -1])
def test_capacities_are_refused_where_their_sum_is_beyond_exact_arithmetic(tier, sign):
    small = np.full(8, sign * ((1 << 58) - 1))
    _native.solve(columns(**{tier: small}), SETTINGS)
    each = (1 << 58, 1 << 60, 1 << 61, (1 << 63) - 1)
    for capacity in (*(np.full(8, sign * n) for n in each), np.array([-(1 << 63)] + [0] * 7)):
        with pytest.raises(OutOfRange, match=tier):
            _native.solve(columns(**{tier: capacity}), SETTINGS)


def test_an_unknown_proposer_is_refused():
    proposer = {**_proposer(Proposer(kind="greedy")), "kind": 9}
    with pytest.raises(TypeError, match="kind"):
        _native.solve(columns(), {**SETTINGS, "proposers": [proposer]})


@pytest.mark.parametrize("options", [[-1], [10**6], list(range(7))])
def test_a_placer_refuses_options_that_do_not_exist(options):
    placer = _native.Placer(columns(), asdict(Partitioner()))
    with pytest.raises(TypeError, match="options"):
        placer.place(options)


def test_inputs_are_not_changed():
    made = columns()
    before = {name: np.copy(value) for name, value in made.items()}
    _native.solve(made, SETTINGS)
    assert all(np.array_equal(before[name], made[name]) for name in made)
