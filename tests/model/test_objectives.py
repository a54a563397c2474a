"""Objectives beside the rating, against every plan that tiny problems have."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastplan.engine.optimize import ConstraintError, Objectives, Optimize, optimize
from fastplan.engine.problem import Problem
from fastplan.engine.solve import verify_plan
from fastplan.model.vocabulary import SHARDING_TYPES, UNIFORM_TYPES
from tests.exact import Exact, tiny_problem
from tests.problems import DEFAULT_SEARCH, grid_tower, small_problem

NAMES = [("sparse", f"t{i}") for i in range(40)]
NEARLY = 1 + 1e-9


class Listed(NamedTuple):
    """One of all plans."""

    options: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]  # by table, of all shards
    rating: float


def settings(moves: int = 6_000, **objectives: Any) -> Optimize:
    return Optimize(time_budget=None, move_budget=moves, objectives=Objectives(**objectives))


def all_plans(problem: Problem) -> Iterator[Listed]:
    space = problem.space
    exact = Exact(problem)
    tables = [
        [
            (option, ranks)
            for option in range(*space.table_option_begin[t : t + 2])
            for ranks in set(exact._rank_lists(option, exact._shards(option)))
        ]
        for t in range(space.tables)
    ]
    for chosen in itertools.product(*tables):
        options = tuple(option for option, _ in chosen)
        ranks = tuple(own for _, own in chosen)
        # Without uniform ones: those are where they are.
        placed = [
            rank
            for option, own in chosen
            if SHARDING_TYPES[space.option_type[option]] not in UNIFORM_TYPES
            for rank in own
        ]
        plan = np.array(options, np.int32), np.array(placed, np.int32)
        if not verify_plan(problem, *plan, math.nan):
            yield Listed(options, ranks, max(loads(problem, options, ranks, "total").values()))


def loads(problem: Problem, options: Any, ranks: Any, what: str) -> dict[int, float]:
    space = problem.space
    if what == "total":
        column = space.run_fwd_compute + space.run_bwd_compute + space.run_fwd_comms
        column = column + space.run_bwd_comms + space.run_prefetch_compute
    else:
        column = getattr(space, f"run_{what}")
    sums: dict[int, float] = defaultdict(float)
    for option, own in zip(options, ranks, strict=True):
        runs = slice(*space.option_run_begin[option : option + 2])
        values = np.repeat(column[runs], space.run_count[runs])
        for rank, value in zip(own, values.tolist(), strict=True):
            sums[rank] += value
    return sums


def measured(problem: Problem, plan: Listed, minimize: str) -> float:
    """By the definition, written down once more."""
    if minimize == "memory":
        return max(loads(problem, plan.options, plan.ranks, "hbm").values())
    if minimize == "shards":
        return sum(map(len, plan.ranks))
    total = 0.0
    for part in ("fwd_compute", "bwd_compute"):
        total += max(loads(problem, plan.options, plan.ranks, part).values())
    kinds = {int(problem.space.option_type[option]) for option in plan.options}
    for kind, part in itertools.product(kinds, ("fwd_comms", "bwd_comms")):
        own = [
            (option, ranks)
            for option, ranks in zip(plan.options, plan.ranks, strict=True)
            if problem.space.option_type[option] == kind
        ]
        total += max(loads(problem, *zip(*own, strict=True), part).values())
    return total


def listed(problem: Problem, found: Any) -> Listed:
    """An optimized plan as one of all, its tables in the problem's order."""
    space = problem.space
    begin, waiting = space.table_option_begin, found.ranks.tolist()
    chosen = {}
    for option in found.options.tolist():
        shards = int(space.run_count[slice(*space.option_run_begin[option : option + 2])].sum())
        own = range(shards)
        if SHARDING_TYPES[space.option_type[option]] not in UNIFORM_TYPES:
            own, waiting = waiting[:shards], waiting[shards:]
        chosen[int(np.searchsorted(begin, option, side="right")) - 1] = (option, tuple(own))
    options, ranks = zip(*(chosen[t] for t in range(space.tables)), strict=True)
    return Listed(options, ranks, found.rating)


def feasible_problems(count: int, first: int = 0) -> Iterator[tuple[Problem, list[Listed]]]:
    for seed in itertools.count(first):
        problem = tiny_problem(seed)
        exact = Exact(problem)
        if math.prod(len(own) for own in exact._tables) > 3_000:
            continue
        plans = list(all_plans(problem))
        if not plans:
            continue
        yield problem, plans
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("within", [0.0, 0.05, math.inf])
@pytest.mark.parametrize("minimize", ["memory", "shards", "critical_path"])
def test_nothing_is_better_by_the_objective_within_the_rating(minimize, within):
    best = 0
    for problem, plans in feasible_problems(40):
        found = optimize(problem, DEFAULT_SEARCH, settings(minimize=minimize, within=within))
        assert verify_plan(problem, found.options, found.ranks, found.rating) == ""
        value = measured(problem, listed(problem, found), minimize)
        assert found.objective == pytest.approx(value, rel=1e-9)
        assert found.objective <= found.objective_before
        limit = found.best_rating * (1 + within)
        assert found.rating <= limit
        least = min(measured(problem, p, minimize) for p in plans if p.rating <= limit * NEARLY)
        assert value >= least / NEARLY
        best += value <= least * NEARLY
    assert best >= 39


def keeps(plan: Listed, pins: dict[int, tuple[int, ...]], together: tuple[int, ...]) -> bool:
    for table, ranks in pins.items():
        own = plan.ranks[table]
        if own != (ranks * len(own) if len(ranks) == 1 else ranks):
            return False
    return len({plan.ranks[table] for table in together}) <= 1


@pytest.mark.parametrize("rule", ["pin", "pin shards", "together", "both"])
def test_rules_are_kept_and_the_best_plan_that_keeps_them_is_found(rule):
    possible = best = 0
    for problem, plans in feasible_problems(60, first=200):
        tables = problem.space.tables
        if tables < 2:
            continue
        ranks = len(problem.cluster.rank_hbm)
        pins = {} if rule == "together" else {0: (ranks - 1,)}
        if rule == "pin shards":
            pins = {0: plans[len(plans) // 2].ranks[0]}
        together = (0, 1) if rule in ("together", "both") else ()
        same_kind = [
            len({problem.space.option_type[plan.options[t]] for t in together}) <= 1
            for plan in plans
        ]
        allowed = [
            plan
            for plan, alike in zip(plans, same_kind, strict=True)
            if alike and keeps(plan, pins, together)
        ]
        least = min((plan.rating for plan in allowed), default=math.inf)
        objectives = {
            "pins": {f"t{table}": own for table, own in pins.items()},
            "together": [[f"t{table}" for table in together]] if together else [],
        }
        try:
            found = optimize(problem, DEFAULT_SEARCH, settings(**objectives), names=NAMES)
        except ConstraintError:
            # Towers are refused; otherwise there is no such plan.
            assert math.isinf(least) or (problem.space.table_group >= 0).any()
            continue
        assert found.found == math.isfinite(least)
        if not found.found:
            continue
        possible += 1
        assert verify_plan(problem, found.options, found.ranks, found.rating) == ""
        assert keeps(listed(problem, found), pins, together)
        assert found.lower_bound <= least * NEARLY
        assert found.rating >= least / NEARLY
        best += found.rating <= least * NEARLY
    assert possible > 8
    assert best >= possible - 1


def test_rules_and_another_measure_go_together():
    problem = small_problem()
    pinned = settings(minimize="memory", within=0.5, pins={"t0": 3}, together=[["t1", "t2"]])
    found = optimize(problem, DEFAULT_SEARCH, pinned, names=NAMES)
    plan = listed(problem, found)
    assert verify_plan(problem, found.options, found.ranks, found.rating) == ""
    assert set(plan.ranks[0]) == {3}
    assert plan.ranks[1] == plan.ranks[2]
    assert found.objective == measured(problem, plan, "memory")
    assert found.objective <= found.objective_before


def test_the_same_moves_and_seed_give_the_same_plan():
    problem = small_problem()
    for threads in (1, 2):
        wanted = Optimize(
            time_budget=None,
            move_budget=9_000,
            threads=threads,
            objectives=Objectives(minimize="memory", within=0.1),
        )
        first, second = (optimize(problem, DEFAULT_SEARCH, wanted) for _ in range(2))
        assert first.options.tolist() == second.options.tolist()
        assert first.ranks.tolist() == second.ranks.tolist()


@pytest.mark.parametrize(
    ("objectives", "words"),
    [
        ({"pins": {"t99": 0}}, "no table t99"),
        ({"pins": {"t0": 99}}, "t0 is pinned to rank 99 of 8"),
        ({"pins": {"t0": -1}}, "rank -1"),
        ({"pins": {"t0": (0, 1, 2)}}, "t0 can't be placed on rank 0, 1, 2"),
        ({"pins": {"t0": 0, "t1": 1}, "together": [["t0", "t1"]]}, "pinned to other ranks"),
        ({"together": [["t0", "nobody"]]}, "no table nobody"),
    ],
)
def test_rules_that_can_not_be_kept_are_named(objectives, words):
    with pytest.raises(ConstraintError, match=words):
        optimize(small_problem(), DEFAULT_SEARCH, settings(**objectives), names=NAMES)


def test_a_name_that_stands_for_two_tables_needs_its_module():
    problem = small_problem()
    names = [(f"m{i}", "t") for i in range(problem.space.tables)]
    with pytest.raises(ConstraintError, match="t matches"):
        optimize(problem, DEFAULT_SEARCH, settings(pins={"t": 0}), names=names)
    found = optimize(problem, DEFAULT_SEARCH, settings(pins={"m1.t": 2}), names=names)
    assert set(listed(problem, found).ranks[1]) == {2}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"minimize": "speed"}, "minimize"),
        ({"within": -0.1}, "within"),
        ({"within": math.nan}, "within"),
        ({"within": 0.05, "pins": {"t0": 0}}, "within"),
        ({"pins": {"t0": ()}}, "pins"),
        ({"together": [["t0"]]}, "together"),
    ],
)
def test_objectives_that_make_no_sense_are_refused_by_name(fields, name):
    with pytest.raises(ValueError, match=name):
        Objectives(**fields)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"within": "5%"}, "`within` must be a number, not '5%'"),
        ({"pins": {"t0": "x"}}, "for the table 't0', not 'x'"),
        ({"pins": {"t0": [0, "1"]}}, "for the table 't0', not [0, '1']"),
        ({"pins": {"t0": 1.5}}, "for the table 't0', not 1.5"),
        ({"together": ["users"]}, "`together` must be lists of tables"),
        ({"together": "users"}, "`together` must be lists of tables"),
    ],
)
def test_objectives_of_another_type_are_refused_by_name(fields, told):
    with pytest.raises(TypeError, match=re.escape(told)):
        Objectives(**fields)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"time_budget": "1"}, "`time_budget` must be a number, not '1'"),
        ({"move_budget": 1e6}, "`move_budget` must be a whole number, not 1000000.0"),
        ({"threads": "2"}, "`threads` must be a whole number, not '2'"),
    ],
)
def test_budgets_of_another_type_are_refused_by_name(fields, told):
    with pytest.raises(TypeError, match=re.escape(told)):
        Optimize(**fields)


@pytest.mark.parametrize("minimize", ["memory", "shards", "critical_path"])
@pytest.mark.parametrize("own", [("grid_shard",), ("grid_shard", "row_wise")])
def test_a_grid_in_a_tower_has_the_value_that_it_has(minimize, own):
    problem = grid_tower(own, ("row_wise",))
    found = optimize(problem, DEFAULT_SEARCH, settings(minimize=minimize, within=0.1))
    assert verify_plan(problem, found.options, found.ranks, found.rating) == ""
    assert found.objective <= found.objective_before
    if minimize == "shards":
        runs = problem.space.option_run_begin
        shards = [problem.space.run_count[slice(*runs[o : o + 2])].sum() for o in found.options]
        assert found.objective == sum(shards)
