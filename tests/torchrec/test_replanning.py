"""A planner that is told of an older plan follows it, or tells why not."""

import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology

from fastplan import EmbeddingShardingPlanner, Optimize, Replan, save_plan
from fastplan.planning import replan_session
from fastplan.planning.difference import PlanModelMismatch

SHARDERS = [EmbeddingBagCollectionSharder()]
ROWS = {f"t{i}": 20_000 * (i + 3) for i in range(12)}


def model(rows=None):
    tables = [
        EmbeddingBagConfig(
            name=name, embedding_dim=64, num_embeddings=n, feature_names=[f"f_{name}"]
        )
        for name, n in (rows or ROWS).items()
    ]
    return EmbeddingBagCollection(device=torch.device("meta"), tables=tables)


def planner(ranks=4, **more):
    topology = Topology(world_size=ranks, compute_device="cuda", local_world_size=2)
    return EmbeddingShardingPlanner(topology=topology, stats=[], **more)


def changed():
    return model({**{name: n for name, n in ROWS.items() if name != "t0"}, "new": 90_000})


def planner_of(module):
    """A planner that has planned the module."""
    used = planner()
    used.plan(module, SHARDERS)
    return used


FULL = Replan(reference="scratch", slack=0.05, max_moved=0.3, move_budget=20_000)


def test_a_plan_a_file_and_a_planner_are_all_followed(tmp_path):
    first = planner()
    plan = first.plan(model(), SHARDERS)
    save_plan(plan, tmp_path / "plan.json", planner=first)
    found = []
    for previous in (plan, str(tmp_path / "plan.json"), first):
        used = planner(previous=previous, replan=FULL)
        found.append(used.plan(changed(), SHARDERS))
        run = used.last_run
        assert run.replan.followed
        assert run.not_followed is None
        assert run.rating == run.replan.rating <= 1.05 * run.replan.scratch_rating
        assert run.moves.bytes == run.replan.moved
        assert [*run.moves.removed] == ["t0"]
        assert "t0" not in found[-1].plan[""]
        assert "new" in found[-1].plan[""]
    assert str(found[1]) == str(found[2])


def test_what_users_read_of_a_plan_is_the_plan_that_follows():
    first = planner()
    used = planner(previous=first.plan(model(), SHARDERS), replan=FULL)
    plan = used.plan(changed(), SHARDERS)
    ranks = {option.name: [s.rank for s in option.shards] for option in used._best_plan}
    assert ranks == {name: sharding.ranks for name, sharding in plan.plan[""].items()}
    assert used._perf_model.rate(plan=used._best_plan) == used.last_run.rating


def test_a_small_change_needs_no_search():
    rows = {f"t{i}": 20_000 * (i % 7 + 3) for i in range(40)}
    first = planner()
    first.plan(model(rows), SHARDERS)
    used = planner(previous=first, replan=Replan(max_moved=0.5, slack=0.2))
    plan = used.plan(model({**rows, "new": 1000}), SHARDERS)
    assert used.last_run.replan.followed
    assert used.last_run.replan.scratch_rating is None
    assert "search" not in used.last_run.seconds
    ranks = {option.name: [s.rank for s in option.shards] for option in used._best_plan}
    assert ranks == {name: sharding.ranks for name, sharding in plan.plan[""].items()}


def test_a_policy_that_cannot_be_met_is_torchrecs_plan_with_the_reason():
    first = planner()
    first.plan(model(), SHARDERS)
    tight = Replan(reference="scratch", max_moved=0.0, slack=0.0, move_budget=2_000)
    used = planner(8, previous=first, replan=tight)
    plan = used.plan(model(), SHARDERS)
    assert not used.last_run.replan.followed
    assert used.last_run.not_followed
    assert str(plan) == str(planner(8).plan(model(), SHARDERS))


def test_the_plan_of_another_model_is_refused():
    first = planner()
    first.plan(model(), SHARDERS)
    with pytest.raises(PlanModelMismatch, match=r"t0.*other"):
        planner(previous=first).plan(model({"other": 100}), SHARDERS)


@pytest.mark.parametrize("wrong", [{"previous": 3}, {"replan": "often"}], ids=str)
def test_arguments_that_make_no_sense_are_refused(wrong):
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        planner(**wrong).plan(model(), SHARDERS)


def test_the_nearest_plan_of_the_cache_is_followed_and_the_result_is_kept(tmp_path):
    planner(cache=tmp_path).plan(model(), SHARDERS)
    first = planner(cache=tmp_path, replan=FULL)
    plan = first.plan(changed(), SHARDERS)
    assert first.last_run.replan.followed
    again = planner(cache=tmp_path, replan=FULL)
    assert str(again.plan(changed(), SHARDERS)) == str(plan)
    assert again.last_run.cache.status == "hit"
    # TorchRec's plan for the same model is another entry.
    parity = planner(cache=tmp_path)
    parity.plan(changed(), SHARDERS)
    assert parity.last_run.cache.status == "miss"


@pytest.mark.parametrize(("slack", "quick"), [(1.0, True), (-0.9, False)])
def test_a_quick_plan_after_the_caches_is_at_most_twice_what_torchrec_reaches(
    tmp_path, monkeypatch, slack, quick
):
    rows = {f"t{i}": 20_000 * (i % 7 + 3) for i in range(40)}
    policy = Replan(max_moved=0.5, slack=0.2)
    planner(cache=tmp_path).plan(model(rows), SHARDERS)
    grown = model({**rows, "new": 1000})
    assert replan_session.FOLLOWING_SLACK == 1.0
    monkeypatch.setattr(replan_session, "FOLLOWING_SLACK", slack)
    used = planner(cache=tmp_path, replan=policy)
    used.plan(grown, SHARDERS)
    assert used.last_run.replan.followed
    assert ("search" not in used.last_run.seconds) == quick


def test_auto_without_a_plan_that_is_close_searches(tmp_path):
    planner(cache=tmp_path).plan(model({"other": 1000}), SHARDERS)
    used = planner(cache=tmp_path, replan="auto")
    plan = used.plan(model(), SHARDERS)
    assert used.last_run.replan is None
    assert used.last_run.not_followed == "the cache has no plan with half of these tables"
    assert str(plan) == str(planner().plan(model(), SHARDERS))


def test_auto_without_a_cache_says_so():
    used = planner(replan="auto", cache=False)
    used.plan(model(), SHARDERS)
    assert "no cache is configured" in used.last_run.not_followed


def test_the_optimized_plan_is_the_reference_in_optimize_mode():
    better = Optimize(time_budget=None, move_budget=5_000)
    first = planner(optimize=better)
    first.plan(model(), SHARDERS)
    used = planner(optimize=better, previous=first, replan=FULL)
    used.plan(changed(), SHARDERS)
    assert used.last_run.replan.scratch_rating <= min(used.last_run.start_ratings.values())
    assert used.last_run.replan.followed
    assert 0 < used.last_run.lower_bound <= used.last_run.rating
