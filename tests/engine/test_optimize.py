"""Optimized plans keep TorchRec's rules, are rated as it rates them, and repeat."""

import itertools
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from fastplan.engine import _native
from fastplan.engine.optimize import STOPS, Optimize, check_bound, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import OutOfRange, estimate, solve, verify_plan
from fastplan.model.request import MenuItem, Partitioner
from fastplan.model.vocabulary import SHARDING_TYPE_INDEX
from tests.interpreter import python
from tests.problems import ALL_TYPES, DEFAULT_SEARCH, grid_tower, request, small_problem, table

SHORT = Optimize(time_budget=None, move_budget=20_000)
COSTS = ("run_fwd_compute", "run_fwd_comms", "run_bwd_compute", "run_bwd_comms")


def problem_of(tables, types, *, ranks=8, group=4, hbm=1 << 30, **changes):
    space = estimate(request(tables, ranks, group, types))
    cluster = small_problem().cluster
    return Problem(
        space,
        replace(
            cluster,
            rank_hbm=(hbm,) * ranks,
            rank_ddr=(8 << 30,) * ranks,
            rank_ssd=(0,) * ranks,
            local_world_size=group,
            group_size=group,
            **changes,
        ),
    )


def checked(problem, settings=SHORT, search=DEFAULT_SEARCH, **more):
    """The optimized plan, after everything about it that must hold was seen to hold."""
    found = optimize(problem, search, settings, **more)
    assert found.found
    assert verify_plan(problem, found.options, found.ranks, found.rating) == ""
    assert found.rating <= min(found.start_ratings.values())
    assert found.lower_bound <= found.rating
    assert check_bound(problem, found.certificate) == found.lower_bound
    assert found.gap == pytest.approx(found.rating / found.lower_bound - 1, abs=1e-12)
    return found


def uneven_tables(count):
    return [table(f"t{i}", 9_000 * (i + 3), 64, pooling=1.5 + i * 1.3) for i in range(count)]


def test_tables_that_cost_nothing_need_room_all_the_same():
    tables = [table(f"t{i}", 3_000, 64) for i in range(3)]
    space = estimate(request(tables, 2, 2, ("table_wise",)))
    free = {name: 0 * getattr(space, name) for name in COSTS}
    cluster = problem_of(tables, ("table_wise",), ranks=2, group=2).cluster
    largest = int(space.run_hbm.max())
    for room, fits in ((1.5, False), (2.5, True)):
        small = replace(cluster, rank_hbm=(int(room * largest),) * 2, rank_ddr=(0,) * 2)
        found = optimize(Problem(replace(space, **free), small), DEFAULT_SEARCH, SHORT)
        assert found.found == fits


def test_a_plan_better_than_torchrecs_is_found_and_verified():
    problem = problem_of(uneven_tables(13), ALL_TYPES)
    found = checked(problem)
    assert found.rating < min(found.start_ratings.values())
    assert [rating for _, rating in found.trace][-1] == found.rating


def test_the_trace_falls_and_its_times_rise():
    trace = checked(problem_of(uneven_tables(13), ALL_TYPES)).trace
    assert len(trace) > 1
    for before, after in itertools.pairwise(trace):
        assert before[0] <= after[0]
        assert before[1] > after[1]


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_each_sharding_type_alone_keeps_its_rules(kind):
    tables = [made._replace(min_partition=32) for made in uneven_tables(7)]
    checked(problem_of(tables, (kind,)))


def test_ranks_beyond_the_last_whole_host_hold_no_host_shards():
    tables = [made._replace(min_partition=32) for made in uneven_tables(9)]
    checked(problem_of(tables, ALL_TYPES, ranks=7, group=3))


def test_tables_of_a_tower_stay_on_one_host():
    tables = [made._replace(tower="ab"[i % 2]) for i, made in enumerate(uneven_tables(8))]
    kinds = ("row_wise", "table_row_wise", "table_column_wise")
    problem = problem_of(tables, kinds)
    found = checked(problem)
    hosts = {"a": set(), "b": set()}
    waiting = iter(found.ranks.tolist())
    begin = problem.space.table_option_begin
    for option in found.options:
        runs = slice(*problem.space.option_run_begin[option : option + 2])
        if problem.space.option_type[option] == SHARDING_TYPE_INDEX["row_wise"]:
            continue
        number = int(np.searchsorted(begin, option, side="right")) - 1
        for _ in range(problem.space.run_count[runs].sum()):
            hosts["ab"[number % 2]].add(next(waiting) // 4)
    assert all(len(own) <= 1 for own in hosts.values())


@pytest.mark.parametrize("kind", ["table_row_wise", "table_column_wise"])
@pytest.mark.parametrize("count", [4, 6, 8])
def test_a_heavy_tower_is_not_split_for_lighter_tables_beside_it(count, kind):
    tables = [
        made._replace(tower="a" if 2 * i >= count else None)
        for i, made in enumerate(uneven_tables(count))
    ]
    checked(problem_of(tables, (kind,)))


@pytest.mark.parametrize("others", [("row_wise",), ("row_wise", "table_row_wise")])
@pytest.mark.parametrize("own", [("grid_shard",), ("grid_shard", "row_wise")])
def test_a_grid_in_a_tower_is_kept_and_not_called_optimal(own, others):
    found = checked(grid_tower(own, others))
    assert (found.stopped_by == "optimal") == (found.gap < 1e-7)


def test_no_plan_is_claimed_only_where_there_is_none():
    nothing = {"options": np.zeros(0, np.int32), "ranks": np.zeros(0, np.int32)}
    limits = {"seconds": math.inf, "moves": 1000, "seed": 0, "threads": 1}
    problem = grid_tower(("grid_shard",), ("row_wise",))
    result = _native.optimize(problem.handle, limits, nothing)
    assert not result["found"]
    assert STOPS[result["stopped_by"]] == "moves"


def test_key_value_columns_are_kept_apart():
    made = request([t._replace(dim=256, min_partition=64) for t in uneven_tables(6)], 4, 4, ())
    menu = (MenuItem("column_wise", "key_value", 3e7, 0),)
    space = estimate(replace(made, menus=(menu,)))
    cluster = replace(
        small_problem().cluster,
        rank_hbm=(1 << 34,) * 4,
        rank_ddr=(1 << 34,) * 4,
        rank_ssd=(1 << 34,) * 4,
    )
    problem = Problem(space, cluster)
    found = checked(problem)
    assert all(len(set(own)) == len(own) for own in found.ranks.reshape(6, -1).tolist())


def test_uneven_ranks_are_filled_by_what_each_has():
    problem = problem_of(uneven_tables(10), ("table_wise",))
    rooms = tuple(int(50e6 * part) for part in (1, 0.2, 2, 0.7, 1.3, 0.4, 0.9, 1.6))
    checked(Problem(problem.space, replace(problem.cluster, rank_hbm=rooms)))


def test_a_memory_balanced_search_starts_from_a_legal_plan_or_none():
    # TorchRec's memory-balanced partitioner takes ranks for equal and may overfill small ones.
    problem = problem_of(uneven_tables(10), ("table_wise",))
    rooms = tuple(int(60e6 * part) for part in (1, 0.2, 2, 0.7, 1.3, 0.4, 0.9, 1.6))
    tight = Problem(problem.space, replace(problem.cluster, rank_hbm=rooms))
    balanced = replace(DEFAULT_SEARCH, partitioner=Partitioner(memory_balanced=True))
    checked(tight, search=balanced)


def test_a_default_plan_that_is_known_is_not_solved_for_again():
    problem = small_problem()
    start = solve(problem, DEFAULT_SEARCH)
    found = checked(problem, start=start)
    assert found.start_ratings["default"] == start.rating


def test_a_better_plan_than_torchrecs_can_be_the_start():
    problem = problem_of(uneven_tables(13), ALL_TYPES)
    better = checked(problem)
    start = replace(
        solve(problem, DEFAULT_SEARCH),
        options=better.options,
        ranks=better.ranks,
        rating=better.rating,
    )
    one_move = Optimize(time_budget=None, move_budget=1)
    assert checked(problem, one_move, start=start).rating <= better.rating


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_moves_seed_and_threads_give_the_same_plan(threads):
    problem = problem_of(uneven_tables(12), ALL_TYPES)
    settings = replace(SHORT, threads=threads, seed=7)
    first, second = checked(problem, settings), checked(problem, settings)
    assert first.rating == second.rating
    assert first.options.tolist() == second.options.tolist()
    assert first.ranks.tolist() == second.ranks.tolist()
    assert (first.moves, first.restarts) == (second.moves, second.restarts)
    assert first.lower_bound == second.lower_bound


def test_the_move_budget_is_kept():
    problem = problem_of(uneven_tables(12), ALL_TYPES)
    for threads in (1, 2):
        found = checked(problem, replace(SHORT, threads=threads, move_budget=5_001))
        assert found.stopped_by == "moves"
        assert 5_000 <= found.moves <= 5_001


def test_a_time_budget_that_is_gone_leaves_the_better_of_torchrecs_plans():
    problem = problem_of(uneven_tables(13), ALL_TYPES)
    found = checked(problem, Optimize(time_budget=1e-9))
    assert found.stopped_by == "time"
    assert found.moves == 0
    assert found.rating == min(found.start_ratings.values())


def test_an_optimal_plan_ends_the_search():
    # One table, one rank: nothing to decide.
    problem = problem_of([table("t", 1000, 64)], ("table_wise",), ranks=1, group=1)
    found = checked(problem, Optimize(time_budget=60.0))
    assert found.stopped_by == "optimal"
    assert found.gap < 1e-8


def test_tables_that_cost_nothing_are_placed():
    made = request(uneven_tables(3), 8, 4, ("table_wise",))
    free = [t._replace(perf_inputs=0.0, perf_outputs=0.0) for t in made.tables]
    problem = Problem(estimate(replace(made, tables=tuple(free))), small_problem().cluster)
    found = optimize(problem, DEFAULT_SEARCH, SHORT)
    assert verify_plan(problem, found.options, found.ranks, found.rating) == ""


def test_without_room_for_a_shard_there_is_no_plan_and_that_is_certain():
    problem = problem_of(uneven_tables(3), ("table_wise",), hbm=1000)
    found = optimize(problem, DEFAULT_SEARCH, SHORT)
    assert not found.found
    assert found.stopped_by == "optimal"
    assert math.isinf(found.rating)
    assert len(found.options) == len(found.ranks) == 0


def test_without_room_for_all_there_is_no_plan_and_that_is_certain():
    problem = problem_of(uneven_tables(20), ("table_wise",))
    largest = int(problem.space.run_hbm.max())
    tight = Problem(problem.space, replace(problem.cluster, rank_hbm=(largest,) * 8))
    tight = replace(tight, cluster=replace(tight.cluster, rank_ddr=(0,) * 8))
    found = optimize(tight, DEFAULT_SEARCH, SHORT)
    assert not found.found
    assert found.stopped_by == "optimal"


def test_values_beyond_exact_arithmetic_are_refused():
    problem = small_problem()
    costs = problem.space.run_fwd_compute.copy()
    costs[0] = np.nan
    broken = Problem(replace(problem.space, run_fwd_compute=costs), problem.cluster)
    with pytest.raises(OutOfRange):
        optimize(broken, DEFAULT_SEARCH, SHORT)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"time_budget": None}, "time_budget"),
        ({"time_budget": 0.0}, "time_budget"),
        ({"time_budget": math.inf}, "time_budget"),
        ({"time_budget": math.nan}, "time_budget"),
        ({"move_budget": 0}, "move_budget"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"threads": 0}, "threads"),
        ({"threads": 1000}, "threads"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(changes, name):
    with pytest.raises(ValueError, match=name):
        Optimize(**changes)


@pytest.mark.parametrize(
    ("options", "ranks", "name"),
    [
        ([0], [], "options"),
        ([10**6] * 6, [], "options"),
        ([-1] * 6, [], "options"),
        (None, [99], "ranks"),
        (None, [-1], "ranks"),
        (None, [0], "ranks"),
    ],
)
def test_a_start_that_points_outside_is_refused(options, ranks, name):
    problem = small_problem()
    first = problem.space.table_option_begin[:-1] + 1  # not data-parallel
    start = {
        "options": np.array(first if options is None else options, np.int32),
        "ranks": np.array(ranks, np.int32),
    }
    settings = {"seconds": 1.0, "moves": 100, "seed": 0, "threads": 1}
    with pytest.raises(TypeError, match=name):
        _native.optimize(problem.handle, settings, start)


# Without the signal this would take minutes. It comes from a thread of the process itself, which
# can only run because the search does not hold the GIL.
INTERRUPTED = """
import os, signal, sys, threading

from fastplan.engine.optimize import Optimize, optimize
from tests.engine.test_optimize import problem_of, uneven_tables
from tests.problems import ALL_TYPES, DEFAULT_SEARCH

def stop(number, frame):
    raise SystemExit(3)

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, stop)
problem = problem_of(uneven_tables(40), ALL_TYPES)
number = getattr(signal, sys.argv[1])
threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
settings = Optimize(time_budget=600.0, threads=2)
found = optimize(problem, DEFAULT_SEARCH, settings)
print(found.found, found.stopped_by)
"""


@pytest.mark.parametrize(
    ("name", "status", "printed"),
    [("SIGINT", 0, "True interrupted\n"), ("SIGTERM", 3, "")],
)
def test_an_interrupt_keeps_the_plan_and_other_signals_raise(name, status, printed):
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, name], capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stdout) == (status, printed), result.stderr


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="needs all address space")
def test_threads_that_do_not_start_change_nothing():
    code = """
import resource
from fastplan.engine.optimize import Optimize, optimize
from tests.problems import DEFAULT_SEARCH, small_problem
if LIMITED:
    with open("/proc/self/statm") as stream:
        used = int(stream.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
settings = Optimize(time_budget=None, move_budget=64_000, threads=64)
found = optimize(small_problem(), DEFAULT_SEARCH, settings)
print(found.rating, found.moves, found.options.tolist(), found.ranks.tolist())
"""
    free, limited = (python(code.replace("LIMITED", str(each))) for each in (False, True))
    assert free == limited
    assert int(free.split()[1]) > 0
