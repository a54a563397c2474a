"""Tables that move while a job trains, on real gloo processes."""

from typing import Any

import pytest
import torch
from torchrec.distributed.types import ShardingPlan

from fastplan import reshard
from tests.torchrec.processes import run_ranks
from tests.torchrec.reshard_worker import MOVES


def _run(folder: Any, seeds: list[str], *only: str) -> list[Any]:
    arguments = [(rank, len(seeds), folder, *only) for rank in range(len(seeds))]
    return run_ranks("tests.torchrec.reshard_worker", arguments, PYTHONHASHSEED=seeds)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: Any) -> list[Any]:
    return _run(tmp_path_factory.mktemp("job"), ["0"] * 3)


@pytest.mark.parametrize("moves", [*MOVES, "planned"])
def test_training_goes_on_as_if_nothing_had_moved(moves, ranks):
    found = [rank[moves] for rank in ranks]
    steps = 2 if moves == "a shard that stays" else 1
    for each in found:
        assert (each["steps"], each["needs_restart"], each["left"]) == (steps, {}, False)
    assert found[0]["equal"]  # the first rank has gathered all tables


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("no dense weights", "dense weights"),
        ("sequences", "ShardedEmbeddingCollection"),
        ("two states", "exp_avg_sq"),
    ],
)
def test_a_job_that_torchrec_can_not_reshard_is_left_as_it_is_on_all_ranks(job, why, ranks):
    for rank in ranks:
        steps, needs_restart, as_before = rank["refused"][job]
        assert (steps, as_before) == ([], True)
        assert sorted(needs_restart) == ["tables.t0", "tables.t1"]
        assert all(why in reason for reason in needs_restart.values())


def test_ranks_that_would_miss_each_others_messages_are_told(tmp_path):
    for rank in _run(tmp_path, ["0", "1"], "refused"):
        needs_restart = rank["refused"]["two states"][1]
        assert all("PYTHONHASHSEED" in why for why in needs_restart.values())
        assert needs_restart


def test_a_model_that_is_not_sharded_is_refused_by_name():
    with pytest.raises(TypeError, match="`job` must be a DistributedModelParallel, not a Linear"):
        reshard(torch.nn.Linear(2, 2), ShardingPlan({}))
