"""Collective starts on real gloo processes."""

from typing import Any

import pytest
import torch
from torchrec.distributed.planner import Topology

from fastplan import EmbeddingShardingPlanner
from fastplan.torchrec.differences.search_space import IS_SHOWN
from tests.torchrec.collective_worker import SETTINGS
from tests.torchrec.processes import run_ranks

# Four ranks share two cores for long; beside one TorchRec is enough.
SIZES = (2,) if IS_SHOWN else (2, 4)


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size} ranks")
def ranks(request: Any, tmp_path_factory: Any) -> list[dict[str, Any]]:
    """What every rank saw of every case."""
    folder = tmp_path_factory.mktemp("ranks")
    return run_ranks(
        "tests.torchrec.collective_worker",
        [(rank, request.param, folder) for rank in range(request.param)],
    )


def seen(ranks: list[dict[str, Any]], case: str) -> list[Any]:
    return [results[case] for results in ranks]


def test_every_rank_has_the_plan_that_it_would_make_alone(ranks):
    results = seen(ranks, "same_plan")
    assert len({text for text, _ in results}) == 1
    assert all(same for _, same in results)


def test_the_second_start_is_a_hit_on_rank_zero_and_rebuilt_elsewhere(ranks):
    first, *others = seen(ranks, "cached")
    assert [status for _, status, _ in first] == ["miss", "hit"]
    for runs in others:
        assert [reason for _, _, reason in runs] == ["planned by rank 0 of the group"] * 2
    assert len({plan for runs in (first, *others) for plan, _, _ in runs}) == 1


def test_an_error_on_rank_zero_is_raised_on_every_rank(ranks):
    results = seen(ranks, "failing")
    assert results[0][0] == "insufficient_storage"
    assert results == [results[0]] * len(ranks)


def test_a_rank_that_cannot_read_its_model_is_named_on_every_other_rank(ranks):
    last = len(ranks) - 1
    own, text = "no such library", "rank {} of the group: OSError: no such library"
    for rank, told in enumerate(seen(ranks, "unreadable")):
        assert told == [own if rank == failing else text.format(failing) for failing in (0, last)]


def test_a_custom_cost_plans_on_rank_zero_and_is_compiled_nowhere_else(ranks):
    results = seen(ranks, "custom_cost")
    assert len({(plan, rating) for plan, rating, _, _ in results}) == 1
    assert all(same for _, _, same, _ in results)
    assert [compiled for _, _, _, compiled in results] == [rank == 0 for rank in range(len(ranks))]


def test_ranks_with_another_model_are_named_on_every_rank(ranks):
    results = seen(ranks, "differing")
    assert results == [results[0]] * len(ranks)
    assert f"rank {len(ranks) - 1}: tables[t1].rows: 50000 -> 60000" in results[0]


def test_settings_that_cost_nothing_are_rank_zeros_everywhere(ranks):
    first, *others = seen(ranks, "other_settings")
    assert [name for name, _ in first] == [*SETTINGS]
    for name, shown in first:
        assert str(SETTINGS[name][0]) in shown
    assert others == [first] * len(others)


def test_an_error_while_a_rank_rebuilds_the_plan_is_raised_on_every_rank(ranks):
    *others, (own, _) = seen(ranks, "breaks")
    assert own == "ZeroDivisionError: division by zero"
    text = f"RuntimeError: rank {len(ranks) - 1} of the group: {own}"
    assert [told for told, _ in others] == [text] * len(others)
    # The group goes on to work.
    assert len({plan for _, plan in seen(ranks, "breaks")}) == 1


def test_a_sub_group_that_does_not_start_at_rank_zero_plans_for_itself(ranks):
    half = len(ranks) // 2
    low, high = seen(ranks, "sub_group")[:half], seen(ranks, "sub_group")[half:]
    assert len(set(low)) == len(set(high)) == 1
    assert low[0] != high[0]


def test_rank_zero_optimizes_and_every_rank_has_its_plan(ranks):
    results = seen(ranks, "optimized")
    assert len({(plan, rating) for plan, rating, _ in results}) == 1
    (_, rating, starts), *others = results
    assert rating <= min(starts.values())
    assert all(starts == {} for _, _, starts in others)


def test_an_optimized_plan_works_in_torchrec(ranks):
    assert seen(ranks, "loaded") == [[2.0, 1.0, 3.0]] * len(ranks)


def test_a_planner_that_edits_its_plan_sends_the_edited_one(ranks):
    assert seen(ranks, "edited") == ["edited"] * len(ranks)


def test_a_planner_may_change_its_inputs_in_plan(ranks):
    types = [types for types, _ in seen(ranks, "restricted")]
    assert types == [["row_wise"]] * len(ranks)
    left = [options for _, options in seen(ranks, "restricted")]
    assert left[0] and left[1:] == [None] * (len(ranks) - 1)  # as with TorchRec


def test_without_a_process_group_torchrec_says_so():
    planner = EmbeddingShardingPlanner(topology=Topology(world_size=2, compute_device="cuda"))
    with pytest.raises(AssertionError, match="not yet initialized"):
        planner.collective_plan(torch.nn.Module(), [])
