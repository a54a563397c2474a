"""One cache key means one plan, also for plans that follow another in processes of their own."""

import pytest

from tests.torchrec.processes import run_ranks

# Seeds under which TorchRec 1.8 lists options in orders that lead to different plans.
SEEDS = ["0", "2"]


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """What processes with different hash seeds, one after the other, find with one cache."""
    folder = tmp_path_factory.mktemp("cache")
    found = []
    for seed in SEEDS:
        found += run_ranks("tests.torchrec.replan_key_worker", [[folder]], PYTHONHASHSEED=seed)
    return found


def test_a_key_has_one_plan_whatever_the_hash_seed(plans):
    by_key = {}
    for process in plans:
        for run in process:
            by_key.setdefault(run["key"], set()).add(run["plan"])
    assert all(len(found) == 1 for found in by_key.values()), by_key


def test_the_plans_do_follow_the_previous_one(plans):
    for given, deterministic, alone in plans:
        assert given["followed"] and deterministic["followed"]
        assert not alone["followed"]


def test_keys_differ_only_where_the_order_of_options_does(plans):
    """A plan from scratch has the same key for every seed, and is taken from the cache."""
    (_, *first), (_, *second) = plans
    assert [run["key"] for run in first] == [run["key"] for run in second]
    assert second[-1]["status"] == "hit"
    assert first[-1]["plan"] == second[-1]["plan"]
