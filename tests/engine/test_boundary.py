"""The native functions name the column that is wrong, and never crash on bad ones."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from fastplan.engine import _native
from fastplan.engine.certificate import lower_bound
from fastplan.engine.goals import goal_of
from fastplan.engine.problem import SPACE_COLUMNS, Problem, SearchSpace
from fastplan.engine.replan import NOT_HELD
from fastplan.engine.solve import OutOfRange, _proposer, estimate, request_columns
from fastplan.model.request import Partitioner, Proposer
from fastplan.model.vocabulary import SHARDING_TYPE_INDEX
from tests.plans.samples import random_request
from tests.problems import DEFAULT_SEARCH, GIB, request, small_problem, table

SETTINGS = {
    "partitioner": asdict(Partitioner()),
    "proposers": [_proposer(p) for p in DEFAULT_SEARCH.proposers],
    "exhaustive": False,
    "objective": 0,
    "timeout_seconds": 0.0,
    "goal": None,
    "goal_per_rating": 0.0,
}


def columns(**changes):
    return {**small_problem().columns(), **changes}


def built(**changes):
    return _native.Problem(columns(**changes))


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
        built(**{name: value})


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
        ("group_size", lambda c: 1 << 32),
        ("group_size", lambda c: (1 << 24) + 1),
        ("local_world_size", lambda c: 1 << 32),
    ],
)
def test_columns_that_contradict_each_other_are_a_value_error_that_names_one(name, change):
    made = columns()
    with pytest.raises(ValueError, match=name):
        _native.Problem({**made, name: change(made[name])})


def test_a_missing_column_is_named():
    made = columns()
    del made["run_ssd"]
    with pytest.raises(TypeError, match="run_ssd"):
        _native.Problem(made)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("run_hbm", -1),
        ("run_hbm", 1 << 62),
        ("run_fwd_compute", np.nan),
        ("run_fwd_compute", np.inf),
        ("run_bwd_comms", -1.0),
        ("run_bwd_comms", 1e300),
        ("run_bwd_comms", -1e-9),
        ("run_fwd_compute", -1e-9),
        ("run_prefetch_compute", -1e-9),
        ("run_input_dist_comms", np.nan),
    ],
)
def test_values_beyond_exact_arithmetic_are_refused(name, value):
    made = columns()
    changed = made[name].copy()
    changed[1] = value
    with pytest.raises(OutOfRange):
        _native.Problem({**made, name: changed})


@pytest.mark.parametrize("tier", ["rank_hbm", "rank_ddr", "rank_ssd"])
@pytest.mark.parametrize("sign", [1, -1])
def test_capacities_are_refused_where_their_sum_is_beyond_exact_arithmetic(tier, sign):
    small = np.full(8, sign * ((1 << 58) - 1))
    built(**{tier: small})
    each = (1 << 58, 1 << 60, 1 << 61, (1 << 63) - 1)
    for capacity in (*(np.full(8, sign * n) for n in each), np.array([-(1 << 63)] + [0] * 7)):
        with pytest.raises(OutOfRange, match=tier):
            built(**{tier: capacity})


def test_an_unknown_proposer_is_refused():
    proposer = {**_proposer(Proposer(kind="greedy")), "kind": 9}
    with pytest.raises(TypeError, match="kind"):
        _native.solve(built(), {**SETTINGS, "proposers": [proposer]})


@pytest.mark.parametrize("options", [[-1], [10**6], list(range(7))])
def test_a_placer_refuses_options_that_do_not_exist(options):
    placer = _native.Placer(built(), asdict(Partitioner()))
    with pytest.raises(TypeError, match="options"):
        placer.place(options)


def test_inputs_are_not_changed():
    made = columns()
    before = {name: np.copy(value) for name, value in made.items()}
    _native.solve(_native.Problem(made), SETTINGS)
    assert all(np.array_equal(before[name], made[name]) for name in made)


def nothing():
    return np.zeros(0, np.int32)


LIMITS = {"seconds": 5.0, "moves": 2000, "seed": 0, "threads": 1}


def held(problem):
    """Nothing of the tables is anywhere."""
    tables = problem.space.tables
    none = dict.fromkeys(
        ("held_row", "held_column", "held_rows", "held_columns", "held_rank"), np.zeros(0, np.int64)
    )
    sizes = dict.fromkeys(("table_rows", "table_dim", "table_element_size"), np.ones(tables, int))
    unknown = np.full(tables, NOT_HELD, np.uint8)
    return {
        **none,
        **sizes,
        "table_held_begin": np.zeros(tables + 1, np.int64),
        "table_held_type": unknown,
        "table_held_kernel": unknown,
        "table_state": np.zeros(tables),
    }


REPLAN = {
    "lower_bytes": True,
    "target": 1e6,
    "budgets": [1.0],
    "moves": 2000,
    "seed": 0,
    "seconds": 5.0,
    "reached_options": nothing(),
    "reached_ranks": nothing(),
}


def takers(problem, options, ranks):
    """Whatever is given a plan."""
    made, plan = problem.handle, {"options": options, "ranks": ranks}
    goal = goal_of(problem.space, "memory").columns()
    reached = {**REPLAN, "reached_options": options, "reached_ranks": ranks}
    yield lambda: _native.rate(made, plan)
    yield lambda: _native.optimize(made, LIMITS, plan)
    yield lambda: _native.refine(made, LIMITS, plan, 1e6, goal)
    yield lambda: _native.moved_bytes(made, held(problem), plan)
    yield lambda: _native.replan(made, held(problem), reached)


def of_kind(problem, kind):
    """The first option of each table that has the sharding type."""
    numbers = np.flatnonzero(problem.space.option_type == SHARDING_TYPE_INDEX[kind])
    tables = np.searchsorted(problem.space.table_option_begin, numbers, side="right")
    return numbers[np.unique(tables, return_index=True)[1]].astype(np.int32)


def test_a_plan_is_taken():
    problem = small_problem()
    for take in takers(problem, of_kind(problem, "row_wise"), nothing()):
        take()


def test_a_plan_must_name_each_table_once():
    problem = small_problem()
    options = np.repeat(of_kind(problem, "table_wise")[:1], 6)
    for take in takers(problem, options, np.zeros(6, np.int32)):
        with pytest.raises(TypeError, match="options"):
            take()


@pytest.mark.parametrize("shards", [1, 7, 1 << 22])
def test_a_uniform_option_of_a_plan_must_have_a_shard_per_rank(shards):
    problem = small_problem()
    options = of_kind(problem, "row_wise")
    begin, end = problem.space.option_run_begin[options[0] : options[0] + 2]
    assert end == begin + 1
    count = problem.space.run_count.copy()
    count[begin] = shards
    problem = Problem(replace(problem.space, run_count=count), problem.cluster)
    for take in takers(problem, options, nothing()):
        with pytest.raises(TypeError, match="options"):
            take()


@pytest.mark.parametrize("kind", ["table_row_wise", "table_column_wise", "grid_shard"])
def test_a_plan_has_host_shards_on_whole_hosts(kind):
    made = request([table("t", 1000, 512)], 3, 3, (kind,))
    cluster = replace(
        small_problem().cluster, rank_hbm=(GIB,) * 4, rank_ddr=(GIB,) * 4, rank_ssd=(0,) * 4
    )
    problem = Problem(estimate(made), replace(cluster, group_size=3, local_world_size=3))
    runs = slice(*problem.space.option_run_begin[:2])
    shards = int(problem.space.run_count[runs].sum())
    ranks = np.arange(shards, dtype=np.int32) % 3
    for take in takers(problem, np.zeros(1, np.int32), ranks):
        take()
    ranks[-3:] = 3
    for take in takers(problem, np.zeros(1, np.int32), ranks):
        with pytest.raises(TypeError, match="ranks"):
            take()


@pytest.mark.parametrize("value", [np.nan, -1.0, -np.inf])
def test_a_limit_that_is_not_a_number_is_a_type_error_that_names_it(value):
    problem = small_problem()
    made, options = problem.handle, of_kind(problem, "row_wise")
    plan = {"options": options, "ranks": nothing()}
    goal = goal_of(problem.space, "memory").columns()
    limits = {**LIMITS, "seconds": value}
    for name, take in (
        ("upper", lambda: lower_bound(problem, upper=value)),
        ("limit", lambda: _native.refine(made, LIMITS, plan, value, goal)),
        ("seconds", lambda: _native.refine(made, limits, plan, 1e6, goal)),
        ("seconds", lambda: _native.optimize(made, limits, plan)),
        ("target", lambda: _native.replan(made, held(problem), {**REPLAN, "target": value})),
        ("seconds", lambda: _native.replan(made, held(problem), {**REPLAN, "seconds": value})),
    ):
        with pytest.raises(TypeError, match=name):
            take()


def unaligned(array):
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1)


@pytest.mark.parametrize("name", ["rank_ddr", "run_fwd_compute", "table_group", "option_key"])
def test_an_unaligned_column_is_a_type_error_that_names_it(name):
    made = columns()
    with pytest.raises(TypeError, match=f"{name}.*aligned"):
        _native.Problem({**made, name: unaligned(made[name])})


@pytest.mark.parametrize("name", ["options", "ranks"])
def test_an_unaligned_plan_is_a_type_error_that_names_it(name):
    plan = {"options": np.zeros(6, np.int32), "ranks": np.zeros(6, np.int32)}
    plan[name] = unaligned(plan[name])
    with pytest.raises(TypeError, match=f"{name}.*aligned"):
        _native.verify(built(), plan["options"], plan["ranks"], 0.0)


@pytest.mark.parametrize("bins", [-(1 << 63), 0, (1 << 20) + 1, 1 << 61, (1 << 63) - 1])
def test_bins_beyond_what_can_be_gone_through_are_left_to_torchrec(bins):
    proposer = {**_proposer(Proposer(kind="dynamic_programming")), "bins_per_device": bins}
    with pytest.raises(OutOfRange, match="bins_per_device"):
        _native.solve(built(), {**SETTINGS, "proposers": [proposer]})
    with pytest.raises(OutOfRange, match="bins_per_device"):
        _native.propose(built(), proposer, 0, 1)


def test_bins_that_would_take_all_memory_are_left_to_torchrec():
    proposer = {**_proposer(Proposer(kind="dynamic_programming")), "bins_per_device": 1 << 20}
    many = {f"rank_{tier}": np.full(200, 1 << 20) for tier in ("hbm", "ddr", "ssd")}
    with pytest.raises(
        OutOfRange, match=r"1048576 `bins_per_device`.*6 GiB.*6 tables on 200 ranks"
    ):
        _native.propose(built(**many), proposer, 0, 1)


@pytest.mark.parametrize("value", [-(1 << 63), -1, (1 << 62) + 1, (1 << 63) - 1])
def test_counts_beyond_their_limits_are_type_errors_that_name_them(value):
    problem = small_problem()
    made, options = problem.handle, of_kind(problem, "row_wise")
    plan = {"options": options, "ranks": nothing()}
    goal = goal_of(problem.space, "memory").columns()
    bound = {"upper": 1.0, "evaluations": 10, "knapsacks": 10}
    for name in ("evaluations", "knapsacks"):
        with pytest.raises(TypeError, match=name):
            _native.lower_bound(made, {**bound, name: value})
    for name in ("moves", "threads"):
        with pytest.raises(TypeError, match=name):
            _native.optimize(made, {**LIMITS, name: value}, plan)
    with pytest.raises(TypeError, match="channels"):
        _native.refine(made, LIMITS, plan, 1e6, {**goal, "channels": value})
    with pytest.raises(TypeError, match="moves"):
        _native.replan(made, held(problem), {**REPLAN, "moves": value})


@pytest.mark.parametrize(("name", "value"), [("threads", 257), ("channels", (1 << 24) + 1)])
def test_what_takes_memory_has_closer_limits(name, value):
    problem = small_problem()
    plan = {"options": of_kind(problem, "row_wise"), "ranks": nothing()}
    goal = goal_of(problem.space, "memory").columns()
    limits = {**LIMITS, name: value} if name in LIMITS else LIMITS
    goal = {**goal, name: value} if name in goal else goal
    with pytest.raises(TypeError, match=name):
        _native.refine(problem.handle, limits, plan, 1e6, goal)


def test_no_tables_are_a_value_error():
    whole = small_problem()
    space = whole.space
    none = {name: getattr(space, name)[:0] for name in SPACE_COLUMNS}
    offsets = np.zeros(1, np.int64)
    none |= {"table_option_begin": offsets, "option_run_begin": offsets}
    problem = Problem(SearchSpace(**none), whole.cluster)
    with pytest.raises(ValueError, match="table_option_begin"):
        _native.Problem(problem.columns())


def test_offsets_of_nothing_are_a_value_error():
    problem = small_problem()
    made = {**problem.columns(), "table_option_begin": np.zeros(0, np.int64)}
    made |= {"table_module": nothing(), "table_group": nothing()}
    with pytest.raises(ValueError, match="table_option_begin"):
        _native.Problem(made)
