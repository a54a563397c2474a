"""Plans on real gloo processes."""

import json

import pytest

from fastplan.measure.prepare import Subject
from fastplan.measure.results import read_runs
from fastplan.measure.run import finished, measure
from fastplan.measure.scaling import MemoryLimit
from fastplan.measure.settings import LaunchSettings, Settings, turns
from fastplan.spec.model import replace
from fastplan.torchrec.models import export_model
from tests.measure.samples import KINDS, on_one_rank, planned, several_modules

ROOM = MemoryLimit(1 << 40, None)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Every sharding type and a bad plan on two ranks."""
    given = several_modules(2)
    plans = {kind: planned(given, kind) for kind in KINDS}
    plans["data_parallel"] = planned(given, "data_parallel", s0="row_wise")
    plans["one rank"] = on_one_rank(plans["table_wise"])
    folder = tmp_path_factory.mktemp("two") / "runs"
    failures = measure(
        folder,
        Subject(given, None, tuple(plans.values()), tuple(plans)),
        LaunchSettings(device="cpu", ranks_per_host=2, timeout=120),
        Settings(rounds=2, steps=2, warmup=1, batches=2, lengths="poisson", zipf=1.05),
        room=ROOM,
    )
    return folder, failures


def test_every_plan_is_measured_in_every_round(two):
    folder, failures = two
    assert failures == []
    assert finished(folder) == set(turns(5, 2))
    runs = read_runs(folder)
    assert [plan.label for plan in runs.plans] == [*KINDS, "one rank"]
    for plan in runs.plans:
        assert plan.step.n == 4
        assert plan.step.median > 0
        assert len(plan.rank_parts["lookup"]) == 2
        assert all(plan.part(part).median > 0 for part in plan.rank_parts)


def test_memory_is_where_the_tables_are(two):
    peak = {plan.label: plan.peak_memory for plan in read_runs(two[0]).plans}
    weights = 60_000 * 64 * 4
    assert peak["one rank"][0] > weights
    assert peak["one rank"][0] - peak["one rank"][1] > weights // 2
    assert all(size > weights for size in peak["data_parallel"])


def test_the_planner_s_memory_is_of_that_order(two):
    plans = {plan.label: plan for plan in read_runs(two[0]).plans}
    own = plans["table_wise"]
    assert sum(own.estimated_memory) / 3 < sum(own.peak_memory) < 8 * sum(own.estimated_memory)
    assert plans["one rank"].estimated_memory is None


def test_what_was_measured_is_noted(two):
    told = json.loads((two[0] / "run.json").read_text())
    assert told["settings"]["zipf"] == 1.05
    assert told["ranks"] == 2
    assert {"torch", "torchrec"} <= set(told["packages"])


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """A real model on four ranks; the second of two plans ends with a rank's death."""
    target = "tests.measure.real_models:build_until_third"
    given = replace(export_model(target, world_size=4), torchrec=None)
    topology = replace(given.topology, world_size=4, local_world_size=4)
    plan = planned(replace(given, topology=topology), "table_wise")
    plan = replace(plan, layout=replace(plan.layout, device="cpu"), basis=None, fingerprint=None)
    plans = (plan, on_one_rank(plan))
    folder = tmp_path_factory.mktemp("four") / "runs"
    failures = measure(
        folder,
        Subject(given, target, plans, ("good", "bad")),
        LaunchSettings(device="cpu", ranks_per_host=4, timeout=120),
        # With this seed, the good plan has the first turn.
        Settings(rounds=1, steps=2, warmup=0, seed=1, dataset="tests.measure.real_models:batches"),
        room=ROOM,
    )
    return folder, failures


def test_a_death_is_told_with_rank_plan_and_reason(four):
    folder, (failure,) = four
    assert (failure.plan, failure.ranks) == (1, (1,))
    assert failure.text(("good", "bad")).startswith("bad, rank 1: killed by SIGKILL")
    assert read_runs(folder).failures == (failure.text(("good", "bad")),)


def test_what_was_finished_before_is_kept(four):
    (good,) = read_runs(four[0]).plans
    assert good.label == "good"
    assert len(good.rank_parts["lookup"]) == 4


def test_dense_parts_of_a_real_model_take_no_memory(four):
    (good,) = read_runs(four[0]).plans
    assert max(good.peak_memory) < (1 << 12) * (1 << 10) * 4
