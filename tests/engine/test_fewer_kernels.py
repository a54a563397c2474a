"""Kernels that all tables change together."""

import numpy as np

from fastplan.engine import _native
from fastplan.engine.fewer_kernels import with_fewer_kernels
from fastplan.engine.solve import solve, verify_plan
from fastplan.engine.step import step_goal, step_of
from fastplan.model.vocabulary import KERNEL_INDEX
from tests.engine.test_step import drawn
from tests.problems import DEFAULT_SEARCH


def with_kernel(problem, options, kernel):
    """The options with this kernel and the same sharding type, where a table has one."""
    space, found = problem.space, []
    for option in options.tolist():
        table = int(np.searchsorted(space.table_option_begin, option, side="right")) - 1
        own = range(*space.table_option_begin[table : table + 2].tolist())
        same = [o for o in own if space.option_type[o] == space.option_type[option]]
        found.append(next((o for o in same if space.option_kernel[o] == kernel), option))
    return np.array(found, np.int32)


def test_a_kernel_that_only_costs_its_latency_is_left():
    improved = 0
    for seed in range(8):
        _, problem = drawn(seed)
        plan = solve(problem, DEFAULT_SEARCH)
        goal = step_goal(problem.space).columns()
        cached = with_kernel(problem, plan.options, KERNEL_INDEX["fused_uvm_caching"])
        found = with_fewer_kernels(problem, cached, plan.ranks, goal)
        before, after = (step_of(problem, each, plan.ranks).ms for each in (cached, found))
        assert after <= before
        assert not verify_plan(problem, found, plan.ranks, float("nan"))
        improved += after < before
    assert improved >= 6


def test_a_plan_without_room_for_the_better_kernel_stays():
    _, roomy = drawn(1)
    plan = solve(roomy, DEFAULT_SEARCH)
    cached = with_kernel(roomy, plan.options, KERNEL_INDEX["fused_uvm"])
    goal = step_goal(roomy.space).columns()
    held = _native.tally(roomy.handle, {"options": cached, "ranks": plan.ranks}, goal)["value"]
    _, narrow = drawn(1, room=1)
    found = with_fewer_kernels(narrow, cached, plan.ranks, goal)
    assert np.array_equal(found, cached)
    better = with_fewer_kernels(roomy, cached, plan.ranks, goal)
    after = _native.tally(roomy.handle, {"options": better, "ranks": plan.ranks}, goal)["value"]
    assert after < held
