"""The benchmark of re-plans: the ranks of a plan from scratch get the best numbers."""

from bench.replan_ranks import best_renumbering
from fastplan.planning.held import renumbered
from fastplan.planning.movement import movement
from tests.planning.test_difference import planned, tables_of


def test_a_plan_under_other_numbers_is_put_back_in_place():
    plan = planned(tables_of(9))
    shuffled = renumbered(plan, (6, 7, 4, 5, 1, 0, 3, 2), 8)
    assert movement(plan, shuffled).bytes > 0
    back = renumbered(shuffled, best_renumbering(shuffled, plan), 8)
    moved = [each for each in movement(plan, back).tables if each.bytes]
    # Row-wise and column-wise shards that are alike may change places.
    assert sum(each.bytes for each in moved) <= movement(plan, shuffled).bytes / 2
