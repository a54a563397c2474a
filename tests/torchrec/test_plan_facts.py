"""Plans as facts: every part counts, and a difference names its place."""

import pytest

from fastplan.torchrec.plan_facts import first_difference, option_facts, plan_facts
from tests.torchrec.collective_worker import SHARDERS, model, planner

RANKS = 2


@pytest.mark.parametrize(
    ("change", "table", "field"),
    [
        (lambda plan: plan.plan[""]["t2"].ranks.__setitem__(0, 6), "t2", "ranks"),
        (lambda plan: plan.plan[""].pop("t0"), "t0", "table"),
        (lambda plan: plan.plan.update(more=plan.plan[""]), "more.t0", "table"),
        (lambda plan: plan.plan[""].__setitem__("t0", plan.plan[""].pop("t0")), "", "order"),
        (lambda plan: setattr(plan.plan[""]["t1"], "sharding_spec", None), "t1", "sharding_spec"),
        (
            lambda plan: plan.plan[""]["t1"].sharding_spec.shards[0].shard_sizes.__setitem__(0, 1),
            "t1",
            "shard 0",
        ),
    ],
)
def test_every_part_of_a_plan_is_compared(change, table, field):
    theirs, ours = (planner(RANKS).plan(model(), SHARDERS) for _ in range(2))
    assert first_difference(plan_facts(ours, 1.0), plan_facts(theirs, 1.0)) is None
    change(ours)
    told = first_difference(plan_facts(ours, 1.0), plan_facts(theirs, 1.0))
    assert (told.table, told.field.startswith(field)) == (table, True)


def test_ratings_are_compared_to_the_bit_if_both_plans_have_one():
    plan = planner(RANKS).plan(model(), SHARDERS)
    told = first_difference(plan_facts(plan, 0.1 + 0.2), plan_facts(plan, 0.3))
    assert told.field == "rating"
    assert first_difference(plan_facts(plan, None), plan_facts(plan, 0.3)) is None


def test_options_are_compared_with_their_estimates():
    made = [planner(RANKS) for _ in range(2)]
    for each in made:
        each.plan(model(), SHARDERS)
    ours, theirs = (each._best_plan for each in made)
    assert first_difference(option_facts(ours), option_facts(theirs)) is None
    ours[1].shards[0].perf.fwd_compute *= 1 + 2**-52
    told = first_difference(option_facts(ours), option_facts(theirs))
    assert told.table.startswith(f"option 1 of {ours[1].name}")
    assert told.field == "shard 0"
